import { createLocalJWKSet } from 'jose/jwks/local';
import * as v from 'valibot';

/** The algorithms that a token checked by a JWKS may have. */
export const keySetAlgorithms = ['EdDSA', 'Ed25519', 'ES256', 'RS256'] as const;

const timeoutMs = 3_000;
/** A set of a hundred RSA keys with certificates has about 300 kB. */
const maxBytes = 512 * 1024;
const minModulusBits = 2048;

const faultDetails = {
  unreachable: 'cannot be reached',
  timeout: `does not send the whole set within ${timeoutMs / 1000} s`,
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
const Members = v.object({ keys: v.array(v.unknown()) });

/**
 * Fetches a JWKS and checks each key. It follows no redirect, and reads a bounded response within a deadline.
 *
 * @throws KeySetError unless at least one key can be used
 */
export async function fetchKeySet(url: URL): Promise<KeySet> {
  const members = v.safeParse(Members, parseJson(await fetchText(url)));
  if (!members.success) throw new KeySetError('not-a-key-set');
  if (members.output.keys.length === 0) throw new KeySetError('no-keys');
  const examined = await Promise.all(members.output.keys.map(examine));
  const keys = examined.map(({ described }) => described);
  const usable = examined.flatMap(({ jwk, described }) => (described.fault === undefined && jwk ? [jwk] : []));
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
    const key = await find({ alg, ...(kid === undefined ? {} : { kid }) }).catch(() => undefined);
    if (key === undefined) continue;
    const { modulusLength } = v.parse(v.object({ modulusLength: v.optional(v.number()) }), key.algorithm);
    if (modulusLength !== undefined && modulusLength < minModulusBits) isShort = true;
    else algorithms.push(alg);
  }
  if (isShort) return unusable(`it is an RSA key of fewer than ${minModulusBits} bits`);
  if (algorithms.length === 0) return unusable('its kty, crv and alg do not fit together, or it cannot be read');
  return { jwk, described: { kid, algorithms, fault: undefined } };
}

async function fetchText(url: URL): Promise<string> {
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
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const isTls = /CERT|TLS|SSL|ISSUER|SIGNATURE/.test(code);
  return new KeySetError(isTls ? 'tls' : 'unreachable', { code, cause: error });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new KeySetError('not-json', { cause: error });
  }
}
