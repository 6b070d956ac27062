import { createSecretKey } from 'node:crypto';
import { JWTExpired } from 'jose/errors';
import { type JWTVerifyOptions, jwtVerify } from 'jose/jwt/verify';
import { importSPKI } from 'jose/key/import';
import { LRUCache } from 'lru-cache';
import * as v from 'valibot';
import type { AuthKey } from '../config';
import { AppError } from '../errors';
import { Subject } from '../fields';
import { signatureAlgorithm } from '../setting-forms';

/** Who sent a request, as the token says. */
export interface Caller {
  readonly id: string;
  readonly roles: readonly string[];
}

/**
 * @param onUnseen called before the signature of a token is checked that has never passed; it may throw to refuse that
 * @throws AppError `unauthenticated` or `auth-keys-unavailable`
 */
export type VerifyToken = (token: string, onUnseen?: () => void) => Promise<Caller>;

export interface TokenSettings {
  readonly key: Exclude<AuthKey, { kind: 'development' }>;
  readonly issuer: string | undefined;
  readonly audience: string | undefined;
  readonly rolesClaim: string;
}

const clockToleranceSeconds = 5;
const cachedTokens = 10_000;
/** How long a revoked key may go on working for a token already seen. */
const cacheTtlMs = 60_000;

const Roles = v.optional(
  v.union([
    v.array(v.string()),
    v.pipe(
      v.string(),
      v.transform((role) => [role]),
    ),
  ]),
  [],
);

/**
 * Checks bearer tokens against the configured key. A token that passed is remembered, for a minute and never past
 * its `exp`: a signature check costs more than everything else in a light request.
 *
 * @param clock tells whether a token has expired
 * @param machineClock tells how old copies are, of keys and of what has passed; another one where `clock` stands still
 */
export async function createTokenVerifier(
  settings: TokenSettings,
  clock: () => Date,
  machineClock: () => Date,
): Promise<VerifyToken> {
  const options: JWTVerifyOptions = {
    requiredClaims: ['exp', 'sub'],
    clockTolerance: clockToleranceSeconds,
    ...(settings.issuer === undefined ? {} : { issuer: settings.issuer }),
    ...(settings.audience === undefined ? {} : { audience: settings.audience }),
  };
  const verify = await createSignatureCheck(settings.key, machineClock);
  const seen = new LRUCache<string, { caller: Caller; seenAtMs: number; expiresAtMs: number }>({ max: cachedTokens });

  return async (token, onUnseen) => {
    const now = clock();
    const known = seen.get(token);
    if (known !== undefined && now.getTime() < known.expiresAtMs) {
      const ageMs = machineClock().getTime() - known.seenAtMs;
      // A clock that was set back must not lengthen the minute.
      if (ageMs >= 0 && ageMs < cacheTtlMs) return known.caller;
    }
    if (known === undefined) onUnseen?.();
    seen.delete(token);

    let payload: Awaited<ReturnType<typeof verify>>;
    try {
      payload = await verify(token, { ...options, currentDate: now });
    } catch (error) {
      if (error instanceof AppError) throw error;
      seen.delete(token);
      const isExpired = error instanceof JWTExpired;
      throw unauthenticated(isExpired ? 'The token has expired.' : 'The token is not valid.', error);
    }
    const subject = v.safeParse(Subject, payload.sub);
    const roles = v.safeParse(Roles, payload[settings.rolesClaim] ?? undefined);
    if (!subject.success) throw unauthenticated('The `sub` of the token is not text of 1 to 255 characters.');
    // JSON has numbers that are read as Infinity.
    if (!Number.isFinite(payload.exp)) throw unauthenticated('The `exp` of the token is not a time.');
    if (!roles.success) throw unauthenticated('The roles in the token are not text.');

    const caller = { id: subject.output, roles: roles.output };
    const expiresAtMs = ((payload.exp ?? 0) + clockToleranceSeconds) * 1000;
    seen.set(token, { caller, seenAtMs: machineClock().getTime(), expiresAtMs });
    return caller;
  };
}

export function unauthenticated(detail: string, cause?: unknown): AppError {
  return new AppError('unauthenticated', {
    detail,
    cause,
    headers: { 'www-authenticate': 'Bearer realm="personal-planning", error="invalid_token"' },
  });
}

/** The algorithms are pinned to the kind of key, so a public key is never taken for an HMAC secret. */
async function createSignatureCheck(key: TokenSettings['key'], machineClock: () => Date) {
  switch (key.kind) {
    case 'secret': {
      const secret = createSecretKey(key.secret, 'utf8');
      return async (token: string, options: JWTVerifyOptions) =>
        (await jwtVerify(token, secret, { ...options, algorithms: ['HS256'] })).payload;
    }
    case 'public-key': {
      const algorithm = signatureAlgorithm(key.pem);
      if (algorithm === undefined) throw new Error('The public key is of no supported kind');
      const publicKey = await importSPKI(key.pem, algorithm);
      return async (token: string, options: JWTVerifyOptions) =>
        (await jwtVerify(token, publicKey, { ...options, algorithms: [algorithm] })).payload;
    }
    case 'jwks': {
      const { createRemoteKeys } = await import('./remote-keys');
      const keys = createRemoteKeys(new URL(key.url), machineClock);
      return async (token: string, options: JWTVerifyOptions) =>
        (await jwtVerify(token, keys, { ...options, algorithms: ['EdDSA', 'Ed25519', 'ES256', 'RS256'] })).payload;
    }
  }
}
