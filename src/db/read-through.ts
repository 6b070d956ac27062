import type { Client, InArgs, InStatement } from '@libsql/client';
import { CircuitState, ConsecutiveBreaker, circuitBreaker, handleAll } from 'cockatiel';
import { openRemoteClient, type RemoteSettings } from './remote-client';
import { kindOf, toStatement } from './statement';
import { wrapClient } from './wrap-client';

/** How long a replica that has failed is left alone. */
const leftAloneMs = 1_000;
const maxPatienceMs = 500;

/** Reads from a replica, and from the primary whatever the replica cannot answer. */
export function readThrough(replica: Client, primary: Client): Client {
  return wrapClient(primary, {
    execute: async (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      // A replica server hands writes on: one whose outcome is unknown would be sent twice.
      if (kindOf(whole) !== 'read') return primary.execute(whole);
      try {
        return await replica.execute(whole);
      } catch {
        return primary.execute(whole);
      }
    },
    close: () => replica.close(),
  });
}

/**
 * A libSQL server that replicates another. It gets a part of the deadline, so that the primary can still be asked, and
 * is left alone for a while when it fails.
 *
 * @param onChange called when it is left alone, and when it answers again
 */
export function openReplicaServer(
  { url, authToken, timeoutMs }: RemoteSettings,
  onChange: (isAnswering: boolean) => void,
): Client {
  const client = openRemoteClient({ url, authToken, timeoutMs: Math.min(timeoutMs / 4, maxPatienceMs) });
  const breaker = circuitBreaker(handleAll, { halfOpenAfter: leftAloneMs, breaker: new ConsecutiveBreaker(3) });
  let wasAnswering = true;
  breaker.onStateChange((state) => {
    const isAnswering = state === CircuitState.Closed;
    if (isAnswering !== wasAnswering && state !== CircuitState.HalfOpen) onChange(isAnswering);
    if (state !== CircuitState.HalfOpen) wasAnswering = isAnswering;
  });
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) =>
      breaker.execute(() => client.execute(toStatement(statement, args))),
  });
}
