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
import * as v from 'valibot';

const Members = v.record(v.string(), v.unknown());
const Texts = v.array(v.string());

/**
 * Returns the roles in a claim: an array of texts, or one text separated by spaces or commas. Any other shape has no roles.
 * Undefined if the token lacks the claim.
 *
 * @param path the claim's exact name, or the names of nested members with dots between, which may hold dots themselves
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
export function namesAudience(payload: JWTPayload, claim: string, audience: string): boolean | undefined {
  const value = memberAt(payload, claim);
  if (value === undefined) return undefined;
  return Array.isArray(value) ? value.includes(audience) : value === audience;
}

/** Reasons to refuse a token, with the text for the caller, which names the failed check and no value. */
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
export function refusalBy(error: unknown): TokenRefusal {
  if (error instanceof JWTExpired) return 'expired';
  if (error instanceof JWTClaimValidationFailed) return byClaim[error.claim]?.[error.reason] ?? 'malformed';
  if (error instanceof JOSEAlgNotAllowed) return 'algorithm';
  if (error instanceof JWSSignatureVerificationFailed) return 'signature';
  if (error instanceof JWKSNoMatchingKey || error instanceof JWKSMultipleMatchingKeys) return 'key';
  // For a published key that it does not accept, such as a short one, jose throws no JOSEError.
  return error instanceof JOSEError ? 'malformed' : 'key';
}
