import { createSecretKey } from 'node:crypto';
import { errors, jwtVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import { Problem, unauthenticated } from './problem.mjs';
import { isStorable } from './storable.mjs';

const clockToleranceSeconds = 5;
const cachedTokens = 10_000;
const cacheTtlMs = 60_000;

/**
 * Returns the subject of an `Authorization` header, or throws a Problem. A verified token is cached for a minute, and never
 * after its `exp`.
 *
 * @param {string} secret
 */
export function createTokenVerifier(secret) {
  const key = createSecretKey(secret, 'utf8');
  const options = { algorithms: ['HS256'], requiredClaims: ['exp', 'sub'], clockTolerance: clockToleranceSeconds };
  /** @type {LRUCache<string, { userId: string, goodUntilMs: number }>} */
  const seen = new LRUCache({ max: cachedTokens });

  /** @param {string | undefined} header */
  return async (header) => {
    const token = bearerToken(header);
    const nowMs = Date.now();
    const known = seen.get(token);
    if (known !== undefined && nowMs < known.goodUntilMs) return known.userId;
    seen.delete(token);

    const { payload } = await jwtVerify(token, key, options).catch((error) => {
      const isExpired = error instanceof errors.JWTExpired;
      throw unauthenticated(isExpired ? 'The token has expired.' : 'The token is not valid.', error);
    });
    const { sub: userId, exp = 0, roles } = payload;
    if (!isSubject(userId)) throw unauthenticated('The `sub` of the token is not text of 1 to 255 characters.');
    if (!areRoles(roles)) throw unauthenticated('The roles in the token are not text.');
    const expiresAtMs = (exp + clockToleranceSeconds) * 1000;
    seen.set(token, { userId, goodUntilMs: Math.min(expiresAtMs, nowMs + cacheTtlMs) });
    return userId;
  };
}

/** @param {string | undefined} header */
function bearerToken(header) {
  if (header === undefined) {
    throw new Problem('unauthenticated', {
      detail: 'The request has no Authorization header.',
      headers: { 'www-authenticate': 'Bearer realm="personal-planning"' },
    });
  }
  const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
  if (token === undefined) throw unauthenticated('The Authorization header is not `Bearer` and one token.');
  return token;
}

/**
 * @param {unknown} subject
 * @returns {subject is string}
 */
function isSubject(subject) {
  return typeof subject === 'string' && subject !== '' && subject.length <= 255 && isStorable(subject);
}

/** @param {unknown} roles */
function areRoles(roles) {
  return [roles ?? []].flat().every((role) => typeof role === 'string');
}
