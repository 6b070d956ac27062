import { JWKSNoMatchingKey } from 'jose/errors';
import { createRemoteJWKSet } from 'jose/jwks/remote';
import type { JWTVerifyGetKey } from 'jose/jwt/verify';
import { AppError } from '../errors';

const refreshAfterMs = 10 * 60_000;
/** Keys that could not be refreshed go on being used this long, so that a short outage signs nobody out. */
const staleAfterMs = 60 * 60_000;
/** An unknown `kid` fetches the keys anew at most this often. */
const cooldownMs = 30_000;
const retryAfterFailureMs = 5_000;
const timeoutMs = 3_000;

/**
 * The keys of a JWKS address. When to fetch is decided here: jose alone asks a failing address again with every
 * request, and drops the keys that it cannot refresh.
 *
 * @throws AppError `auth-keys-unavailable` while there are no keys to check with
 */
export function createRemoteKeys(url: URL, clock: () => Date): JWTVerifyGetKey {
  const keys = createRemoteJWKSet(url, {
    cacheMaxAge: Number.POSITIVE_INFINITY,
    cooldownDuration: Number.POSITIVE_INFINITY,
    timeoutDuration: timeoutMs,
  });
  let loadedAtMs = Number.NEGATIVE_INFINITY;
  let failedAtMs = Number.NEGATIVE_INFINITY;
  let failure: unknown;

  /** What is younger than now was loaded before the clock was set back, nobody knows when. */
  const sinceMs = (thenMs: number) => Math.abs(clock().getTime() - thenMs);
  const ageMs = () => sinceMs(loadedAtMs);
  const refresh = async (): Promise<boolean> => {
    if (sinceMs(failedAtMs) < retryAfterFailureMs) return false;
    try {
      await keys.reload();
      loadedAtMs = clock().getTime();
      return true;
    } catch (error) {
      failedAtMs = clock().getTime();
      failure = error;
      return false;
    }
  };
  const unavailable = () => new AppError('auth-keys-unavailable', { cause: failure });

  return async (header, token) => {
    if (ageMs() >= staleAfterMs) {
      if (!(await refresh())) throw unavailable();
    } else if (ageMs() >= refreshAfterMs) {
      // Nobody waits for keys while those in memory are good.
      void refresh();
    }
    try {
      return await keys(header, token);
    } catch (error) {
      if (!(error instanceof JWKSNoMatchingKey) || ageMs() < cooldownMs) throw error;
      if (!(await refresh())) throw unavailable();
      return keys(header, token);
    }
  };
}
