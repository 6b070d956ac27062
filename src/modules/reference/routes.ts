import { createHash } from 'node:crypto';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { noParameters } from '../../http/request-body';
import { envelope, ifNoneMatchParameter, jsonResponse, notModified } from '../../http/response';
import { describeError } from '../../log';
import { cached } from '../../shared/async';
import { HealthAndCareBody, type ReferenceStore } from './store';

/** How long a list that another process seeded anew may stay unseen here; below the answer's own max-age. */
const keptForMs = 60_000;

interface PreparedBody {
  readonly json: Uint8Array<ArrayBuffer>;
  readonly entityTag: string;
}

/**
 * The healthAndCare body as bytes, made from the tables once a minute at most. While the database is away, the
 * last body goes on being served.
 */
function createReferenceService({
  store,
  chat,
  monotonicMs,
  log,
}: { store: ReferenceStore } & Pick<AppDeps['config'], 'chat'> & Pick<AppDeps, 'monotonicMs' | 'log'>) {
  const load = async (): Promise<PreparedBody> => {
    const lists = await store.findLists();
    const body = v.parse(HealthAndCareBody, envelope(lists, { 'chat-id': chat.id, 'chat-token': chat.token }));
    const json = new TextEncoder().encode(JSON.stringify(body));
    return { json, entityTag: `"${createHash('sha256').update(json).digest('hex').slice(0, 32)}"` };
  };

  return {
    healthAndCare: cached({
      ttlMs: keptForMs,
      now: monotonicMs,
      load,
      onReloadFailure: (error) => log.warn(describeError(error), 'serving cached reference lists: reload failed'),
    }),
  };
}

export function createReferenceRoutes(deps: AppDeps, store: ReferenceStore) {
  const service = createReferenceService({
    store,
    chat: deps.config.chat,
    monotonicMs: deps.monotonicMs,
    log: deps.log,
  });

  return new Elysia({ prefix: '/healthAndCare', tags: ['Lists'] }).use(createAuth(deps)).get(
    '/',
    async ({ request, set }) => {
      const { json, entityTag } = await service.healthAndCare();
      set.headers.etag = entityTag;
      set.headers['cache-control'] = 'private, max-age=300';
      return jsonResponse(json, { request, set });
    },
    {
      query: noParameters,
      response: { 200: HealthAndCareBody, ...notModified, ...problems(...readProblems, 'precondition-failed') },
      detail: {
        summary: 'Read the reference lists and the chat widget’s values',
        description: 'The same for all callers, and seldom changed. Cache it, and revalidate with `If-None-Match`.',
        operationId: 'getHealthAndCare',
        parameters: [ifNoneMatchParameter],
      },
    },
  );
}
