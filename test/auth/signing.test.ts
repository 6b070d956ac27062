import { expect, test } from 'bun:test';
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeJwt } from 'jose';
import { developmentSecret, readDevelopmentSecret, signToken, writeDemoTokens } from '../../src/auth/signing';
import { temporaryFolder } from '../support/resources';

const now = new Date('2026-03-10T12:00:00.900Z');
const nowSeconds = Math.floor(now.getTime() / 1000);
const claims = { secret: 'a secret of the tests', issuer: 'issuer', audience: 'planning', rolesClaim: 'groups' };
const modeOf = (path: string) => statSync(path).mode & 0o777;

test('the development secret is generated once, in a file and a folder that only their owner can read', () => {
  const folder = join(temporaryFolder(), 'a/data');
  expect(readDevelopmentSecret(folder)).toBeUndefined();
  const secret = developmentSecret(folder);
  expect(Buffer.from(secret, 'base64url').byteLength).toBeGreaterThanOrEqual(32);
  expect([developmentSecret(folder), readDevelopmentSecret(folder)]).toEqual([secret, secret]);
  expect(developmentSecret(temporaryFolder())).not.toBe(secret);
  const files = readdirSync(folder);
  expect(files.map((name) => modeOf(join(folder, name)))).toEqual([0o600]);
  expect(modeOf(folder)).toBe(0o700);
});

test('a signed token has the claims of the settings and lives for the given time', async () => {
  const subject = { id: 'ada', roles: ['salesManager'], ttlSeconds: 60, now };
  const times = { sub: 'ada', iat: nowSeconds, exp: nowSeconds + 60 };
  expect(decodeJwt(await signToken({ ...claims, ...subject }))).toEqual({
    ...{ ...times, iss: 'issuer', aud: 'planning', groups: ['salesManager'] },
  });
  const anyone = { ...claims, issuer: undefined, audience: undefined };
  expect(decodeJwt(await signToken({ ...anyone, ...subject }))).toEqual({ ...times, groups: ['salesManager'] });
  const ofClient = { ...claims, audienceClaim: 'client_id' };
  expect(decodeJwt(await signToken({ ...ofClient, ...subject }))).toMatchObject({ client_id: 'planning' });
});

test('demo tokens are valid for two years, in a file that only its owner can read, also over one that others can read', async () => {
  const path = join(temporaryFolder(), 'tokens.json');
  writeFileSync(path, 'old');
  chmodSync(path, 0o644);
  const tokens = await writeDemoTokens(path, claims, now);
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual(tokens);
  expect(modeOf(path)).toBe(0o600);
  const { exp = 0, sub, groups } = decodeJwt(tokens['demo-manager']);
  expect({ sub, groups, days: (exp - nowSeconds) / 86_400 }).toEqual({
    ...{ sub: 'demo-manager', groups: ['salesManager'], days: 730 },
  });
  expect(decodeJwt(tokens['demo-user'])).toMatchObject({ sub: 'demo-user', groups: [] });
});
