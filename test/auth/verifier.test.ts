import { describe, expect, spyOn, test } from 'bun:test';
import { createHmac, generateKeyPairSync, type KeyObject, type KeyPairKeyObjectResult, sign } from 'node:crypto';
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
import { testSecret } from '../support/app';
import { createCommandLine } from '../support/command';
import { atEnd, until } from '../support/resources';

const now = new Date('2026-03-10T12:00:00.000Z');
const nowSeconds = now.getTime() / 1000;
const good = { sub: 'ada', exp: nowSeconds + 60, iss: 'issuer', aud: 'audience' };
const ours = generateKeyPairSync('ed25519');
const theirs = generateKeyPairSync('ed25519');
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pemOf = ({ publicKey }: KeyPairKeyObjectResult) => publicKey.export({ type: 'spki', format: 'pem' }).toString();
const publicPem = pemOf(ours);

const claims = { issuer: 'issuer', audience: 'audience', rolesClaim: 'roles' };
const anyClaims = { issuer: undefined, audience: undefined, rolesClaim: 'roles' };
const secretKey = { kind: 'secret', secret: testSecret } as const;

/** A verifier whose clocks a test can advance. */
async function createVerifier(settings: Partial<TokenSettings> = {}, watch = {}) {
  const clock = { passedMs: 0 };
  const nowMs = () => now.getTime() + clock.passedMs;
  const verify = await createTokenVerifier(
    { key: secretKey, ...claims, ...settings },
    () => new Date(nowMs()),
    nowMs,
    watch,
  );
  return { clock, verify };
}
const refused: TokenRefusal[] = [];
const { verify } = await createVerifier({}, { onRefused: (reason: TokenRefusal) => refused.push(reason) });

const part = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
const content = (header: unknown, payload: unknown) => `${part(header)}.${part(payload)}`;

/** Signs any header and payload. A text is used as it is, for JSON that no object produces. */
function signed(header: unknown, payload: unknown, key: KeyObject | string = testSecret): string {
  const text = content(header, payload);
  const signature =
    typeof key === 'string' ? createHmac('sha256', key).update(text).digest() : sign(null, Buffer.from(text), key);
  return `${text}.${signature.toString('base64url')}`;
}
const hs256 = (payload: unknown, header: object = {}) => signed({ alg: 'HS256', ...header }, payload);
const without = (claim: keyof typeof good) => hs256({ ...good, [claim]: undefined });
const [goodHead, goodBody, goodSignature] = hs256(good).split('.');
const theirJwk = theirs.publicKey.export({ format: 'jwk' });
const evil = 'https://evil.example/keys';

describe('a token', () => {
  test.each<[name: string, TokenRefusal, token: string]>([
    ['an alg of none', 'algorithm', `${content({ alg: 'none' }, good)}.c2ln`],
    ['an alg of none without a signature', 'malformed', `${content({ alg: 'none' }, good)}.`],
    ['an alg of nOnE with the signature of HS256', 'algorithm', signed({ alg: 'nOnE' }, good)],
    ['no alg', 'malformed', signed({ typ: 'JWT' }, good)],
    ['an alg of EdDSA and a signature by another key', 'algorithm', signed({ alg: 'EdDSA' }, good, theirs.privateKey)],
    ['another secret', 'signature', signed({ alg: 'HS256' }, good, 'a secret that this service does not know')],
    ['a key in jwk', 'algorithm', signed({ alg: 'EdDSA', jwk: theirJwk }, good, theirs.privateKey)],
    ['an unknown critical extension', 'malformed', hs256(good, { crit: ['x'], x: 1 })],
    ['the signature of another token', 'signature', `${goodHead}.${part({ ...good, sub: 'bob' })}.${goodSignature}`],
    ['a changed signature', 'signature', `${hs256(good).slice(0, -4)}AAAA`],
    ['no signature', 'malformed', `${goodHead}.${goodBody}.`],
    ['two parts', 'malformed', 'a.b'],
    ['four parts', 'malformed', `${goodHead}.${goodBody}.${goodSignature}.${goodSignature}`],
    ['the five parts of an encrypted token', 'malformed', `${part({ alg: 'dir', enc: 'A256GCM' })}..a.b.c`],
    ['base64 with padding', 'malformed', `${hs256(good)}=`],
    ['a list as payload', 'malformed', hs256([good])],
    ['null as payload', 'malformed', hs256('null')],
    ['a payload that is not JSON', 'malformed', hs256('{')],
    ['8 kB and no valid signature', 'malformed', `${goodHead}.${part({ ...good, pad: 'a'.repeat(8_000) })}.a`],
    ['an exp 6 seconds ago', 'expired', hs256({ ...good, exp: nowSeconds - 6 })],
    ['no exp', 'expiry-missing', without('exp')],
    ['text as exp', 'expiry', hs256({ ...good, exp: '9999999999' })],
    ['an infinite exp', 'expiry', hs256(JSON.stringify(good).replace(/"exp":\d+/, '"exp":1e400'))],
    ['an nbf in 6 seconds', 'not-yet-valid', hs256({ ...good, nbf: nowSeconds + 6 })],
    ['text as nbf', 'start-invalid', hs256({ ...good, nbf: '0' })],
    ['no iss', 'issuer-missing', without('iss')],
    ['another iss', 'issuer', hs256({ ...good, iss: 'another issuer' })],
    ['the iss in a list', 'issuer', hs256({ ...good, iss: ['issuer'] })],
    ['the iss in upper case', 'issuer', hs256({ ...good, iss: 'ISSUER' })],
    ['no aud', 'audience-missing', without('aud')],
    ['another aud', 'audience', hs256({ ...good, aud: ['another service'] })],
    ['an empty list as aud', 'audience', hs256({ ...good, aud: [] })],
    ['an aud that begins like ours', 'audience', hs256({ ...good, aud: 'audience.evil.example' })],
    ['an object as aud', 'audience', hs256({ ...good, aud: { audience: 'audience' } })],
    ['no sub', 'subject-missing', without('sub')],
    ['an empty sub', 'subject', hs256({ ...good, sub: '' })],
    ['NUL in sub', 'subject', hs256({ ...good, sub: 'a\u0000b' })],
    ['a sub of 256 characters', 'subject', hs256({ ...good, sub: 'a'.repeat(256) })],
    ['a number as sub', 'subject', hs256({ ...good, sub: 5 })],
    ['a list as sub', 'subject', hs256({ ...good, sub: ['ada'] })],
    ['null as sub', 'subject', hs256({ ...good, sub: null })],
    ['half a surrogate pair in sub', 'subject', hs256(JSON.stringify(good).replace('ada', '\\ud800'))],
  ])('is refused for %s: %s', async (_, reason, token) => {
    await expect(verify(token)).rejects.toMatchObject({ slug: 'unauthenticated', reason });
    expect(refused.at(-1)).toBe(reason);
  });

  test.each<[name: string, payload: object]>([
    ['valid claims', good],
    ['our audience in a list', { ...good, aud: ['x', 'audience'] }],
    ['an exp 4 seconds ago', { ...good, exp: nowSeconds - 4 }],
    ['an nbf in 4 seconds', { ...good, nbf: nowSeconds + 4 }],
  ])('is accepted with %s', async (_, payload) => {
    expect(await verify(hs256(payload))).toEqual({ id: 'ada', roles: [] });
  });

  test('is accepted with the audience in client_id, as AWS Cognito issues it', async () => {
    const { verify } = await createVerifier({ ...anyClaims, audience: 'client-1', audienceClaim: 'client_id' });
    const verified = (payload: object) => verify(hs256({ sub: 'ada', exp: good.exp, ...payload }));
    expect(await verified({ client_id: 'client-1' })).toMatchObject({ id: 'ada' });
    await expect(verified({ client_id: 'client-2' })).rejects.toMatchObject({ reason: 'audience' });
    await expect(verified({ aud: 'client-1' })).rejects.toMatchObject({ reason: 'audience-missing' });
  });
});

describe('a token for an asymmetric key', () => {
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch: () => Response.json({ keys: [{ ...ours.publicKey.export({ format: 'jwk' }), kid: 'a' }] }),
  });
  atEnd(() => server.stop(true));
  const keys = [{ kind: 'public-key', pem: publicPem } as const, { kind: 'jwks', url: server.url.href } as const];

  test.each(keys)('is accepted with its signature: $kind', async (key) => {
    const { verify } = await createVerifier({ key });
    expect(await verify(signed({ alg: 'EdDSA', kid: 'a' }, good, ours.privateKey))).toMatchObject({ id: 'ada' });
  });

  test.each<[name: string, reason: string, token: string]>([
    ['an HMAC with the public key as text', 'algorithm', signed({ alg: 'HS256', kid: 'a' }, good, publicPem)],
    ['an HMAC with that text trimmed', 'algorithm', signed({ alg: 'HS256', kid: 'a' }, good, publicPem.trim())],
    ['RS256 over a signature of EdDSA', 'algorithm|key', signed({ alg: 'RS256', kid: 'a' }, good, ours.privateKey)],
    ['a key in jwk', 'signature', signed({ alg: 'EdDSA', kid: 'a', jwk: theirJwk }, good, theirs.privateKey)],
    ['keys at jku', 'signature|key', signed({ alg: 'EdDSA', kid: 'b', jku: evil }, good, theirs.privateKey)],
  ])('is refused for %s', async (_, reasons, token) => {
    for (const key of keys) {
      const { verify } = await createVerifier({ key });
      const reason = expect.stringMatching(new RegExp(`^(${reasons})$`));
      await expect(verify(token)).rejects.toMatchObject({ slug: 'unauthenticated', reason });
    }
  });

  test.each(['RS384', 'RS512', 'PS256'])('is refused for %s with a public RSA key', async (alg) => {
    const { verify } = await createVerifier({ key: { kind: 'public-key', pem: pemOf(rsa) } });
    const token = (alg: string) => new SignJWT(good).setProtectedHeader({ alg }).sign(rsa.privateKey);
    await expect(verify(await token(alg))).rejects.toMatchObject({ reason: 'algorithm' });
    expect(await verify(await token('RS256'))).toMatchObject({ id: 'ada' });
  });
});

describe('verified-token cache', () => {
  test('rejects a cached token from its expiry on', async () => {
    const { clock, verify } = await createVerifier();
    const token = hs256({ ...good, exp: nowSeconds + 30 });
    await verify(token);
    clock.passedMs = 34_999;
    expect(await verify(token)).toEqual({ id: 'ada', roles: [] });
    clock.passedMs = 35_000;
    await expect(verify(token)).rejects.toMatchObject({ reason: 'expired' });
  });

  test('contains no forged and no expired token, and gives none of its clients to one', async () => {
    const { clock, verify } = await createVerifier();
    let unseen = 0;
    const sendTwice = async (...tokens: string[]) => {
      unseen = 0;
      const send = (token: string) => verify(token, () => (unseen += 1)).catch(() => undefined);
      for (let count = 0; count < 2; count += 1) await Promise.all(tokens.map(send));
      return unseen;
    };
    const forged = `${goodHead}.${part({ ...good, roles: ['salesManager'] })}.${goodSignature}`;
    const token = hs256({ ...good, exp: nowSeconds + 120 });
    expect(await sendTwice(token)).toBe(1);
    expect(await sendTwice(forged)).toBe(2);
    expect(await sendTwice(hs256({ ...good, aud: 'x' }))).toBe(2);
    await expect(verify(forged)).rejects.toMatchObject({ reason: 'signature' });
    expect(await sendTwice(token)).toBe(0);
    clock.passedMs = 60_000;
    expect(await sendTwice(token, token)).toBe(0);
    clock.passedMs = 125_000;
    expect(await sendTwice(token)).toBe(1);
  });

  test('keeps a token for a minute, after which its signature is verified again', async () => {
    const { clock, verify } = await createVerifier();
    const token = hs256({ ...good, exp: nowSeconds + 300 });
    const checks = spyOn(crypto.subtle, 'verify');
    const checksAt = async (passedMs: number) => {
      clock.passedMs = passedMs;
      checks.mockClear();
      await Promise.all([verify(token), verify(token)]);
      await verify(token);
      return checks.mock.calls.length;
    };
    try {
      // Concurrent requests do not wait for each other.
      for (const [passedMs, count] of [
        [0, 2],
        [59_999, 0],
        [60_000, 2],
        [119_999, 0],
        [120_000, 2],
      ] as const) {
        expect([passedMs, await checksAt(passedMs)]).toEqual([passedMs, count]);
      }
    } finally {
      checks.mockRestore();
    }
  });

  test('does not get a token whose signature check began before a reload', async () => {
    const { verify } = await createVerifier();
    const token = hs256(good);
    const { promise: held, resolve: release } = Promise.withResolvers<boolean>();
    const checks = spyOn(crypto.subtle, 'verify').mockImplementationOnce(() => held);
    try {
      const verifying = verify(token);
      await until(() => checks.mock.calls.length === 1);
      await verify.reload({ kind: 'secret', secret: 'the next secret of the issuer' });
      release(true);
      expect(await verifying).toMatchObject({ id: 'ada' });
      await expect(verify(token)).rejects.toMatchObject({ reason: 'signature' });
    } finally {
      checks.mockRestore();
    }
  });

  test('is empty after a reload, which replaces the secret', async () => {
    const { verify } = await createVerifier();
    const [old, next] = [hs256(good), signed({ alg: 'HS256' }, good, 'the next secret of the issuer')];
    await verify(old);
    expect(await verify.reload({ kind: 'secret', secret: 'the next secret of the issuer' })).toBeTrue();
    await expect(verify(old)).rejects.toMatchObject({ reason: 'signature' });
    expect(await verify(next)).toMatchObject({ id: 'ada' });
    expect(verify.hasKeys()).toBeTrue();
  });
});

const person = { sub: '8f2b-ada', iat: nowSeconds - 10, exp: nowSeconds + 300 };

describe('roles', () => {
  /** The documented settings for each issuer, the members of its tokens, and the one that has the roles. */
  test.each<[name: string, Partial<TokenSettings>, claims: Record<string, unknown>, roles: object]>([
    [
      'Keycloak, role of the realm',
      { issuer: 'https://id.example/realms/main', audience: 'planning', rolesClaim: 'realm_access.roles' },
      { iss: 'https://id.example/realms/main', aud: ['planning', 'account'], scope: 'openid' },
      { realm_access: { roles: ['offline_access', 'salesManager'] } },
    ],
    [
      'Keycloak, role of a client whose id has dots',
      { audience: 'planning', rolesClaim: 'resource_access.planning.example.com.roles' },
      { aud: 'planning' },
      { resource_access: { 'planning.example.com': { roles: ['salesManager'] } } },
    ],
    [
      'Auth0, a claim that is a URL',
      { issuer: 'https://t.example/', audience: 'https://api.example', rolesClaim: 'https://p.example/roles' },
      { sub: 'auth0|65f0', iss: 'https://t.example/', aud: ['https://api.example', 'https://t.example/userinfo'] },
      { 'https://p.example/roles': ['salesManager'] },
    ],
    [
      'AWS Cognito, an access token',
      { audience: '7lhlkkfbfb4q5kpp90', audienceClaim: 'client_id', rolesClaim: 'cognito:groups' },
      { token_use: 'access', client_id: '7lhlkkfbfb4q5kpp90', scope: 'openid' },
      { 'cognito:groups': ['salesManager'] },
    ],
    [
      'Zitadel',
      { audience: '2@planning', rolesClaim: 'p_roles' },
      { aud: ['2@planning'] },
      { p_roles: 'salesManager' },
    ],
    ['Microsoft Entra, version 2', { audience: 'c0ffee00' }, { aud: 'c0ffee00' }, { roles: ['salesManager'] }],
    ['RFC 8693', { rolesClaim: 'scope' }, {}, { scope: 'openid salesManager' }],
  ])('are read from the token of %s', async (_, settings, claims, roles) => {
    const { verify } = await createVerifier({ ...anyClaims, ...settings });
    expect((await verify(hs256({ ...person, ...claims, ...roles }))).roles).toContain('salesManager');
    expect((await verify(hs256({ ...person, ...claims }))).roles).toEqual([]);
  });

  test.each<[name: string, claim: string, members: string, roles: string[]]>([
    ['one text', 'roles', '"roles":"a"', ['a']],
    ['a text with spaces', 'roles', '"roles":" a  b "', ['a', 'b']],
    ['a text with commas', 'roles', '"roles":"a, b,c"', ['a', 'b', 'c']],
    ['an array', 'roles', '"roles":["a","b c"]', ['a', 'b c']],
    ...['""', '{"salesManager":true}', '5', 'true', 'null', '["a",5]', '[["a"]]'].map(
      (value): [string, string, string, string[]] => [value, 'roles', `"roles":${value}`, []],
    ),
    ['the exact key before the path', 'a.b', '"a":{"b":"path"},"a.b":"exact"', ['exact']],
    ['a path that ends early', 'a.b.c', '"a":{"b":"x"}', []],
    ['a path through an array', 'a.b', '"a":[{"b":"x"}]', []],
    ['a path with dots in two members', 'a.b.c.d', '"a.b":{"c.d":["x"]}', ['x']],
    ['a path after one that ends early', 'a.b.c', '"a":{"x":1},"a.b":{"c":"x"}', ['x']],
    ['a role below __proto__', 'roles', '"__proto__":{"roles":["salesManager"]}', []],
    ['the length of an array', 'roles.length', '"roles":["a"]', []],
    ['an empty path', '.', '"":{"":"x"}', ['x']],
  ])('have the expected value for %s', async (_, rolesClaim, members, roles) => {
    const { verify } = await createVerifier({ ...anyClaims, rolesClaim });
    expect(await verify(hs256(`{"sub":"ada","exp":${good.exp},${members}}`))).toEqual({ id: 'ada', roles });
  });

  test.each([
    ...['constructor', 'constructor.name', 'toString', '__proto__', '__proto__.constructor.name'],
    ...['a.constructor', 'a.toString.name', 'a.__proto__.constructor'],
  ])('are not read from a prototype: %s', (path) => {
    expect(rolesIn({ a: {} }, path)).toBeUndefined();
  });
});

/** `watchTokens`, and its log lines, parsed. */
function createWatch() {
  const lines: { reason?: string; setting: string }[] = [];
  return { lines, watch: watchTokens(createLog('info', { write: (line) => lines.push(JSON.parse(line)) })) };
}

describe('watchTokens', () => {
  test.each([
    ['100 tokens lack it', 100, undefined, 1, 1],
    ['99 tokens lack it', 99, undefined, 1, 0],
    ['one of 300 tokens has it', 300, 50, 1, 0],
    ['300 tokens lack it', 300, undefined, 1, 1],
    ['60 tokens lack it, sent twice', 60, undefined, 2, 0],
  ])('warns once of a missing claim for roles: %s', async (_, count, withClaimAt, rounds, warnings) => {
    const { lines, watch } = createWatch();
    const { clock, verify } = await createVerifier({ ...anyClaims, rolesClaim: 'realm_access.roles' }, watch);
    const tokens = Array.from({ length: count }, (_, index) =>
      hs256({ ...person, sub: `u-${index}`, ...(index === withClaimAt && { realm_access: { roles: [] } }) }),
    );
    for (let round = 0; round < rounds; round += 1) {
      for (const token of tokens) await verify(token);
      clock.passedMs += 61_000;
    }
    expect(lines.map(({ setting }) => setting)).toEqual(Array(warnings).fill('AUTH_ROLES_CLAIM'));
  });

  test('warns of the setting that may be wrong, once for each reason', () => {
    const { lines, watch } = createWatch();
    for (let count = 0; count < 50; count += 1) {
      for (const reason of ['audience', 'issuer', 'expired', 'malformed', 'signature'] as const) {
        watch.onRefused?.(reason);
      }
    }
    expect(lines.map(({ reason, setting }) => [reason, setting])).toEqual([
      ['audience', 'AUTH_AUDIENCE'],
      ['issuer', 'AUTH_ISSUER'],
    ]);
  });
});

test('planning doctor --token-file names the failed check, or the roles of a valid token', async () => {
  const { planning, write } = await createCommandLine({
    AUTH_SECRET: testSecret,
    AUTH_AUDIENCE: 'planning',
    AUTH_ROLES_CLAIM: 'realm_access.roles',
    PORT: '1',
  });
  const examine = async (payload: object) => {
    await write('token.txt', `${hs256({ sub: 'ada', exp: Math.floor(Date.now() / 1000) + 300, ...payload })}\n`);
    return planning('doctor', '--token-file', 'token.txt');
  };
  const refused = await examine({ aud: 'account' });
  expect(refused.exitCode).toBe(1);
  expect(refused.stdout).toContain(tokenRefusals.audience);
  expect((await examine({ aud: 'planning', roles: ['salesManager'] })).stdout).toContain(
    'valid, without roles: it has no claim realm_access.roles',
  );
  expect((await examine({ aud: 'planning', realm_access: { roles: ['salesManager', 'x'] } })).stdout).toContain(
    'valid; 2 roles in realm_access.roles, including salesManager',
  );
});
