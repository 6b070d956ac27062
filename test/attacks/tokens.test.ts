import { describe, expect, test } from 'bun:test';
import { createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { createTokenVerifier, type TokenSettings } from '../../src/auth/verifier';
import { createTestApp, testSecret } from '../support/app';
import { connectRaw } from '../support/http';
import { atEnd } from '../support/resources';

const now = new Date('2026-03-10T12:00:00.000Z');
const nowSeconds = Math.floor(now.getTime() / 1000);
const good = { sub: 'victim', exp: nowSeconds + 60, iss: 'issuer', aud: 'audience' };
const ours = generateKeyPairSync('ed25519');
const theirs = generateKeyPairSync('ed25519');
const theirJwk = theirs.publicKey.export({ format: 'jwk' });
const publicPem = ours.publicKey.export({ type: 'spki', format: 'pem' }).toString();

const settings = (key: TokenSettings['key']) => ({ key, issuer: 'issuer', audience: 'audience', rolesClaim: 'roles' });
const verifierOf = (key: TokenSettings['key']) =>
  createTokenVerifier(
    settings(key),
    () => now,
    () => now.getTime(),
  );
const secretApp = await createTestApp({ verifyToken: await verifierOf({ kind: 'secret', secret: testSecret }) });
const keyApp = await createTestApp({ verifyToken: await verifierOf({ kind: 'public-key', pem: publicPem }) });
const jwksServer = Bun.serve({
  port: 0,
  fetch: () => Response.json({ keys: [{ ...ours.publicKey.export({ format: 'jwk' }), kid: 'a' }] }),
});
atEnd(() => jwksServer.stop(true));
const jwksApp = await createTestApp({ verifyToken: await verifierOf({ kind: 'jwks', url: jwksServer.url.href }) });

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
const [goodHead, goodBody, goodSignature] = hs256(good).split('.');
const evil = 'https://evil.example/keys';

/** Tokens that the verifier of a secret must refuse. */
const refused: Record<string, string> = {
  'alg None, in other case': `${content({ alg: 'None' }, good)}.`,
  'alg nOnE, with the signature of HS256': signed({ alg: 'nOnE' }, good),
  'no alg': signed({ typ: 'JWT' }, good),
  'alg as a list': signed({ alg: ['HS256', 'none'] }, good),
  'HS384 claimed over a signature of HS256': signed({ alg: 'HS384' }, good),
  'EdDSA signed by a key of the sender': signed({ alg: 'EdDSA' }, good, theirs.privateKey),
  'the sender’s key in jwk': signed({ alg: 'EdDSA', jwk: theirJwk }, good, theirs.privateKey),
  'the sender’s keys at jku': signed({ alg: 'HS256', jku: evil, kid: 'a' }, good, 'their secret'),
  'the sender’s certificate at x5u': signed({ alg: 'HS256', x5u: evil }, good, 'their secret'),
  'the sender’s certificate in x5c': signed({ alg: 'HS256', x5c: [part('x')] }, good, 'their secret'),
  'a kid that is a path to an empty file': signed({ alg: 'HS256', kid: '../../../../dev/null' }, good, ''),
  'a kid that is SQL': signed({ alg: 'HS256', kid: "x' UNION SELECT 'key';--" }, good, 'key'),
  'an unknown critical extension': hs256(good, { crit: ['x'], x: 1 }),
  'an unencoded payload': hs256(good, { crit: ['b64'], b64: false }),
  'a header with two algs, unsigned': `${content('{"alg":"HS256","alg":"none"}', good)}.`,
  'a header that is no object': signed('"HS256"', good),
  'the signature of another token': `${goodHead}.${part({ ...good, sub: 'caller' })}.${goodSignature}`,
  'the first half of a signature': `${goodHead}.${goodBody}.${goodSignature?.slice(0, 20)}`,
  'no signature': `${goodHead}.${goodBody}.`,
  'a fourth part': `${goodHead}.${goodBody}.${goodSignature}.${goodSignature}`,
  'five parts, as an encrypted token has': `${part({ alg: 'dir', enc: 'A256GCM' })}..a.b.c`,
  'a token within a token': hs256(`"${hs256(good)}"`, { cty: 'JWT' }),
  'a payload that is a list': hs256([good]),
  'a payload that is null': hs256('null'),
  'a payload that is no JSON': hs256('{'),
  'exp as text': hs256({ ...good, exp: '9999999999' }),
  'exp beyond all numbers': hs256(JSON.stringify(good).replace(/"exp":\d+/, '"exp":1e400')),
  'nbf as text': hs256({ ...good, nbf: '0' }),
  'the issuer in a list': hs256({ ...good, iss: ['issuer'] }),
  'the issuer in other case': hs256({ ...good, iss: 'ISSUER' }),
  'no issuer': hs256({ ...good, iss: undefined }),
  'no audience': hs256({ ...good, aud: undefined }),
  'an empty list of audiences': hs256({ ...good, aud: [] }),
  'an audience that begins like ours': hs256({ ...good, aud: 'audience.evil.example' }),
  'a sub that is a list': hs256({ ...good, sub: ['victim'] }),
  'a sub that is null': hs256({ ...good, sub: null }),
  'a sub with half a surrogate': hs256(JSON.stringify(good).replace('victim', '\\ud800')),
  'an oversized token without a signature': `${goodHead}.${part({ ...good, pad: 'a'.repeat(8_000) })}.a`,
};

const lists = '/v2/private/healthAndCare/';
const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });

describe('token verification', () => {
  test.each(Object.entries(refused))('returns 401 for %s', async (_, token) => {
    expect((await secretApp.call('GET', lists, bearer(token))).status).toBe(401);
  });

  test('accepts valid tokens of the same helpers, as a control', async () => {
    expect((await secretApp.call('GET', lists, bearer(hs256(good)))).status).toBe(200);
    expect((await secretApp.call('GET', lists, bearer(hs256({ ...good, aud: ['x', 'audience'] })))).status).toBe(200);
    for (const app of [keyApp, jwksApp]) {
      const token = signed({ alg: 'EdDSA', kid: 'a' }, good, ours.privateKey);
      expect((await app.call('GET', lists, bearer(token))).status).toBe(200);
    }
  });

  test.each([
    ['HMAC with the text of the public key', signed({ alg: 'HS256', kid: 'a' }, good, publicPem)],
    ['HMAC with the trimmed text of it', signed({ alg: 'HS256', kid: 'a' }, good, publicPem.trim())],
    ['ES256 over a signature of EdDSA', signed({ alg: 'ES256', kid: 'a' }, good, ours.privateKey)],
    ['RS256 over a signature of EdDSA', signed({ alg: 'RS256', kid: 'a' }, good, ours.privateKey)],
    ['the sender’s key in jwk', signed({ alg: 'EdDSA', kid: 'a', jwk: theirJwk }, good, theirs.privateKey)],
    ['the sender’s keys at jku', signed({ alg: 'EdDSA', kid: 'b', jku: evil }, good, theirs.privateKey)],
  ])('returns 401 with public keys for %s', async (_, token) => {
    for (const app of [keyApp, jwksApp]) expect((await app.call('GET', lists, bearer(token))).status).toBe(401);
  });

  test.each(['=', '==', '.', '\u00a0', '%3D', '\t.', '.a', 'A', ' x', ', x', '\u0000'])(
    'refuses a valid token followed by %p',
    async (tail) => {
      const response = await secretApp.call('GET', lists, bearer(encodeURI(hs256(good) + tail)));
      expect(response.status).toBe(401);
    },
  );

  test.each<[string, string, Record<string, string>]>([
    ['the query', `${lists}?access_token=${hs256(good)}&token=${hs256(good)}`, {}],
    ['a cookie', lists, { cookie: `token=${hs256(good)}; Authorization=Bearer ${hs256(good)}` }],
    ['another header', lists, { 'x-authorization': `Bearer ${hs256(good)}`, 'x-access-token': hs256(good) }],
    ['Proxy-Authorization', lists, { 'proxy-authorization': `Bearer ${hs256(good)}` }],
  ])('ignores a valid token in %s', async (_, path, headers) => {
    expect((await secretApp.call('GET', path, { headers })).status).toBe(401);
  });

  test('refuses two Authorization headers, in either order', async () => {
    secretApp.app.listen({ port: 0, hostname: '127.0.0.1' });
    atEnd(() => secretApp.app.stop(true));
    const other = hs256({ ...good, sub: 'caller' });
    for (const [first, second] of [
      [hs256(good), other],
      [other, 'x'],
      ['x', other],
    ]) {
      const { exchange } = await connectRaw(secretApp.app.server?.port ?? 0);
      const headers = `Authorization: Bearer ${first}\r\nAuthorization: Bearer ${second}\r\nConnection: close`;
      expect(await exchange(`GET ${lists} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n\r\n`)).toStartWith(
        'HTTP/1.1 401 ',
      );
    }
  });

  test('refuses a changed payload with the signature of a cached token', async () => {
    const token = hs256(good);
    expect((await secretApp.call('GET', lists, bearer(token))).status).toBe(200);
    const forged = `${goodHead}.${part({ ...good, roles: ['salesManager'] })}.${goodSignature}`;
    expect((await secretApp.call('GET', lists, bearer(forged))).status).toBe(401);
    expect((await secretApp.call('GET', lists, bearer(token))).status).toBe(200);
  });

  test('does not cache forged tokens', async () => {
    const verify = await verifierOf({ kind: 'secret', secret: testSecret });
    const flood = async (count: number, from: number) => {
      for (let index = from; index < from + count; index += 1) {
        const token = `${goodHead}.${part({ ...good, sub: String(index), pad: 'a'.repeat(6_000) })}.${goodSignature}`;
        await verify(token).catch(() => undefined);
      }
      Bun.gc(true);
      return process.memoryUsage().heapUsed;
    };
    const before = await flood(500, 0);
    // Cached, they would hold 32 MB.
    expect((await flood(4_000, 500)) - before).toBeLessThan(12_000_000);
  });
});
