import { createSecretKey, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SignJWT } from 'jose/jwt/sign';
import { errorCode } from '../errors';

const secretName = 'development-auth-secret';

/** The secret that an earlier start left in `folder`; undefined if there is none. */
export function readDevelopmentSecret(folder = 'data'): string | undefined {
  const path = join(folder, secretName);
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}

/** Signs an HS256 token for `id` that expires `ttlSeconds` after `now`. */
export function signToken(options: {
  secret: string;
  issuer: string | undefined;
  audience: string | undefined;
  audienceClaim?: string;
  rolesClaim: string;
  id: string;
  roles: readonly string[];
  ttlSeconds: number;
  now: Date;
}): Promise<string> {
  const issuedAt = Math.floor(options.now.getTime() / 1000);
  const { audience, audienceClaim = 'aud' } = options;
  const claims = audience === undefined ? {} : { [audienceClaim]: audience };
  const jwt = new SignJWT({ ...claims, [options.rolesClaim]: options.roles })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(options.id)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + options.ttlSeconds);
  if (options.issuer !== undefined) jwt.setIssuer(options.issuer);
  return jwt.sign(createSecretKey(options.secret, 'utf8'));
}

const demoTokenTtlSeconds = 2 * 365 * 24 * 60 * 60;

/** The HS256 secret for development. The first call generates it, and later starts with this folder reuse it. */
export function developmentSecret(folder = 'data'): string {
  const existing = readDevelopmentSecret(folder);
  if (existing !== undefined) return existing;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const path = join(folder, secretName);
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, randomBytes(32).toString('base64url'), { mode: 0o600 });
  try {
    // A link never replaces a file, so two processes that start at the same time read the same secret.
    linkSync(draft, path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return readFileSync(path, 'utf8');
}

export interface DemoTokens {
  readonly 'demo-user': string;
  readonly 'demo-manager': string;
}

/** Signs the demo tokens and writes them to a file that only its owner can read. */
export async function writeDemoTokens(
  path: string,
  claims: Omit<Parameters<typeof signToken>[0], 'id' | 'roles' | 'ttlSeconds' | 'now'>,
  now: Date,
): Promise<DemoTokens> {
  const sign = (id: string, roles: readonly string[]) =>
    signToken({ ...claims, id, roles, ttlSeconds: demoTokenTtlSeconds, now });
  const tokens = {
    'demo-user': await sign('demo-user', []),
    'demo-manager': await sign('demo-manager', ['salesManager']),
  };
  writeFileSync(path, `${JSON.stringify(tokens, null, 2)}\n`, { mode: 0o600 });
  chmodSync(path, 0o600);
  return tokens;
}
