import { type ClientError, isRetryStatus } from './errors';

const firstWaitMs = 250;
const longestWaitMs = 8000;

/** Of a save with `If-Match`, whose repeat gets 412 if the first did arrive, only these are known to have done nothing. */
const nothingDone: readonly string[] = ['rate-limited', 'request-timeout', 'auth-keys-unavailable'];

/**
 * How long to wait before a call is repeated; undefined where it must not be. Everything else that the service takes may
 * be repeated: a read, a save, which sets the same answers again, and an application, which is never started twice.
 *
 * @param attempt which one has just failed, from 1
 */
export function waitBeforeRepeat(
  error: ClientError,
  { attempt, hasIfMatch }: { readonly attempt: number; readonly hasIfMatch: boolean },
): number | undefined {
  if (hasIfMatch ? !nothingDone.includes(error.slug) : !isPassing(error)) return undefined;
  const askedMs = 'retryAfterSeconds' in error ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
  const ceilingMs = Math.min(longestWaitMs, firstWaitMs * 2 ** (attempt - 1));
  // By chance, so that many clients do not come back at one instant.
  return askedMs + ceilingMs * (askedMs === 0 ? Math.random() : Math.random() / 4);
}

/** Whether the same call may well succeed a little later. */
function isPassing(error: ClientError): boolean {
  if (error.slug === 'network-failure') return true;
  return 'status' in error && isRetryStatus(error.status);
}
