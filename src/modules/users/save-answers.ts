import type { Context } from 'elysia';
import type { Caller } from '../../auth/token-verifier';
import type { AppDeps } from '../../deps';
import { requestExamples } from '../../http/docs';
import { readPreconditions, saveConditionParameters } from '../../http/entity-tag';
import { answerJson } from '../../http/json-answer';
import { bodyProblems, problems } from '../../http/problem';
import { requestIdOf } from '../../http/request-context';
import type { AnswerSection } from './answers';
import { entityTag, staleRecord } from './entity-tag';
import { UserBody } from './model';
import { type AnsweredRecord, createUserStore } from './store';
import type { MergePatch } from './store-section';
import { toUserJson } from './view';

/** What every route that saves answers may refuse or fail with. */
export const saveProblems = [...bodyProblems, 'precondition-failed'] as const;

/** The `response` of every route that saves answers. */
export const saveResponses = { 200: UserBody, ...problems(...saveProblems) };

/** The `detail` of every route that saves answers. */
export function saveDetail(summary: string, operationId: string, examples: Readonly<Record<string, object>>) {
  return {
    summary,
    operationId,
    description:
      'A field that is left out stays as it is, null clears it, a list is replaced whole. Answers the whole user.',
    parameters: saveConditionParameters,
    requestBody: requestExamples(examples),
  };
}

/** What a route hands on beside the body. */
export interface Exchange {
  readonly caller: Caller;
  readonly request: Request;
  readonly set: Context['set'];
}

type SaveAnswers = (section: AnswerSection, patch: MergePatch, exchange: Exchange) => Promise<Response>;

/**
 * The one way that answers are saved: merges them into the caller's section if the preconditions of the request hold,
 * and responds with the whole user and its ETag.
 */
export function createSaveAnswers({ db, clock }: Pick<AppDeps, 'db' | 'clock'>): SaveAnswers {
  const store = createUserStore(db);
  return async (section, patch, { caller, request, set }) => {
    const by = { userId: caller.id, requestId: requestIdOf(set), now: clock() };
    const row = await store.saveSection({ ...by, section, patch, preconditions: readPreconditions(request) });
    if (row === undefined) throw staleRecord(await store.find(caller.id));
    return answerUser(row, { request, set });
  };
}

/**
 * The user object, with the headers of every response that holds one.
 *
 * @param json the body, if it holds more than what is stored
 */
export function answerUser(
  record: AnsweredRecord,
  { request, set }: Omit<Exchange, 'caller'>,
  json = toUserJson(record),
): Response {
  set.headers.etag = entityTag.format(record);
  set.headers['cache-control'] = 'private, no-store';
  return answerJson(json, { request, set });
}
