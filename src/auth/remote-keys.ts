import type { JWTVerifyResult } from 'jose';
import { decodeProtectedHeader } from 'jose/decode/protected_header';
import {
  JWKSMultipleMatchingKeys,
  JWKSNoMatchingKey,
  JWSSignatureVerificationFailed,
  JWTClaimValidationFailed,
  JWTExpired,
  JWTInvalid,
} from 'jose/errors';
import { createRemoteJWKSet } from 'jose/jwks/remote';
import { type JWTVerifyGetKey, type JWTVerifyOptions, jwtVerify } from 'jose/jwt/verify';
import { AppError } from '../errors';

const refreshAfterMs = 10 * 60_000;
/** Keys that could not be refreshed go on being used this long, so that a short outage signs nobody out. */
const staleAfterMs = 60 * 60_000;
/** A token that fits no key fetches the keys again at most this often. */
const cooldownMs = 30_000;
const retryAfterFailureMs = 5_000;
const timeoutMs = 3_000;
/** Of the keys that a token without `kid` may be signed by. Each costs a signature check, also for a forged token. */
const maxKeysTried = 8;

/**
 * Returns a check of tokens by the keys of a JWKS address. When to fetch is decided here: jose alone asks a failing
 * address again with every request, and drops the keys that it cannot refresh. A token without a `kid` may be signed by
 * each key of its algorithm.
 *
 * @throws AppError `auth-keys-unavailable` while there are no keys to check with
 */
export function createRemoteKeys(
  url: URL,
  clock: () => Date,
): (token: string, options: JWTVerifyOptions) => Promise<JWTVerifyResult> {
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
  const freshKeys: JWTVerifyGetKey = async (header, input) => {
    if (ageMs() >= staleAfterMs) {
      if (!(await refresh())) throw unavailable();
    } else if (ageMs() >= refreshAfterMs) {
      // Nobody waits for keys while those in memory are good.
      void refresh();
    }
    return keys(header, input);
  };

  return async (token, options) => {
    try {
      return await verifyByAnyOf(freshKeys, token, options);
    } catch (error) {
      const isKeyUnknown = error instanceof JWKSNoMatchingKey;
      // Without a `kid`, a rotated key shows by a signature that does not verify.
      const mayBeRotated = isKeyUnknown || (error instanceof JWSSignatureVerificationFailed && !hasKeyId(token));
      if (!mayBeRotated || ageMs() < cooldownMs) throw error;
      if (await refresh()) return verifyByAnyOf(keys, token, options);
      throw isKeyUnknown ? unavailable() : error;
    }
  };
}

async function verifyByAnyOf(keys: JWTVerifyGetKey, token: string, options: JWTVerifyOptions) {
  try {
    return await jwtVerify(token, keys, options);
  } catch (error) {
    if (!(error instanceof JWKSMultipleMatchingKeys)) throw error;
    let lastFailure: unknown = error;
    let tried = 0;
    for await (const key of error) {
      try {
        return await jwtVerify(token, key, options);
      } catch (failure) {
        // These come after a signature that verifies.
        const isOfClaims = [JWTClaimValidationFailed, JWTExpired, JWTInvalid].some((kind) => failure instanceof kind);
        tried += 1;
        if (isOfClaims || tried === maxKeysTried) throw failure;
        lastFailure = failure;
      }
    }
    throw lastFailure;
  }
}

function hasKeyId(token: string): boolean {
  return decodeProtectedHeader(token).kid !== undefined;
}
