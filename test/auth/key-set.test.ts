import { describe, expect, test } from 'bun:test';
import { createHmac, generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { SignJWT } from 'jose';
import { createRemoteKeys, fetchKeySet } from '../../src/auth/key-set';
import { createTokenVerifier, type TokenWatch } from '../../src/auth/verifier';
import { createLog } from '../../src/log';
import { watchTokens } from '../../src/start/services';
import { createCommandLine, diagnose } from '../support/command';
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

/** An issuer with the key `first`, and its keys without the cache of verified tokens, with a clock that a test advances. */
async function createKeys(respond = respondWith(jwk(ec1, { kid: 'first' }))) {
  const issuer = startIssuer(jwk(ec1, { kid: 'first' }));
  const good = issuer.respond;
  issuer.respond = respond;
  const clock = { passedMs: 0, failures: 0 };
  const keys = createRemoteKeys(issuer.url, () => nowMs + clock.passedMs, {
    onKeysFailed: () => {
      clock.failures += 1;
    },
  });
  const check = (jwt: string) => keys(jwt, { currentDate: new Date(nowMs) });
  return { issuer, good, keys, clock, check, jwt: await token(ec1, { kid: 'first' }) };
}
const unavailable = { slug: 'auth-keys-unavailable' };

describe('token verifier with a JWKS', () => {
  test('fetches the keys when it is created', async () => {
    const issuer = startIssuer();
    const clock = { nowMs };
    createRemoteKeys(issuer.url, () => clock.nowMs);
    // Without a time, the timer refreshes nothing.
    clock.nowMs = Number.NaN;
    await until(() => issuer.requests === 1);
  });

  test('refreshes the keys in the background after ten minutes', async () => {
    const { issuer, clock, check, jwt } = await createKeys();
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

  test('refreshes the keys at most once in thirty seconds, when another key may have signed a token', async () => {
    const { issuer, clock, check, jwt } = await createKeys();
    await check(jwt);
    const send = async (kids: readonly string[], claims: object = {}) => {
      for (const kid of kids) await expect(check(await token(other, { kid, ...claims }))).rejects.toThrow();
      return issuer.requests;
    };
    expect(await send(['a', 'b', 'c'])).toBe(1);
    clock.passedMs = 30 * secondMs - 1;
    expect(await send(['d', 'e'])).toBe(1);
    clock.passedMs = 30 * secondMs;
    expect(await send(['first'])).toBe(1);
    await expect(check(await token(ec1, { exp: exp - 40_000 }))).rejects.toThrow();
    expect(issuer.requests).toBe(1);
    expect(await send(['f', 'g'])).toBe(2);
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

  test('stay in use for an hour while the address fails, with pauses that double from 5 to 60 seconds', async () => {
    const { issuer, good, clock, check, jwt, keys } = await createKeys();
    await check(jwt);
    /** Fails until the set is asked for `pauses.length` times more, each after its pause and not before. */
    const failAt = async (passedMs: number, pauses: readonly number[]) => {
      issuer.respond = respondWithError;
      clock.passedMs = passedMs;
      for (const pauseMs of pauses.map((seconds) => seconds * secondMs)) {
        const failures = clock.failures + 1;
        await check(jwt);
        await until(() => clock.failures === failures);
        // A fifth of the first pause is random.
        clock.passedMs += pauseMs - secondMs - 1;
        for (let count = 0; count < 3; count += 1) await check(jwt);
        expect(clock.failures).toBe(failures);
        clock.passedMs += secondMs + 1;
      }
    };
    await failAt(10 * minuteMs, [5, 10, 20, 40, 60, 60]);
    issuer.respond = good;
    expect(await keys.refresh()).toBeTrue();
    const loadedAtMs = clock.passedMs;
    await failAt(loadedAtMs + 10 * minuteMs, [5, 10]);
    clock.passedMs = loadedAtMs + 60 * minuteMs - 1;
    await check(jwt);
    clock.passedMs += 1;
    await expect(check(jwt)).rejects.toMatchObject(unavailable);
    issuer.respond = good;
    clock.passedMs += 5 * secondMs;
    await check(jwt);
  });

  test('has no keys until the first successful request, and repeats the request without a token', async () => {
    const { issuer, good, keys, clock, check, jwt } = await createKeys(respondWithError);
    for (const requests of [1, 2, 3]) {
      await expect(check(jwt)).rejects.toMatchObject(unavailable);
      clock.passedMs += 4 * secondMs - 1;
      await expect(check(jwt)).rejects.toMatchObject(unavailable);
      expect([issuer.requests, keys.hasKeys()]).toEqual([requests, false]);
      clock.passedMs += secondMs + 1;
    }
    issuer.respond = good;
    await until(() => keys.hasKeys());
    await check(jwt);
    expect(issuer.requests).toBe(4);
  });

  test('waits for the keys when a token arrives during the fetch', async () => {
    const { issuer, good, keys, clock, check, jwt } = await createKeys(respondWithError);
    await until(() => clock.failures === 1);
    const { promise: response, resolve } = Promise.withResolvers<Response>();
    issuer.respond = () => response;
    const [refreshed, checked] = [keys.refresh(), check(jwt)];
    resolve(await good(new Request(issuer.url)));
    expect([await refreshed, (await checked).payload.sub]).toEqual([true, 'ada']);
  });

  test('reports unavailable keys for an unknown kid, but not for a wrong signature, when the keys cannot be refreshed', async () => {
    const { issuer, clock, check, jwt } = await createKeys();
    await check(jwt);
    issuer.respond = respondWithError;
    clock.passedMs = minuteMs;
    await expect(check(await token(ec2, { kid: 'second' }))).rejects.toMatchObject(unavailable);
    await expect(check(await token(ec2))).rejects.toThrow('signature verification failed');
  });
});

describe('a token without kid', () => {
  const others = (count: number) => Array.from({ length: count }, () => jwk(ec()));
  const ofRsa = () => token(rsa1, { alg: 'RS256' });
  const declared = jwk(ec1, { use: 'sig', alg: 'ES256', key_ops: ['verify'] });
  test.each<[name: string, keys: Jwk[], token: () => Promise<string>]>([
    ['is of the first of two keys', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'b' })], () => token(ec1)],
    ['is of the second of two keys', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'b' })], () => token(ec2)],
    ['is of the second RSA key', [jwk(rsa2), jwk(rsa1)], ofRsa],
    ['is of one of several types of keys', [jwk(rsa1), jwk(p384), jwk(ed), jwk(ec1), jwk(ec2)], () => token(ec2)],
    ['has a kid that two keys have', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'a' })], () => token(ec2, { kid: 'a' })],
    ['is of a key that names its use', [declared], () => token(ec1)],
    ['is of a key beside a short one', [jwk(short), jwk(rsa1)], ofRsa],
    ['is of a key beside an invalid one', [{ kty: 'RSA', n: '!', e: 'AQAB' }, jwk(rsa1)], ofRsa],
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
    ['is of a short key', [jwk(short), jwk(ec1)], 'key', ofRsa],
  ])('is refused when it %s', async (_, keys, reason, sign) => {
    const { verify } = await createVerifier(startIssuer(...keys).url);
    await expect(verify(await sign())).rejects.toMatchObject({ slug: 'unauthenticated', reason });
  });

  test('is accepted after one request to the JWKS when the key was rotated', async () => {
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
  const published = { kty: 'oct', kid: 'oct', k: secret.toString('base64url') };
  const hs256 = async () => {
    const parts = [
      { alg: 'HS256', kid: 'oct' },
      { sub: 'ada', exp },
    ];
    const content = parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    return `${content}.${createHmac('sha256', secret).update(content).digest('base64url')}`;
  };

  test.each<[string, key: Jwk, token: () => Promise<string>]>([
    ['RS384', jwk(rsa1), () => token(rsa1, { alg: 'RS384' })],
    ['RS512', jwk(rsa1), () => token(rsa1, { alg: 'RS512' })],
    ['PS256', jwk(rsa1), () => token(rsa1, { alg: 'PS256' })],
    ['ES384', jwk(p384), () => token(p384, { alg: 'ES384' })],
    ['ES384 with a key of that alg', jwk(p384, { alg: 'ES384' }), () => token(p384, { alg: 'ES384' })],
    ['HS256 by a published secret', published, hs256],
  ])('do not include %s', async (_, key, sign) => {
    // Beside a usable key, because a set without one is not used at all.
    const { verify } = await createVerifier(startIssuer(key, jwk(ec1, { kid: 'usable' })).url);
    await expect(verify(await sign())).rejects.toMatchObject({ slug: 'unauthenticated', reason: 'algorithm' });
  });

  test('include RS256, ES256, EdDSA and Ed25519', async () => {
    const { verify } = await createVerifier(startIssuer(...[rsa1, ec1, ed].map((pair) => jwk(pair))).url);
    const tokens = [
      token(rsa1, { alg: 'RS256' }),
      token(ec1),
      token(ed, { alg: 'EdDSA' }),
      token(ed, { alg: 'Ed25519' }),
    ];
    for (const signed of await Promise.all(tokens)) expect(await verify(signed)).toMatchObject({ id: 'ada' });
  });
});

/** The finding of `planning doctor` about the keys, and its exit code. */
async function doctorOf(url: URL) {
  const { exitCode, findingOf } = await diagnose(await createCommandLine({ AUTH_JWKS_URL: url.href, PORT: '1' }));
  const { result, detail } = findingOf('token keys') ?? {};
  return { exitCode, result, detail };
}

/** A verifier whose log is parsed. */
async function createLoggedVerifier(url: URL) {
  const lines: object[] = [];
  let fetched = 0;
  const log = createLog('info', { write: (line) => lines.push(JSON.parse(line)) });
  const { verify } = await createVerifier(url, watchTokens(log, { keysFetched: () => (fetched += 1) }));
  return { lines, verify, fetchedCount: () => fetched };
}

/** Keys that cannot be used, each with what doctor says of it. */
const unusable: [key: Jwk, fault: string][] = [
  [jwk(rsa1, { alg: 'ES256' }), 'its kty, crv and alg do not fit together, or it cannot be read'],
  [jwk(short), 'it is an RSA key of fewer than 2048 bits'],
  [jwk(ec2, { use: 'enc' }), 'its use is not sig'],
  [jwk(ec2, { key_ops: ['encrypt'] }), 'its key_ops do not have verify'],
  [jwk(rsa1, { alg: 'PS256' }), 'its alg is not one of EdDSA, ES256 and RS256'],
  [{ kty: 'oct' }, 'it is a shared secret, which a JWKS must not publish'],
  [jwk(ec2, { k: 'c2VjcmV0' }), 'it is a shared secret, which a JWKS must not publish'],
  [{ kty: 5 }, 'it is not a JWK'],
];
const faultsOf = (named: readonly (readonly [kid: string, fault: string])[]) =>
  named.map(([kid, fault]) => `; "${kid}" is not usable: ${fault}`).join('');
const leaked = 'it contains its private key: stop signing with it';

const jsonOf = (value: unknown) => () => Response.json(value);
const statusOf = (status: number) => () => new Response(null, { status });
const badSets: [name: string, reason: string, message: string, respond: Respond][] = [
  ['an HTML page', 'not-json', 'does not send JSON', () => new Response('<!doctype html>')],
  ['an empty response', 'not-json', 'does not send JSON', () => new Response(null)],
  ['{}', 'not-a-key-set', 'sends JSON without an array `keys`', jsonOf({})],
  ['512 kB', 'no-keys', 'sends a set without keys', () => new Response('{"keys":[]}'.padEnd(512 * 1024))],
  ['more', 'too-large', 'sends more than 512 kB', () => new Response('{"keys":[]}'.padEnd(512 * 1024 + 1))],
  ['private keys', 'no-usable-key', 'sends no usable key', jsonOf({ keys: [privateJwk(ec1, 'first')] })],
  ['a redirect loop', 'redirect-302', 'set the final address (status 302)', ({ url }) => Response.redirect(url)],
  ['status 204', 'status-204', 'does not respond with 200 (status 204)', statusOf(204)],
  ['status 299', 'status-299', 'does not respond with 200', statusOf(299)],
  ['status 300', 'redirect-300', 'redirects, which is not followed', statusOf(300)],
  ['status 399', 'redirect-399', 'redirects, which is not followed', statusOf(399)],
  ['status 400', 'status-400', 'does not respond with 200', statusOf(400)],
];

describe('fetch of a JWKS', () => {
  test.each<[name: string, Respond, reason: string, detail: string]>([
    [
      'keys of a wrong kind',
      jsonOf({ keys: unusable.map(([key], index) => ({ ...key, kid: `\u001b${index}` })) }),
      'no-usable-key',
      `sends no usable key${faultsOf(unusable.map(([, fault], index) => [`?${index}`, fault]))}`,
    ],
    ['status 500', respondWithError, 'status-500', 'does not respond with 200 (status 500)'],
  ])(
    'keeps the last keys, and is reported by the log and doctor, when the issuer sends %s',
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

  test.each(badSets)('fails when the issuer sends %s, with the reason %s', async (_, reason, message, respond) => {
    const issuer = startIssuer();
    issuer.respond = respond;
    const failure = { reason, message: expect.stringContaining(message) };
    await expect(fetchKeySet(issuer.url)).rejects.toMatchObject(failure);
  });

  test('fails with the code of the error when the connection is refused', async () => {
    const message = 'cannot be reached (ECONNREFUSED)';
    const refused = { reason: 'unreachable', code: 'ECONNREFUSED', message };
    await expect(fetchKeySet(new URL('http://127.0.0.1:1'))).rejects.toMatchObject(refused);
  });

  test('fails with the reason timeout when the body is incomplete at the time limit', async () => {
    const issuer = startIssuer();
    issuer.respond = () => new Response(new ReadableStream({ start: (controller) => controller.enqueue(' ') }));
    const timeout = { reason: 'timeout', message: 'does not send the whole set in time' };
    await expect(fetchKeySet(issuer.url, 50)).rejects.toMatchObject(timeout);
  });

  test('logs an error when the first request fails', async () => {
    const issuer = startIssuer();
    issuer.respond = respondWithError;
    const { lines, verify } = await createLoggedVerifier(issuer.url);
    await expect(verify(await token(ec1))).rejects.toMatchObject(unavailable);
    expect(verify.hasKeys()).toBeFalse();
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
    const usable = 'AUTH_JWKS_URL has 2 usable keys: "a" (ES256), "a" (ES256)';
    expect(await doctorOf(issuer.url)).toEqual({
      exitCode: 0,
      result: 'warning',
      detail: `${usable}${faultsOf([['leaked', leaked]])}; several keys have the kid "a"`,
    });
  });
});
