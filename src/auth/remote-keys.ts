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
import { type JWTVerifyGetKey, type JWTVerifyOptions, jwtVerify } from 'jose/jwt/verify';
import { AppError } from '../errors';
import { fetchKeySet, type KeySet, KeySetError } from './key-set';

const refreshAfterMs = 10 * 60_000;
/** Keys that cannot be refreshed stay in use for this time, so that a short outage signs no user out. */
const staleAfterMs = 60 * 60_000;
/** The shortest interval between fetches for tokens without a matching key. */
const cooldownMs = 30_000;
/** The pause after a failed fetch doubles from the first to the second. Without keys it stays the first. */
const pauseMs = { first: 5_000, longest: 60_000 };
const checkedEveryMs = 1_000;
/** Keys to try for a token without `kid`. Each costs a signature check, even for a forged token. */
const maxKeysTried = 8;

export interface RemoteKeys {
  /** @throws AppError `auth-keys-unavailable` while there are no keys to check with */
  (token: string, options: JWTVerifyOptions): Promise<JWTVerifyResult>;
  /** Whether there are keys that are not stale. */
  hasKeys(): boolean;
  /** Fetches the keys now; false after a failure, which leaves the keys as they are. */
  refresh(): Promise<boolean>;
}

export interface KeysWatch {
  readonly onKeysFetched?: () => void;
  /** @param hasKeys whether tokens are checked with the keys of an earlier fetch */
  readonly onKeysFailed?: (failure: KeySetError, hasKeys: boolean) => void;
}

/**
 * Checks tokens with the keys of a JWKS address. The set is fetched at once, every ten minutes, and for a token without a
 * matching key. A set without a usable key counts as a failed fetch: the keys in memory stay in use for an hour. A token
 * without a `kid` is checked against each key of its algorithm.
 */
export function createRemoteKeys(
  url: URL,
  monotonicMs: () => number,
  { onKeysFetched, onKeysFailed }: KeysWatch = {},
): RemoteKeys {
  let keySet: KeySet | undefined;
  let loadedAtMs = Number.NEGATIVE_INFINITY;
  let failedAtMs = Number.NEGATIVE_INFINITY;
  let failures = 0;
  let failure: KeySetError | undefined;
  let fetching: Promise<boolean> | undefined;

  const ageMs = () => monotonicMs() - loadedAtMs;
  const hasKeys = () => ageMs() < staleAfterMs;
  const isPaused = () => {
    const doubled = Math.min(pauseMs.first * 2 ** (failures - 1), pauseMs.longest);
    return monotonicMs() - failedAtMs < (hasKeys() ? doubled : pauseMs.first);
  };
  const load = async (): Promise<boolean> => {
    try {
      keySet = await fetchKeySet(url);
      loadedAtMs = monotonicMs();
      failures = 0;
      onKeysFetched?.();
      return true;
    } catch (error) {
      failure = error instanceof KeySetError ? error : new KeySetError('unreachable', { cause: error });
      // Instances that failed together do not try again together.
      failedAtMs = monotonicMs() - Math.random() * 0.2 * pauseMs.first;
      failures += 1;
      onKeysFailed?.(failure, hasKeys());
      return false;
    } finally {
      fetching = undefined;
    }
  };
  const refresh = () => {
    fetching ??= load();
    return fetching;
  };
  const refreshUnlessPaused = async () => fetching ?? (!isPaused() && (await refresh()));
  const unavailable = () => new AppError('auth-keys-unavailable', { cause: failure });
  const freshKeys: JWTVerifyGetKey = async (header, input) => {
    if (!hasKeys() && !(await refreshUnlessPaused())) throw unavailable();
    if (keySet === undefined) throw unavailable();
    return keySet.find(header, input);
  };
  const verify = async (token: string, options: JWTVerifyOptions): Promise<JWTVerifyResult> => {
    refreshIfDue();
    try {
      return await verifyByAnyOf(freshKeys, token, options);
    } catch (error) {
      const isKeyUnknown = error instanceof JWKSNoMatchingKey;
      // Without a `kid`, a signature that does not verify may mean a rotated key.
      const mayBeRotated = isKeyUnknown || (error instanceof JWSSignatureVerificationFailed && !hasKeyId(token));
      if (!mayBeRotated || ageMs() < cooldownMs) throw error;
      if (await refreshUnlessPaused()) return verifyByAnyOf(freshKeys, token, options);
      throw isKeyUnknown ? unavailable() : error;
    }
  };
  const refreshIfDue = () => {
    if (ageMs() >= refreshAfterMs) void refreshUnlessPaused();
  };
  refreshIfDue();
  setInterval(refreshIfDue, checkedEveryMs).unref();
  return Object.assign(verify, { hasKeys, refresh });
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
