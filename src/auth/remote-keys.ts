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
/** The shortest interval between fetches for tokens without a matching key. */
const cooldownMs = 30_000;
const retryAfterFailureMs = 5_000;
const timeoutMs = 3_000;
/** Keys to try for a token without `kid`. Each costs a signature check, even for a forged token. */
const maxKeysTried = 8;

/**
 * Returns a check of tokens with the keys of a JWKS address. It decides when to fetch: jose alone would call a failing
 * address with every request and drop keys that it cannot refresh. A token without a `kid` is checked against each key of
 * its algorithm.
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
      // Without a `kid`, a signature that does not verify may mean a rotated key.
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
        // jose checks these after the signature.
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
