import { describe, expect, test } from 'bun:test';
import { createHmac, generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { createRemoteKeys, fetchKeySet } from '../../src/auth/key-set';
import { createTokenVerifier, type TokenWatch } from '../../src/auth/verifier';
import { createLog } from '../../src/log';
import { watchTokens } from '../../src/start/services';
import { createCommandLine } from '../support/command';
import { atEnd, until } from '../support/resources';

type Jwk = Record<string, unknown>;

const secondMs = 1_000;
const minuteMs = 60_000;
const nowMs = Date.parse('2026-03-10T12:00:00.000Z');
const exp = nowMs / 1000 + 36_000;
const rsa = (modulusLength = 2048) => generateKeyPairSync('rsa', { modulusLength });
const ec = (namedCurve = 'P-256') => generateKeyPairSync('ec', { namedCurve });
const [rsa1, rsa2, short, ec1, ec2, other] = [rsa(), rsa(), rsa(1024), ec(), ec(), ec()];
const [p384, ed] = [ec('P-384'), generateKeyPairSync('ed25519')];

const jwk = ({ publicKey }: KeyPairKeyObjectResult, more: Jwk = {}): Jwk => ({
  ...publicKey.export({ format: 'jwk' }),
  ...more,
});
const privateJwk = ({ privateKey }: KeyPairKeyObjectResult, kid: string): Jwk => ({
  ...privateKey.export({ format: 'jwk' }),
  kid,
});
const token = (
  { privateKey }: KeyPairKeyObjectResult,
  { alg = 'ES256', kid, ...claims }: { alg?: string; kid?: string; exp?: number } = {},
) =>
  new SignJWT({ sub: 'ada', exp, ...claims })
    .setProtectedHeader(kid === undefined ? { alg } : { alg, kid })
    .sign(privateKey);

/** A JWKS server; a test sets its response. */
function startIssuer(...keys: Jwk[]) {
  const issuer = { respond: respondWith(...keys), requests: 0 };
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch(request) {
      issuer.requests += 1;
      return issuer.respond(request);
    },
  });
  atEnd(() => server.stop(true));
  return Object.assign(issuer, { url: server.url });
}

type Respond = (request: Request) => Response | Promise<Response>;
const respondWith =
  (...keys: Jwk[]): Respond =>
  () =>
    Response.json({ keys });
const respondWithError: Respond = () => new Response('no', { status: 500 });

/** A verifier of an issuer with a clock that a test advances. */
async function createVerifier(url: URL, watch: TokenWatch = {}) {
  const clock = { passedMs: 0 };
  const clockMs = () => nowMs + clock.passedMs;
  const verify = await createTokenVerifier(
    { key: { kind: 'jwks', url: url.href }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
    () => new Date(clockMs()),
    clockMs,
    watch,
  );
  return { clock, verify };
}

/** Keys of an issuer without the cache of verified tokens, with a clock that a test advances. */
function createKeys(url: URL) {
  const clock = { passedMs: 0 };
  const keys = createRemoteKeys(url, () => nowMs + clock.passedMs);
  return { clock, hasKeys: keys.hasKeys, check: (jwt: string) => keys(jwt, { currentDate: new Date(nowMs) }) };
}

describe('keys of a JWKS', () => {
  test('are cached for ten minutes, then refreshed in the background', async () => {
    const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
    const { clock, check } = createKeys(issuer.url);
    const jwt = await token(ec1, { kid: 'first' });
    for (let count = 0; count < 5; count += 1) await check(jwt);
    clock.passedMs = 10 * minuteMs - 1;
    await check(jwt);
    expect(issuer.requests).toBe(1);
    const { promise: response, resolve } = Promise.withResolvers<Response>();
    issuer.respond = () => response;
    clock.passedMs = 10 * minuteMs;
    // Does not wait for the response.
    await check(jwt);
    await until(() => issuer.requests === 2);
    resolve(Response.json({ keys: [] }));
  });

  test('are refreshed at most once in thirty seconds when tokens have an unknown kid', async () => {
    const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
    const { clock, check } = createKeys(issuer.url);
    await check(await token(ec1, { kid: 'first' }));
    const sendUnknown = async () => {
      for (let count = 0; count < 5; count += 1) {
        await expect(check(await token(other, { kid: `unknown-${count}` }))).rejects.toThrow();
      }
      return issuer.requests;
    };
    expect(await sendUnknown()).toBe(1);
    clock.passedMs = 30 * secondMs - 1;
    expect(await sendUnknown()).toBe(1);
    clock.passedMs = 30 * secondMs;
    expect(await sendUnknown()).toBe(2);
  });

  test('include a new key after thirty seconds, and a removed key verifies no token a minute later', async () => {
    const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
    let fetched = 0;
    const { clock, verify } = await createVerifier(issuer.url, { onKeysFetched: () => (fetched += 1) });
    const [old, next] = [await token(ec1, { kid: 'first' }), await token(ec2, { kid: 'second' })];
    await verify(old);
    issuer.respond = respondWith(jwk(ec2, { kid: 'second' }));
    clock.passedMs = 30 * secondMs;
    await verify(next);
    clock.passedMs = minuteMs - 1;
    expect(await verify(old)).toMatchObject({ id: 'ada' });
    clock.passedMs = minuteMs;
    await expect(verify(old)).rejects.toMatchObject({ slug: 'unauthenticated', reason: 'key' });

    // Without a token of the new key, the refresh after ten minutes removes the old one.
    issuer.respond = respondWith(jwk(other, { kid: 'third' }));
    clock.passedMs += 11 * minuteMs;
    const before = fetched;
    await verify(next);
    await until(() => fetched > before);
    clock.passedMs += minuteMs;
    await expect(verify(next)).rejects.toMatchObject({ reason: 'key' });
  });

  test('stay in use for an hour while the URL fails, with one request every five seconds at most', async () => {
    const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
    const { clock, check } = createKeys(issuer.url);
    const jwt = await token(ec1, { kid: 'first' });
    await check(jwt);
    issuer.respond = respondWithError;
    clock.passedMs = 59 * minuteMs;
    for (let count = 0; count < 5; count += 1) await check(jwt);
    await until(() => issuer.requests === 2);
    clock.passedMs = 61 * minuteMs;
    await expect(check(jwt)).rejects.toMatchObject({ slug: 'auth-keys-unavailable' });
  });

  test('are unavailable until the first successful request, which the service repeats without a token', async () => {
    const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
    const { respond } = issuer;
    issuer.respond = respondWithError;
    const { clock, check, hasKeys } = createKeys(issuer.url);
    const jwt = await token(ec1, { kid: 'first' });
    for (let count = 0; count < 5; count += 1) {
      await expect(check(jwt)).rejects.toMatchObject({ slug: 'auth-keys-unavailable' });
    }
    expect([issuer.requests, hasKeys()]).toEqual([1, false]);
    issuer.respond = respond;
    clock.passedMs = 5 * secondMs;
    await until(() => hasKeys());
    await check(jwt);
    expect(issuer.requests).toBe(2);
  });
});

describe('a token without kid', () => {
  const others = (count: number) => Array.from({ length: count }, () => jwk(ec()));
  test.each<[name: string, keys: Jwk[], token: () => Promise<string>]>([
    ['is of the first of two keys', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'b' })], () => token(ec1)],
    ['is of the second of two keys', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'b' })], () => token(ec2)],
    ['is of the second RSA key', [jwk(rsa1), jwk(rsa2)], () => token(rsa2, { alg: 'RS256' })],
    ['is of one of several types of keys', [jwk(rsa1), jwk(p384), jwk(ed), jwk(ec1), jwk(ec2)], () => token(ec2)],
    ['has a kid that two keys have', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'a' })], () => token(ec2, { kid: 'a' })],
    ['is of a key beside a short one', [jwk(short), jwk(rsa1)], () => token(rsa1, { alg: 'RS256' })],
    [
      'is of a key beside an invalid one',
      [{ kty: 'RSA', n: '!', e: 'AQAB' }, jwk(rsa1)],
      () => token(rsa1, { alg: 'RS256' }),
    ],
    ['is of the eighth key', [...others(7), jwk(ec1)], () => token(ec1)],
  ])('is accepted when it %s', async (_, keys, sign) => {
    const { verify } = await createVerifier(startIssuer(...keys).url);
    expect(await verify(await sign())).toEqual({ id: 'ada', roles: [] });
  });

  test.each<[name: string, keys: Jwk[], reason: string, token: () => Promise<string>]>([
    ['is of an unknown key', [jwk(ec1), jwk(ec2)], 'signature', () => token(other)],
    ['is of the ninth key', [...others(8), jwk(ec1)], 'signature', () => token(ec1)],
    ['has expired', [jwk(ec1), jwk(ec2), jwk(other)], 'expired', () => token(ec2, { exp: exp - 40_000 })],
    ['is of a key for encryption', [jwk(ec1, { use: 'enc' }), jwk(ec2)], 'signature', () => token(ec1)],
    ['is of a short key', [jwk(short), jwk(ec1)], 'key', () => token(rsa1, { alg: 'RS256' })],
  ])('is refused when it %s', async (_, keys, reason, sign) => {
    const { verify } = await createVerifier(startIssuer(...keys).url);
    await expect(verify(await sign())).rejects.toMatchObject({ slug: 'unauthenticated', reason });
  });

  test('is accepted with a rotated key after one request for the keys in thirty seconds', async () => {
    const issuer = startIssuer(jwk(ec1));
    const { clock, verify } = await createVerifier(issuer.url);
    await verify(await token(ec1));
    issuer.respond = respondWith(jwk(ec2));
    clock.passedMs = 29 * secondMs;
    await expect(verify(await token(ec2))).rejects.toMatchObject({ reason: 'signature' });
    expect(issuer.requests).toBe(1);
    clock.passedMs = 31 * secondMs;
    expect(await verify(await token(ec2))).toMatchObject({ id: 'ada' });
    for (let count = 0; count < 5; count += 1) await verify(await token(other)).catch(() => undefined);
    expect(issuer.requests).toBe(2);
  });
});

describe('algorithms of a JWKS', () => {
  const secret = Buffer.alloc(48, 7);
  const hs256 = async () => {
    const parts = [
      { alg: 'HS256', kid: 'oct' },
      { sub: 'ada', exp },
    ];
    const content = parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    return `${content}.${createHmac('sha256', secret).update(content).digest('base64url')}`;
  };

  test.each<[string, key: Jwk, token: () => Promise<string>]>([
    ...['RS384', 'RS512', 'PS256'].map((alg): [string, Jwk, () => Promise<string>] => [
      alg,
      jwk(rsa1),
      () => token(rsa1, { alg }),
    ]),
    ['ES384', jwk(p384), () => token(p384, { alg: 'ES384' })],
    ['ES384 with a key of that alg', jwk(p384, { alg: 'ES384' }), () => token(p384, { alg: 'ES384' })],
    ['HS256 by a published secret', { kty: 'oct', kid: 'oct', k: secret.toString('base64url') }, hs256],
  ])('do not include %s', async (_, key, sign) => {
    // Beside a usable key, because a set without one is not used at all.
    const { verify } = await createVerifier(startIssuer(key, jwk(ec1, { kid: 'usable' })).url);
    await expect(verify(await sign())).rejects.toMatchObject({ slug: 'unauthenticated', reason: 'algorithm' });
  });

  test.each<[string, KeyPairKeyObjectResult]>([
    ['RS256', rsa1],
    ['ES256', ec1],
    ['EdDSA', ed],
    ['Ed25519', ed],
  ])('include %s', async (alg, pair) => {
    const { verify } = await createVerifier(startIssuer(jwk(pair)).url);
    expect(await verify(await token(pair, { alg }))).toMatchObject({ id: 'ada' });
  });
});

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

/** The finding of `planning doctor` about the keys, and its exit code. */
async function doctorOf(url: URL) {
  const { planning } = await createCommandLine({ AUTH_JWKS_URL: url.href, PORT: '1' });
  const { exitCode, stdout } = await planning('doctor', '--json');
  const found = v.parse(Findings, JSON.parse(stdout)).findings.find(({ check }) => check === 'token keys');
  return { exitCode, result: found?.result, detail: found?.detail };
}

/** A verifier whose log is parsed. */
async function createLoggedVerifier(url: URL) {
  const lines: object[] = [];
  let fetched = 0;
  const log = createLog('info', { write: (line) => lines.push(JSON.parse(line)) });
  const { verify } = await createVerifier(url, watchTokens(log, { keysFetched: () => (fetched += 1) }));
  return { lines, verify, fetchedCount: () => fetched };
}

const badSets: [name: string, respond: (request: Request) => Response, reason: string, detail: string][] = [
  ['an HTML page', () => new Response('<!doctype html>'), 'not-json', 'does not send JSON'],
  ['{}', () => Response.json({}), 'not-a-key-set', 'sends JSON without an array `keys`'],
  ['an empty set', () => Response.json({ keys: [] }), 'no-keys', 'sends a set without keys'],
  [
    'only private keys',
    () => Response.json({ keys: [privateJwk(ec1, 'first')] }),
    'no-usable-key',
    'sends no usable key; "first" is not usable: it contains its private key: stop signing with it',
  ],
  [
    'more than 512 kB',
    () => Response.json({ keys: [{ x5c: ['A'.repeat(600_000)] }] }),
    'too-large',
    'sends more than 512 kB',
  ],
  [
    'keys of a wrong kind',
    () =>
      Response.json({
        keys: [
          jwk(rsa1, { kid: 'a', alg: 'ES256' }),
          jwk(short, { kid: 'b' }),
          jwk(ec2, { kid: 'c', use: 'enc' }),
          jwk(rsa1, { kid: 'd', alg: 'PS256' }),
          { kty: 'oct', kid: 'e\u001b[2J', k: 'c2VjcmV0' },
        ],
      }),
    'no-usable-key',
    [
      'sends no usable key',
      '"a" is not usable: its kty, crv and alg do not fit together, or it cannot be read',
      '"b" is not usable: it is an RSA key of fewer than 2048 bits',
      '"c" is not usable: its use is not sig',
      '"d" is not usable: its alg is not one of EdDSA, ES256 and RS256',
      '"e?[2J" is not usable: it is a shared secret, which a JWKS must not publish',
    ].join('; '),
  ],
  [
    'a redirect loop',
    ({ url }) => Response.redirect(url),
    'redirect-302',
    'redirects, which is not followed: set the final address (status 302)',
  ],
  ['500', () => new Response('no', { status: 500 }), 'status-500', 'does not respond with 200 (status 500)'],
];

describe('a JWKS address', () => {
  test.each(badSets)(
    'that sends %s leaves the last keys in use, and appears in the log and in doctor',
    async (_, respond, reason, detail) => {
      const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
      const good = issuer.respond;
      const { lines, verify, fetchedCount } = await createLoggedVerifier(issuer.url);
      await verify(await token(ec1, { kid: 'first' }));
      issuer.respond = respond;
      const reload = () => verify.reload({ kind: 'jwks', url: issuer.url.href });
      // The same failure is not logged again at once.
      for (let count = 0; count < 2; count += 1) expect(await reload()).toBeFalse();
      expect(lines).toEqual([expect.objectContaining({ level: 'warn', setting: 'AUTH_JWKS_URL', reason })]);
      expect(await doctorOf(issuer.url)).toEqual({ exitCode: 1, result: 'failed', detail: `AUTH_JWKS_URL ${detail}` });
      expect(await verify(await token(ec1, { kid: 'first' }))).toMatchObject({ id: 'ada' });
      expect([verify.hasKeys(), fetchedCount()]).toEqual([true, 1]);
      issuer.respond = good;
      expect(await reload()).toBeTrue();
      expect(fetchedCount()).toBe(2);
      expect(lines.at(-1)).toMatchObject({ level: 'info', msg: 'the JWKS is fetched again' });
    },
  );

  test('fails with the reason timeout when the body is incomplete at the time limit', async () => {
    const issuer = startIssuer();
    const chunk = new TextEncoder().encode(' ');
    issuer.respond = () =>
      new Response(
        new ReadableStream({
          async pull(controller) {
            await Bun.sleep(5);
            controller.enqueue(chunk);
          },
        }),
      );
    await expect(fetchKeySet(issuer.url, 50)).rejects.toMatchObject({
      reason: 'timeout',
      message: 'does not send the whole set in time',
    });
  });

  test('logs an error when the first request fails', async () => {
    const issuer = startIssuer();
    issuer.respond = respondWithError;
    const { lines, verify } = await createLoggedVerifier(issuer.url);
    await expect(verify(await token(ec1))).rejects.toMatchObject({ slug: 'auth-keys-unavailable' });
    expect(lines).toEqual([
      expect.objectContaining({ level: 'error', reason: 'status-500', msg: expect.stringContaining('no token') }),
    ]);
  });

  test('with usable keys appears in doctor with each key', async () => {
    expect(await doctorOf(startIssuer(jwk(ec1, { kid: 'first' })).url)).toEqual({
      exitCode: 0,
      result: 'ok',
      detail: 'AUTH_JWKS_URL has 1 usable key: "first" (ES256)',
    });
    const issuer = startIssuer(jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'a' }), privateJwk(other, 'leaked'));
    expect(await doctorOf(issuer.url)).toEqual({
      exitCode: 0,
      result: 'warning',
      detail: [
        'AUTH_JWKS_URL has 2 usable keys: "a" (ES256), "a" (ES256)',
        '"leaked" is not usable: it contains its private key: stop signing with it',
        'several keys have the kid "a"',
      ].join('; '),
    });
  });
});
