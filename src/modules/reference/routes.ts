import { createHash } from 'node:crypto';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps, RouteDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { noParameters } from '../../http/request-body';
import { envelope, ifNoneMatchParameter, jsonResponse, notModified } from '../../http/response';
import { describeError } from '../../log';
import { cached } from '../../shared/async';
import { HealthAndCareBody, type ReferenceStore } from './store';

/** Less than the response's max-age. */
const cacheTtlMs = 60_000;

interface PreparedBody {
  readonly json: Blob;
  readonly entityTag: string;
}

/** Caches the response body. It is served stale while a reload fails. */
function createHealthAndCareCache(
  store: ReferenceStore,
  { config, monotonicMs, log }: Pick<AppDeps, 'config' | 'monotonicMs' | 'log'>,
): () => Promise<PreparedBody> {
  return cached({
    ttlMs: cacheTtlMs,
    now: monotonicMs,
    async load() {
      const tokens = { 'chat-id': config.chat.id, 'chat-token': config.chat.token };
      const body = v.parse(HealthAndCareBody, envelope(await store.findLists(), tokens));
      const json = JSON.stringify(body);
      const entityTag = `"${createHash('sha256').update(json).digest('hex').slice(0, 32)}"`;
      return { json: new Blob([json]), entityTag };
    },
    onReloadFailure: (error) => log.warn(describeError(error), 'serving cached reference lists: reload failed'),
  });
}

export function createReferenceRoutes(deps: RouteDeps, store: ReferenceStore) {
  const findHealthAndCare = createHealthAndCareCache(store, deps);

  return new Elysia({ prefix: '/healthAndCare', tags: ['Lists'] }).use(createAuth(deps)).get(
    '/',
    async ({ request, set }) => {
      const { json, entityTag } = await findHealthAndCare();
      set.headers.etag = entityTag;
      set.headers['cache-control'] = 'private, max-age=300';
      return jsonResponse(json, { request, set });
    },
    {
      query: noParameters,
      response: { 200: HealthAndCareBody, ...notModified, ...problems(...readProblems, 'precondition-failed') },
      detail: {
        summary: 'Read the reference lists and the chat widget’s values',
        description: 'The same for all users, and rarely changed. Cache it, and revalidate with `If-None-Match`.',
        operationId: 'getHealthAndCare',
        parameters: [ifNoneMatchParameter],
      },
    },
  );
}
