import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync } from 'node:crypto';
import { SignJWT } from 'jose';
import {
  createTokenVerifier,
  rolesIn,
  type TokenRefusal,
  type TokenSettings,
  tokenRefusals,
} from '../../src/auth/verifier';
import { createLog } from '../../src/log';
import { watchTokens } from '../../src/start/services';
import { createTestApp, testSecret } from '../support/app';
import { createCommandLine } from '../support/command';

const now = new Date('2026-03-10T12:00:00.000Z');
const nowSeconds = now.getTime() / 1000;
const glance = '/v2/private/user/salesManager/monthly-glance?month=2026-02';
const lists = '/v2/private/healthAndCare/';
const person = { sub: '8f2b-ada', iat: nowSeconds - 10, exp: nowSeconds + 300 };
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });

/** An app that accepts tokens of the test secret, with the refusals of its verifier. */
async function appWith(settings: Partial<TokenSettings>) {
  const refused: TokenRefusal[] = [];
  const whole = { issuer: undefined, audience: undefined, rolesClaim: 'roles', ...settings };
  const verifyToken = await createTokenVerifier(
    { key: { kind: 'secret', secret: testSecret }, ...whole },
    () => now,
    () => now.getTime(),
    { onRefused: (reason) => refused.push(reason) },
  );
  return { ...(await createTestApp({ verifyToken })), refused };
}

const sign = (payload: Record<string, unknown>, header: { alg: string; kid?: string } = { alg: 'HS256' }) =>
  new SignJWT(payload)
    .setProtectedHeader(header)
    .sign(header.alg === 'HS256' ? new TextEncoder().encode(testSecret) : rsa.privateKey);
const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });

/** Tokens in the form of each issuer, with the settings in the documentation. */
const issuers: [string, Partial<TokenSettings>, Record<string, unknown>][] = [
  [
    'Keycloak, role of the realm',
    { issuer: 'https://id.example/realms/main', audience: 'planning', rolesClaim: 'realm_access.roles' },
    {
      ...person,
      iss: 'https://id.example/realms/main',
      aud: ['planning', 'account'],
      typ: 'Bearer',
      azp: 'web',
      realm_access: { roles: ['offline_access', 'salesManager'] },
      scope: 'openid profile',
    },
  ],
  [
    'Keycloak, role of a client whose id has dots',
    { audience: 'planning', rolesClaim: 'resource_access.planning.example.com.roles' },
    { ...person, aud: 'planning', resource_access: { 'planning.example.com': { roles: ['salesManager'] } } },
  ],
  [
    'Auth0, a claim that is a URL',
    {
      issuer: 'https://tenant.example/',
      audience: 'https://api.example',
      rolesClaim: 'https://planning.example/roles',
    },
    {
      ...person,
      sub: 'auth0|65f0',
      iss: 'https://tenant.example/',
      aud: ['https://api.example', 'https://tenant.example/userinfo'],
      'https://planning.example/roles': ['salesManager'],
    },
  ],
  [
    'AWS Cognito, an access token',
    { audience: '7lhlkkfbfb4q5kpp90urffao', audienceClaim: 'client_id', rolesClaim: 'cognito:groups' },
    {
      ...person,
      token_use: 'access',
      client_id: '7lhlkkfbfb4q5kpp90urffao',
      'cognito:groups': ['salesManager'],
      scope: 'openid',
    },
  ],
  [
    'Microsoft Entra, version 2',
    { issuer: 'https://login.example/11111111/v2.0', audience: 'c0ffee00', rolesClaim: 'roles' },
    { ...person, iss: 'https://login.example/11111111/v2.0', aud: 'c0ffee00', ver: '2.0', roles: ['salesManager'] },
  ],
  [
    'Zitadel, a claim that an action sets',
    { audience: '2345@planning', rolesClaim: 'planning_roles' },
    {
      ...person,
      aud: ['2345@planning', '2346'],
      planning_roles: ['salesManager'],
      'urn:zitadel:iam:org:project:roles': { salesManager: { '1': 'example.com' } },
    },
  ],
  ['RFC 8693, scope', { rolesClaim: 'scope' }, { ...person, scope: 'openid salesManager' }],
];

describe('C3 roles of each issuer', () => {
  test.each(issuers)('C3 %s grants the monthly glance', async (_, settings, payload) => {
    const app = await appWith(settings);
    // The role is accepted; only the team is missing.
    expect((await app.call('GET', glance, bearer(await sign(payload)))).text).not.toContain('does not have the role');
    const without = { ...payload, scope: 'openid' };
    const { rolesClaim = '' } = settings;
    const name = rolesClaim in payload ? rolesClaim : (rolesClaim.split('.')[0] ?? '');
    const plain = await sign(name === 'scope' ? without : { ...without, [name]: undefined });
    const response = await app.call('GET', glance, bearer(plain));
    expect(response).toMatchObject({ status: 403 });
    expect(response.text).toContain('does not have the role');
    expect((await app.call('GET', lists, bearer(plain))).status).toBe(200);
  });
});

describe('C3 the shape of a claim', () => {
  test.each<[string, claim: string, members: string, roles: string[]]>([
    ['one text', 'roles', '"roles":"a"', ['a']],
    ['a text with spaces', 'roles', '"roles":" a  b "', ['a', 'b']],
    ['a text with commas', 'roles', '"roles":"a, b,c"', ['a', 'b', 'c']],
    ['an array', 'roles', '"roles":["a","b c"]', ['a', 'b c']],
    ['an empty text', 'roles', '"roles":""', []],
    ['an object', 'roles', '"roles":{"salesManager":true}', []],
    ['a number', 'roles', '"roles":5', []],
    ['true', 'roles', '"roles":true', []],
    ['null', 'roles', '"roles":null', []],
    ['an array with another shape in it', 'roles', '"roles":["a",5]', []],
    ['arrays in an array', 'roles', '"roles":[["a"]]', []],
    ['the exact key before the path', 'a.b', '"a":{"b":"path"},"a.b":"exact"', ['exact']],
    ['a path that ends early', 'a.b.c', '"a":{"b":"x"}', []],
    ['a path through an array', 'a.b', '"a":[{"b":"x"}]', []],
    ['a path with dots in two members', 'a.b.c.d', '"a.b":{"c.d":["x"]}', ['x']],
    ['a path after one that ends early', 'a.b.c', '"a":{"x":1},"a.b":{"c":"x"}', ['x']],
    ['constructor', 'constructor', '"x":1', []],
    ['constructor.name', 'constructor.name', '"x":1', []],
    ['a member of a prototype', 'a.toString.name', '"a":{}', []],
    ['__proto__', '__proto__', '"x":1', []],
    ['a role below __proto__', 'roles', '"__proto__":{"roles":["salesManager"]}', []],
    ['a path below __proto__', '__proto__.constructor.name', '"x":1', []],
    ['the length of an array', 'roles.length', '"roles":["a"]', []],
    ['an empty path', '.', '"":{"":"x"}', ['x']],
  ])('C3 gives the expected roles for %s', async (_, rolesClaim, members, roles) => {
    const settings = { issuer: undefined, audience: undefined, rolesClaim };
    const verify = await createTokenVerifier(
      { key: { kind: 'secret', secret: testSecret }, ...settings },
      () => now,
      () => now.getTime(),
    );
    const payload = `{"sub":"ada","exp":${nowSeconds + 60},${members}}`;
    const content = [`{"alg":"HS256"}`, payload].map((part) => Buffer.from(part).toString('base64url')).join('.');
    const signature = new Bun.CryptoHasher('sha256', testSecret).update(content).digest('base64url');
    expect(await verify(`${content}.${signature}`)).toEqual({ id: 'ada', roles });
  });

  test.each(['constructor', 'toString', '__proto__', 'a.constructor', 'a.__proto__.constructor'])(
    'C3 a token has no claim %s of a prototype',
    (path) => {
      expect(rolesIn({ a: {} }, path)).toBeUndefined();
    },
  );

  test.each([
    ['100 tokens lack it', 100, undefined, 1],
    ['99 tokens lack it', 99, undefined, 0],
    ['one of 300 tokens has it', 300, 50, 0],
    ['300 tokens lack it', 300, undefined, 1],
    ['60 tokens lack it, sent twice', 60, undefined, 0],
  ])('C3 the log warns once that tokens lack the claim: %s', async (_, count, withClaimAt, warnings) => {
    const lines: string[] = [];
    const log = createLog('info', { write: (line) => lines.push(line) });
    const settings = { issuer: undefined, audience: undefined, rolesClaim: 'realm_access.roles' };
    let passedMs = 0;
    const verify = await createTokenVerifier(
      { key: { kind: 'secret', secret: testSecret }, ...settings },
      () => now,
      () => now.getTime() + passedMs,
      watchTokens(log),
    );
    const tokens = await Promise.all(
      Array.from({ length: count }, (_, index) =>
        sign({ ...person, sub: `u-${index}`, ...(index === withClaimAt && { realm_access: { roles: [] } }) }),
      ),
    );
    for (const token of tokens) await verify(token);
    passedMs = 61_000;
    for (const token of tokens) await verify(token);
    expect(lines.filter((line) => line.includes('AUTH_ROLES_CLAIM'))).toHaveLength(warnings);
  });
});

const settings = { issuer: 'issuer', audience: 'planning' };
const good = { ...person, iss: 'issuer', aud: 'planning' };
const without = (claim: keyof typeof good) => ({ ...good, [claim]: undefined });
const secretValue = 'value-4711';

describe('C4 a refused token', () => {
  test.each<[TokenRefusal, token: () => Promise<string> | string]>([
    ['expired', () => sign({ ...good, exp: nowSeconds - 60 })],
    ['not-yet-valid', () => sign({ ...good, nbf: nowSeconds + 60 })],
    ['start-invalid', () => sign({ ...good, nbf: secretValue })],
    ['signature', async () => `${(await sign(good)).slice(0, -6)}AAAAAA`],
    ['issuer', () => sign({ ...good, iss: secretValue })],
    ['issuer', () => sign({ ...good, iss: [secretValue] })],
    ['issuer-missing', () => sign(without('iss'))],
    ['audience', () => sign({ ...good, aud: [secretValue] })],
    ['audience', () => sign({ ...good, aud: `planning.${secretValue}` })],
    ['audience', () => sign({ ...good, aud: { planning: secretValue } })],
    ['audience-missing', () => sign(without('aud'))],
    ['algorithm', () => sign(good, { alg: 'RS256' })],
    ['subject-missing', () => sign(without('sub'))],
    ['subject', () => sign({ ...good, sub: { id: secretValue } })],
    ['expiry-missing', () => sign(without('exp'))],
    ['expiry', () => sign({ ...good, exp: secretValue })],
    ['malformed', () => secretValue],
    ['malformed', async () => `${await sign(good)}=`],
  ])('C4 names the failed check and no value: %s', async (reason, token) => {
    const app = await appWith(settings);
    const response = await app.call('GET', lists, bearer(await token()));
    const detail = tokenRefusals[reason];
    expect(response).toMatchObject({ status: 401, body: { detail } });
    expect(response.headers.get('www-authenticate')).toBe(
      `Bearer realm="personal-planning", error="invalid_token", error_description="${detail}"`,
    );
    expect(app.logLines.filter((line) => line.includes(`"reason":"${reason}"`))).toHaveLength(1);
    expect(app.refused[0]).toBe(reason);
    expect(response.text + app.logLines.join('')).not.toContain(secretValue);
  });

  test('C4 has details that are valid in a header of RFC 6750', () => {
    for (const detail of Object.values(tokenRefusals)) expect(detail).toMatch(/^[\x20-\x21\x23-\x5b\x5d-\x7e]+$/);
  });

  test('C4 warns of the setting that may be wrong, once an hour for each reason', async () => {
    const lines: string[] = [];
    const { onRefused } = watchTokens(createLog('info', { write: (line) => lines.push(line) }));
    for (let count = 0; count < 50; count += 1) {
      for (const reason of ['audience', 'issuer', 'expired', 'malformed', 'signature'] as const) onRefused?.(reason);
    }
    expect(lines.map((line) => /"reason":"([a-z]+)","setting":"([A-Z_]+)"/.exec(line)?.slice(1))).toEqual([
      ['audience', 'AUTH_AUDIENCE'],
      ['issuer', 'AUTH_ISSUER'],
    ]);
  });

  test('C4 includes a token of another client and an ID token of AWS Cognito', async () => {
    const app = await appWith({ audience: 'client-1', audienceClaim: 'client_id' });
    const call = async (payload: object) =>
      (await app.call('GET', lists, bearer(await sign({ ...person, ...payload })))).status;
    expect(await call({ client_id: 'client-1' })).toBe(200);
    expect(await call({ client_id: 'client-2' })).toBe(401);
    expect(await call({ aud: 'client-1' })).toBe(401);
    expect(app.refused).toEqual(['audience', 'audience-missing']);
  });

  test('C4 appears in doctor with the failed check, and an accepted token with its roles', async () => {
    const line = await createCommandLine(
      {
        AUTH_SECRET: testSecret,
        AUTH_AUDIENCE: 'planning',
        AUTH_ROLES_CLAIM: 'realm_access.roles',
      },
      { isProcess: true },
    );
    const examine = async (payload: Record<string, unknown>) => {
      await line.write(
        'token.txt',
        `${await sign({ sub: 'ada', exp: Math.floor(Date.now() / 1000) + 300, ...payload })}\n`,
      );
      return line.planning('doctor', '--token-file', 'token.txt');
    };
    const wrong = await examine({ aud: 'account' });
    expect(wrong.exitCode).toBe(1);
    expect(wrong.stdout).toContain(tokenRefusals.audience);
    expect((await examine({ aud: 'planning', roles: ['salesManager'] })).stdout).toContain(
      'valid, without roles: it has no claim realm_access.roles',
    );
    expect((await examine({ aud: 'planning', realm_access: { roles: ['salesManager', 'x'] } })).stdout).toContain(
      'valid; 2 roles in realm_access.roles, including salesManager',
    );
  });
});
