import type { Context } from 'elysia';
import type { AuthenticatedClient } from '../../auth/verifier';
import type { AppDeps } from '../../deps';
import { requestExamples } from '../../http/docs/routes';
import { bodyProblems, problems } from '../../http/problem-response';
import { requestIdOf } from '../../http/request-context';
import { jsonResponse, readPreconditions, saveConditionParameters } from '../../http/response';
import type { AnswerSection } from '../answers/sections';
import { UserBody } from './model';
import { type AnsweredRecord, createUserStore } from './store';
import type { MergePatch } from './store-section';
import { entityTag, isAtLeast, staleRecord, writtenVersions } from './versions';

/**
 * The body of every answer about a user, as JSON. The sections are stored as the JSON that is answered, and go into it as
 * they are: to parse and print them takes longer than to read them.
 */
export function toUserJson({ id, createdAt, updatedAt, sections }: AnsweredRecord): string {
  const instants = `"createdAt":"${toIso(createdAt)}","updatedAt":"${toIso(updatedAt)}"`;
  return `{"user":{"id":${JSON.stringify(id)},${instants},${sections}}}`;
}

function toIso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}

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
export interface RequestContext {
  readonly client: AuthenticatedClient;
  readonly request: Request;
  readonly set: Context['set'];
}

type SaveAnswers = (section: AnswerSection, patch: MergePatch, exchange: RequestContext) => Promise<Response>;

/**
 * The one way that answers are saved: merges them into the client's section if the preconditions of the request hold,
 * and responds with the whole user and its ETag.
 */
export function createSaveAnswers({ db, clock }: Pick<AppDeps, 'db' | 'clock'>): SaveAnswers {
  const store = createUserStore(db);
  return async (section, patch, { client, request, set }) => {
    const by = { userId: client.id, requestId: requestIdOf(set), now: clock() };
    const row = await store.saveSection({ ...by, section, patch, preconditions: readPreconditions(request) });
    if (row === undefined) throw staleRecord(await store.find(client.id));
    return userResponse(row, { request, set });
  };
}

/**
 * The user object, with the headers of every response that holds one.
 *
 * @param json the body, if it holds more than what is stored
 */
export function userResponse(
  record: AnsweredRecord,
  { request, set }: Omit<RequestContext, 'client'>,
  json = toUserJson(record),
): Response {
  set.headers.etag = entityTag.format(record);
  set.headers['cache-control'] = 'private, no-store';
  return jsonResponse(json, { request, set });
}

type ReadRecord = (userId: string, knownTags: readonly string[]) => Promise<AnsweredRecord | undefined>;

/**
 * Reads a record from the replica, if it is as new there as what this process has written and as the entity tags that
 * the client knows, else from the primary. So is a record that the replica does not have.
 */
export function createReadRecord({ db, replica }: Pick<AppDeps, 'db' | 'replica'>): ReadRecord {
  const primary = createUserStore(db);
  if (replica === undefined) return (userId) => primary.find(userId);
  const near = createUserStore(replica);
  const versions = writtenVersions(db);

  return async (userId, knownTags) => {
    const written = versions.get(userId);
    const known = knownTags.flatMap((tag) => entityTag.parse(tag) ?? []);
    const needed = written === undefined ? known : [written, ...known];
    const found = await near.find(userId).catch(() => undefined);
    if (found !== undefined && needed.every((version) => isAtLeast(found, version))) return found;
    const record = await primary.find(userId);
    // Erased by another process, or made again by one whose clock is behind: what was written here is gone.
    const isGone = written !== undefined && (record === undefined || !isAtLeast(record, written));
    if (isGone && versions.get(userId) === written) versions.delete(userId);
    return record;
  };
}
