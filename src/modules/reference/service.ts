import { createHash } from 'node:crypto';
import * as v from 'valibot';
import type { AppDeps } from '../../deps';
import { envelope } from '../../http/envelope';
import { describeError } from '../../log';
import { HealthAndCareBody } from './model';
import type { ReferenceStore } from './store';

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
export function createReferenceService({
  store,
  chat,
  machineClock,
  log,
}: { store: ReferenceStore } & Pick<AppDeps['config'], 'chat'> & Pick<AppDeps, 'machineClock' | 'log'>) {
  let prepared: PreparedBody | undefined;
  let preparedAtMs = Number.NEGATIVE_INFINITY;
  let loading: Promise<PreparedBody> | undefined;

  const load = async (): Promise<PreparedBody> => {
    const lists = await store.findLists();
    const body = v.parse(HealthAndCareBody, envelope(lists, { 'chat-id': chat.id, 'chat-token': chat.token }));
    const json = new TextEncoder().encode(JSON.stringify(body));
    return { json, entityTag: `"${createHash('sha256').update(json).digest('hex').slice(0, 32)}"` };
  };

  return {
    async healthAndCare(): Promise<PreparedBody> {
      // A clock that was set back must not keep a change unseen.
      const isFresh = Math.abs(machineClock().getTime() - preparedAtMs) < keptForMs;
      if (prepared !== undefined && isFresh) return prepared;
      loading ??= load().finally(() => {
        loading = undefined;
      });
      try {
        prepared = await loading;
      } catch (error) {
        if (prepared === undefined) throw error;
        log.warn(describeError(error), 'the lists are served as they were');
      }
      preparedAtMs = machineClock().getTime();
      return prepared;
    },
  };
}
