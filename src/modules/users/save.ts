import type { Context } from 'elysia';
import type { AuthenticatedClient } from '../../auth/verifier';
import { bodyProblems } from '../../http/problem-response';
import { requestIdOf } from '../../http/request-context';
import { jsonResponse, readPreconditions } from '../../http/response';
import type { AnswerSection, MergePatch } from '../answers/sections';
import type { UserRecord, UserStore } from './store';
import { entityTag, staleRecord } from './versions';

/**
 * The JSON body of every response with a user. The sections are stored as the JSON of the response: to parse and print
 * them takes longer than to read them.
 */
export function toUserJson({ id, createdAt, updatedAt, sections }: UserRecord): string {
  const instants = `"createdAt":"${toIso(createdAt)}","updatedAt":"${toIso(updatedAt)}"`;
  return `{"user":{"id":${JSON.stringify(id)},${instants},${sections}}}`;
}

function toIso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}

/** The problems of every route that saves to the record. */
export const saveProblems = [...bodyProblems, 'precondition-failed'] as const;

/** The context of an authenticated request. */
export interface AuthenticatedContext {
  readonly client: AuthenticatedClient;
  readonly request: Request;
  readonly set: Context['set'];
}

export type SaveAnswers = (
  section: AnswerSection,
  patch: MergePatch,
  context: AuthenticatedContext,
) => Promise<Response>;

/**
 * Merges answers into a section of the user's record if the preconditions of the request hold, and responds with the
 * whole user and its ETag.
 */
export function createSaveAnswers(store: UserStore, clock: () => Date): SaveAnswers {
  return async (section, patch, { client, request, set }) => {
    const by = { userId: client.id, requestId: requestIdOf(set), now: clock() };
    const record = await store.saveSection({ ...by, section, patch, preconditions: readPreconditions(request) });
    if (record === undefined) throw staleRecord(await store.find(client.id));
    return userResponse(record, { request, set });
  };
}

/**
 * Responds with a user and its ETag.
 *
 * @param json the body, if it has more than the stored members
 */
export function userResponse(
  record: UserRecord,
  { request, set }: Omit<AuthenticatedContext, 'client'>,
  json = toUserJson(record),
): Response {
  set.headers.etag = entityTag.format(record);
  set.headers['cache-control'] = 'private, no-store';
  return jsonResponse(json, { request, set });
}
