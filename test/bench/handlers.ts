/**
 * The work of the peers for a request, which is the code of the service: a peer differs by its framework, its log and its
 * usual database client. A peer does less than the service: no audit event, precondition, idempotency key or rate limit.
 */
import { readFileSync } from 'node:fs';
import * as v from 'valibot';
import { createTokenVerifier } from '../../src/auth/verifier';
import { AppError } from '../../src/errors';
import { LifeInsuranceAnswers, toLifeInsurancePatch } from '../../src/modules/answers/model';
import { findFieldErrors } from '../../src/shared/field-errors';
import { problemKinds } from '../../src/shared/problems';

const [databasePath = '', listsPath = ''] = process.argv.slice(2);
export const settings = { databasePath, bodyLimitBytes: 262_144, lockTimeoutMs: 5_000 } as const;

const verifyToken = await createTokenVerifier(
  {
    key: { kind: 'secret', secret: process.env.AUTH_SECRET ?? '' },
    issuer: undefined,
    audience: undefined,
    rolesClaim: 'roles',
  },
  () => new Date(),
  () => performance.now(),
);

/** Returns the user id in a token. */
export async function authenticate(authorization = ''): Promise<string> {
  const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  if (token === undefined) throw new AppError('unauthenticated');
  return (await verifyToken(token)).id;
}

/** Returns the merge patch of a request body as JSON. */
export function readPatch(body: unknown): string {
  const parsed = v.safeParse(LifeInsuranceAnswers, body, { abortPipeEarly: true });
  if (parsed.success) return JSON.stringify(toLifeInsurancePatch(parsed.output));
  throw new AppError('invalid-input', { errors: findFieldErrors(LifeInsuranceAnswers, parsed.issues, 'pointer') });
}

/** A record with parsed sections. */
export interface UserRow extends Readonly<Record<'version' | 'createdAt' | 'updatedAt', number>> {
  readonly id: string;
  readonly profile: unknown;
  readonly insurance: unknown;
  readonly ltcLifetimeCare: unknown;
  readonly purchase: unknown;
  readonly lifeInsurance: unknown;
  readonly lifetimeCare: unknown;
}

export function userResponse(row: UserRow | undefined) {
  if (row === undefined) throw new AppError('user-not-found');
  const { version, createdAt, updatedAt, ltcLifetimeCare, ...user } = row;
  const times = { createdAt: new Date(createdAt).toISOString(), updatedAt: new Date(updatedAt).toISOString() };
  return {
    headers: { etag: `"${createdAt}-${version}"`, 'cache-control': 'private, no-store' },
    body: { user: { ...user, ...times, ltc: { lifetimeCare: ltcLifetimeCare ?? undefined } } },
  };
}

export const lists = {
  bytes: readFileSync(listsPath),
  headers: { 'content-type': 'application/json;charset=utf-8', 'cache-control': 'private, max-age=300' },
};

export function problemResponse(error: unknown, instance: string, requestId: string) {
  const { slug, detail, errors, headers } = error instanceof AppError ? error : new AppError('internal-error');
  const { status, title, code } = problemKinds[slug];
  const body = {
    type: `/problems/${slug}`,
    title,
    status,
    detail,
    instance,
    code,
    http_code: status,
    requestId,
    errors,
  };
  return { status, headers: { ...headers, 'content-type': 'application/problem+json' }, body: JSON.stringify(body) };
}
