import { createSecretKey } from 'node:crypto';
import type { JWTPayload } from 'jose';
import {
  JOSEAlgNotAllowed,
  JOSEError,
  JWKSMultipleMatchingKeys,
  JWKSNoMatchingKey,
  JWSSignatureVerificationFailed,
  JWTClaimValidationFailed,
  JWTExpired,
} from 'jose/errors';
import { type JWTVerifyOptions, jwtVerify } from 'jose/jwt/verify';
import { importSPKI } from 'jose/key/import';
import { LRUCache } from 'lru-cache';
import * as v from 'valibot';
import type { AuthKey } from '../config/settings';
import { signatureAlgorithm } from '../config/validators';
import { AppError } from '../errors';
import { Subject } from '../shared/fields';
import type { KeysWatch, RemoteKeys } from './key-set';

const Members = v.record(v.string(), v.unknown());
const Texts = v.array(v.string());

/**
 * Returns the roles in a claim: an array of texts, or one text separated by spaces or commas. Any other shape has no roles.
 * Undefined if the token lacks the claim.
 *
 * @param path the claim's exact name, or the names of nested members with dots between, which may contain dots themselves
 */
export function rolesIn(payload: JWTPayload, path: string): readonly string[] | undefined {
  const value = memberAt(payload, path);
  if (value === undefined) return undefined;
  if (typeof value === 'string') return value.split(/[\s,]+/).filter((role) => role !== '');
  return v.is(Texts, value) ? value : [];
}

/** Reads own members only, so that no name leads to a prototype. */
function memberAt(value: unknown, path: string): unknown {
  if (!v.is(Members, value)) return undefined;
  if (Object.hasOwn(value, path)) return value[path];
  for (let dot = path.indexOf('.'); dot !== -1; dot = path.indexOf('.', dot + 1)) {
    const name = path.slice(0, dot);
    const found = Object.hasOwn(value, name) ? memberAt(value[name], path.slice(dot + 1)) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether a claim names an audience, as one text or in an array; undefined if the token lacks the claim. */
function namesAudience(payload: JWTPayload, claim: string, audience: string): boolean | undefined {
  const value = memberAt(payload, claim);
  if (value === undefined) return undefined;
  return Array.isArray(value) ? value.includes(audience) : value === audience;
}

/** The reasons to reject a token, with the `detail` of the response, which names the failed check and no value. */
export const tokenRefusals = {
  malformed: 'The token is not a signed JWT whose payload is a JSON object.',
  algorithm: 'The `alg` of the token is not one that this service accepts.',
  key: 'No key of the issuer has the `kid` and the `alg` of the token.',
  signature: 'The signature of the token does not verify with the key of this service.',
  expired: 'The token has expired.',
  'not-yet-valid': 'The token is not valid yet: its `nbf` is in the future.',
  'issuer-missing': 'The token has no `iss`.',
  issuer: 'The `iss` of the token is not the issuer that this service accepts.',
  'audience-missing': 'The token lacks the claim that names its audience, which is `aud` by default.',
  audience: 'The token is meant for another audience than this service.',
  'expiry-missing': 'The token has no `exp`.',
  expiry: 'The `exp` of the token is not a time.',
  'start-invalid': 'The `nbf` of the token is not a time.',
  'subject-missing': 'The token has no `sub`.',
  subject: 'The `sub` of the token is not text of 1 to 255 characters.',
} as const;
export type TokenRefusal = keyof typeof tokenRefusals;

const byClaim: Readonly<Record<string, Readonly<Record<string, TokenRefusal>>>> = {
  iss: { missing: 'issuer-missing', check_failed: 'issuer' },
  exp: { missing: 'expiry-missing', invalid: 'expiry' },
  nbf: { check_failed: 'not-yet-valid', invalid: 'start-invalid' },
  sub: { missing: 'subject-missing' },
};

/** Maps an error of jose to the failed check. */
function refusalBy(error: unknown): TokenRefusal {
  if (error instanceof JWTExpired) return 'expired';
  if (error instanceof JWTClaimValidationFailed) return byClaim[error.claim]?.[error.reason] ?? 'malformed';
  if (error instanceof JOSEAlgNotAllowed) return 'algorithm';
  if (error instanceof JWSSignatureVerificationFailed) return 'signature';
  if (error instanceof JWKSNoMatchingKey || error instanceof JWKSMultipleMatchingKeys) return 'key';
  // For a published key that it does not accept, such as a short one, jose throws no JOSEError.
  return error instanceof JOSEError ? 'malformed' : 'key';
}

/** The claims of a valid token. */
export interface AuthenticatedClient {
  readonly id: string;
  readonly roles: readonly string[];
}

/**
 * @param onUnseen runs before the signature check of a token that has never passed; it may throw to prevent the check
 * @throws AppError `unauthenticated` or `auth-keys-unavailable`
 */
export type VerifyToken = (token: string, onUnseen?: () => void) => Promise<AuthenticatedClient>;

export interface TokenVerifier extends VerifyToken {
  /** False while a JWKS gives no key to check tokens with. */
  hasKeys(): boolean;
  /**
   * Replaces the secret or the public key, or fetches the JWKS again, and clears the cache of verified tokens.
   *
   * @returns false if the JWKS cannot be fetched: the keys of the last fetch stay in use
   */
  reload(key: TokenSettings['key']): Promise<boolean>;
}

export interface TokenSettings {
  readonly key: Exclude<AuthKey, { kind: 'development' }>;
  readonly issuer: string | undefined;
  readonly audience: string | undefined;
  /** The claim that must name `audience`; `aud` without it. */
  readonly audienceClaim?: string;
  /** A claim's exact name, or the names of nested members with dots between. */
  readonly rolesClaim: string;
}

export interface TokenWatch extends KeysWatch {
  readonly onRefused?: (reason: TokenRefusal) => void;
  /** Called once if the first valid tokens all lack the claim for roles. */
  readonly onRolesMissing?: () => void;
}

/** Base64url without padding. Jose accepts padding, but a token must have one spelling. */
const signedJwt = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const clockToleranceSeconds = 5;
const cachedTokens = 10_000;
/** For this time, a revoked key still works for a cached token. */
const cacheTtlMs = 60_000;

interface KnownToken {
  readonly client: Promise<AuthenticatedClient>;
  readonly seenAtMs: number;
  readonly expiresAtMs: number;
}

/** Tokens without the claim for roles after which its name is probably wrong. */
const tokensWithoutRoles = 100;

/**
 * Verifies bearer tokens with the configured key. A verified token is cached for a minute, and never after its `exp`, because
 * a signature check costs more than the rest of a light request.
 *
 * @param clock decides whether a token has expired
 * @param monotonicMs decides how old a cached token or key set is
 */
export async function createTokenVerifier(
  settings: TokenSettings,
  clock: () => Date,
  monotonicMs: () => number,
  watch: TokenWatch = {},
): Promise<TokenVerifier> {
  const options: JWTVerifyOptions = {
    requiredClaims: ['exp', 'sub'],
    clockTolerance: clockToleranceSeconds,
    ...(settings.issuer === undefined ? {} : { issuer: settings.issuer }),
  };
  let check = await createSignatureCheck(settings.key, monotonicMs, watch);
  const refuse = (reason: TokenRefusal, cause?: unknown) => {
    watch.onRefused?.(reason);
    return unauthenticated(tokenRefusals[reason], cause, reason);
  };
  let leftWithoutRoles = tokensWithoutRoles;
  const countRoles = (roles: readonly string[] | undefined) => {
    leftWithoutRoles = roles === undefined ? leftWithoutRoles - 1 : Number.POSITIVE_INFINITY;
    if (leftWithoutRoles === 0) watch.onRolesMissing?.();
  };
  const createCache = () => new LRUCache<string, KnownToken>({ max: cachedTokens });
  let cache = createCache();

  const checkToken = async (token: string, known: KnownToken | undefined, onUnseen?: () => void) => {
    const now = clock();
    // A token that passes while the keys are reloaded is not added to the cache of the new keys.
    const seen = cache;
    if (known === undefined) onUnseen?.();
    if (!signedJwt.test(token)) throw refuse('malformed');

    let payload: JWTPayload;
    try {
      payload = await check.payloadOf(token, { ...options, currentDate: now });
    } catch (error) {
      if (error instanceof AppError) throw error;
      seen.delete(token);
      throw refuse(refusalBy(error), error);
    }
    if (settings.audience !== undefined) {
      const isOurs = namesAudience(payload, settings.audienceClaim ?? 'aud', settings.audience);
      if (isOurs !== true) throw refuse(isOurs === undefined ? 'audience-missing' : 'audience');
    }
    const subject = v.safeParse(Subject, payload.sub);
    if (!subject.success) throw refuse('subject');
    const { exp = Number.NaN } = payload;
    // JSON has numbers that are read as Infinity.
    if (!Number.isFinite(exp)) throw refuse('expiry');

    const roles = rolesIn(payload, settings.rolesClaim);
    if (known === undefined) countRoles(roles);
    const client = { id: subject.output, roles: roles ?? [] };
    const expiresAtMs = (exp + clockToleranceSeconds) * 1000;
    seen.set(token, { client: Promise.resolve(client), seenAtMs: monotonicMs(), expiresAtMs });
    return client;
  };
  const verify: VerifyToken = (token, onUnseen) => {
    const known = cache.get(token);
    const isFresh = known !== undefined && monotonicMs() - known.seenAtMs < cacheTtlMs;
    return isFresh && clock().getTime() < known.expiresAtMs ? known.client : checkToken(token, known, onUnseen);
  };
  return Object.assign(verify, {
    hasKeys: () => check.remote?.hasKeys() ?? true,
    async reload(key: TokenSettings['key']) {
      const isFetched = (await check.remote?.refresh()) ?? true;
      if (check.remote === undefined) check = await createSignatureCheck(key, monotonicMs, watch);
      cache = createCache();
      return isFetched;
    },
  });
}

/** The header follows RFC 6750. `detail` must be ASCII without quotes. */
export function unauthenticated(detail: string, cause?: unknown, reason?: TokenRefusal): AppError {
  const challenge = `Bearer realm="personal-planning", error="invalid_token", error_description="${detail}"`;
  return new AppError('unauthenticated', { detail, cause, reason, headers: { 'www-authenticate': challenge } });
}

interface SignatureCheck {
  readonly payloadOf: (token: string, options: JWTVerifyOptions) => Promise<JWTPayload>;
  /** The keys of a JWKS. */
  readonly remote?: RemoteKeys;
}

/** The algorithms are pinned to the kind of key, so a public key is never taken for an HMAC secret. */
async function createSignatureCheck(
  key: TokenSettings['key'],
  monotonicMs: () => number,
  watch: KeysWatch,
): Promise<SignatureCheck> {
  switch (key.kind) {
    case 'secret': {
      const secret = createSecretKey(key.secret, 'utf8');
      return {
        payloadOf: async (token, options) =>
          (await jwtVerify(token, secret, { ...options, algorithms: ['HS256'] })).payload,
      };
    }
    case 'public-key': {
      const algorithm = signatureAlgorithm(key.pem);
      if (algorithm === undefined) throw new Error('The public key is of no supported kind');
      const publicKey = await importSPKI(key.pem, algorithm);
      return {
        payloadOf: async (token, options) =>
          (await jwtVerify(token, publicKey, { ...options, algorithms: [algorithm] })).payload,
      };
    }
    case 'jwks': {
      const [{ createRemoteKeys }, { keySetAlgorithms }] = await Promise.all([
        import('./key-set'),
        import('./key-set'),
      ]);
      const remote = createRemoteKeys(new URL(key.url), monotonicMs, watch);
      return {
        payloadOf: async (token, options) =>
          (await remote(token, { ...options, algorithms: [...keySetAlgorithms] })).payload,
        remote,
      };
    }
  }
}
