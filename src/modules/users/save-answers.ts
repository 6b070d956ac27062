import type { Context } from 'elysia';
import type { Caller } from '../../auth/token-verifier';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { requestExamples } from '../../http/docs';
import { ifMatchParameter, readIfMatch } from '../../http/entity-tag';
import { answerJson } from '../../http/json-answer';
import { bodyProblems, problems } from '../../http/problem';
import { requestIdOf } from '../../http/request-context';
import type { AnswerSection } from './answers';
import { entityTag } from './entity-tag';
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
    parameters: [ifMatchParameter],
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
 * The one way that answers are saved: merges them into the caller's section, honours `If-Match`, and answers the
 * whole user with its ETag.
 */
export function createSaveAnswers({ db, clock }: Pick<AppDeps, 'db' | 'clock'>): SaveAnswers {
  const store = createUserStore(db);
  return async (section, patch, { caller, request, set }) => {
    const ifMatch = readIfMatch(request);
    const requestId = requestIdOf(set);
    const row = await store.saveSection({ userId: caller.id, section, patch, ifMatch, requestId, now: clock() });
    if (row === undefined) throw new AppError('precondition-failed');
    return answerUser(row, { request, set });
  };
}

/** The user object, with the headers that every answer holding one has. */
export function answerUser(record: AnsweredRecord, { request, set }: Omit<Exchange, 'caller'>): Response {
  set.headers.etag = entityTag.format(record);
  set.headers['cache-control'] = 'private, no-store';
  return answerJson(toUserJson(record), { request, set });
}
