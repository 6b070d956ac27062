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
import { createLocalJWKSet } from 'jose/jwks/local';
import { type JWTVerifyGetKey, type JWTVerifyOptions, jwtVerify } from 'jose/jwt/verify';
import * as v from 'valibot';
import { AppError, errorCode } from '../errors';

/** The algorithms that a token checked by a JWKS may have. */
export const keySetAlgorithms = ['EdDSA', 'Ed25519', 'ES256', 'RS256'] as const;

/** A set of a hundred RSA keys with certificates has about 300 kB. */
const maxBytes = 512 * 1024;
const minModulusBits = 2048;

const faultDetails = {
  unreachable: 'cannot be reached',
  timeout: 'does not send the whole set in time',
  tls: 'has a TLS certificate that is not accepted',
  redirect: 'redirects, which is not followed: set the final address',
  status: 'does not respond with 200',
  'too-large': `sends more than ${maxBytes / 1024} kB`,
  'not-json': 'does not send JSON',
  'not-a-key-set': 'sends JSON without an array `keys`',
  'no-keys': 'sends a set without keys',
  'no-usable-key': 'sends no usable key',
} as const;
type KeySetFault = keyof typeof faultDetails;

/** An unusable JWKS. The message contains no part of the response. */
export class KeySetError extends Error {
  override readonly name = 'KeySetError';
  /** One word for the log, such as `not-json` or `status-500`. */
  readonly reason: string;
  /** The code of a failed connection, or an empty text. */
  readonly code: string;
  readonly keys: readonly DescribedKey[];

  constructor(
    fault: KeySetFault,
    options: { status?: number; code?: string; cause?: unknown; keys?: readonly DescribedKey[] } = {},
  ) {
    const { status, code = '', cause, keys = [] } = options;
    const suffix = status === undefined ? code : `status ${status}`;
    super(`${faultDetails[fault]}${suffix === '' ? '' : ` (${suffix})`}`, { cause });
    this.reason = status === undefined ? fault : `${fault}-${status}`;
    this.code = code;
    this.keys = keys;
  }
}

/** The description of a key for the operator. */
export interface DescribedKey {
  readonly kid: string | undefined;
  /** The algorithms that the key can be used with; empty with a `fault`. */
  readonly algorithms: readonly string[];
  /** Why the key cannot be used. */
  readonly fault: string | undefined;
}

export interface KeySet {
  /** Finds the key of a token among the usable ones. */
  readonly find: ReturnType<typeof createLocalJWKSet>;
  readonly keys: readonly DescribedKey[];
}

const Text = v.exactOptional(v.string());
/** The public members, and `d` and `k`, which only a secret key has. */
const Jwk = v.object({
  kty: v.string(),
  kid: Text,
  alg: Text,
  use: Text,
  key_ops: v.exactOptional(v.array(v.string())),
  ext: v.exactOptional(v.boolean()),
  crv: Text,
  n: Text,
  e: Text,
  x: Text,
  y: Text,
  d: v.optional(v.unknown()),
  k: v.optional(v.unknown()),
});
const JsonText = v.pipe(v.string(), v.parseJson());
/** Only an RSA key has a modulus. */
const KeyAlgorithm = v.object({ modulusLength: v.optional(v.number(), Number.POSITIVE_INFINITY) });
const Members = v.object({ keys: v.array(v.unknown()) });

/**
 * Fetches a JWKS and checks each key. It follows no redirect, and reads a bounded response within a deadline.
 *
 * @throws KeySetError unless at least one key can be used
 */
export async function fetchKeySet(url: URL, timeoutMs = 3_000): Promise<KeySet> {
  const json = v.safeParse(JsonText, await fetchText(url, timeoutMs));
  if (!json.success) throw new KeySetError('not-json');
  const members = v.safeParse(Members, json.output);
  if (!members.success) throw new KeySetError('not-a-key-set');
  if (members.output.keys.length === 0) throw new KeySetError('no-keys');
  const examined = await Promise.all(members.output.keys.map(examine));
  const keys = examined.map(({ described }) => described);
  const usable = examined.flatMap(({ jwk }) => jwk ?? []);
  if (usable.length === 0) throw new KeySetError('no-usable-key', { keys });
  return { find: createLocalJWKSet({ keys: usable }), keys };
}

type PublicJwk = Omit<v.InferOutput<typeof Jwk>, 'd' | 'k'>;

async function examine(member: unknown): Promise<{ jwk?: PublicJwk; described: DescribedKey }> {
  const parsed = v.safeParse(Jwk, member);
  const kidOf = v.safeParse(v.object({ kid: v.string() }), member);
  const kid = kidOf.success ? kidOf.output.kid : undefined;
  const unusable = (fault: string) => ({ described: { kid, algorithms: [], fault } });
  if (!parsed.success) return unusable('it is not a JWK');
  const { d, k, ...jwk } = parsed.output;
  if (k !== undefined || jwk.kty === 'oct') return unusable('it is a shared secret, which a JWKS must not publish');
  if (d !== undefined) return unusable('it contains its private key: stop signing with it');
  if (jwk.use !== undefined && jwk.use !== 'sig') return unusable('its use is not sig');
  if (jwk.key_ops !== undefined && !jwk.key_ops.includes('verify')) return unusable('its key_ops do not have verify');
  const named = keySetAlgorithms.filter((alg) => jwk.alg === undefined || jwk.alg === alg);
  if (named.length === 0) return unusable('its alg is not one of EdDSA, ES256 and RS256');
  const find = createLocalJWKSet({ keys: [jwk] });
  const algorithms: string[] = [];
  let isShort = false;
  for (const alg of named) {
    const key = await find({ alg }).catch(() => undefined);
    if (key === undefined) continue;
    const { modulusLength } = v.parse(KeyAlgorithm, key.algorithm);
    if (modulusLength < minModulusBits) isShort = true;
    else algorithms.push(alg);
  }
  if (isShort) return unusable(`it is an RSA key of fewer than ${minModulusBits} bits`);
  if (algorithms.length === 0) return unusable('its kty, crv and alg do not fit together, or it cannot be read');
  return { jwk, described: { kid, algorithms, fault: undefined } };
}

async function fetchText(url: URL, timeoutMs: number): Promise<string> {
  try {
    const response = await fetch(url, {
      headers: { accept: 'application/json, application/jwk-set+json' },
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMs),
    });
    const { status } = response;
    if (status !== 200) {
      await response.body?.cancel();
      throw new KeySetError(status >= 300 && status < 400 ? 'redirect' : 'status', { status });
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new KeySetError('too-large');
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
  } catch (error) {
    throw error instanceof KeySetError ? error : connectionFault(error);
  }
}

function connectionFault(error: unknown): KeySetError {
  if (error instanceof Error && error.name === 'TimeoutError') return new KeySetError('timeout', { cause: error });
  const code = errorCode(error, '');
  const isTls = /CERT|TLS|SSL|ISSUER|SIGNATURE/.test(code);
  return new KeySetError(isTls ? 'tls' : 'unreachable', { code, cause: error });
}

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
