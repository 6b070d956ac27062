import { describe, expect, test } from 'bun:test';
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { SignJWT } from 'jose';
import { createTokenVerifier, type TokenSettings } from '../../src/auth/verifier';
import { createTestApp, testSecret } from '../support/app';
import { privateRoutes } from '../support/contract';

const now = new Date('2026-03-10T12:00:00.000Z');
const nowSeconds = Math.floor(now.getTime() / 1000);
const good = { sub: 'plain-user', exp: nowSeconds + 60, iss: 'issuer', aud: 'audience' };
const secret = new TextEncoder().encode(testSecret);
const ed25519 = generateKeyPairSync('ed25519');
const publicPem = ed25519.publicKey.export({ type: 'spki', format: 'pem' }).toString();

function settings(key: TokenSettings['key']): TokenSettings {
  return { key, issuer: 'issuer', audience: 'audience', rolesClaim: 'roles' };
}

const sharedSecret = await createTestApp({
  verifyToken: await createTokenVerifier(
    settings({ kind: 'secret', secret: testSecret }),
    () => now,
    () => now.getTime(),
  ),
});
const publicKey = await createTestApp({
  verifyToken: await createTokenVerifier(
    settings({ kind: 'public-key', pem: publicPem }),
    () => now,
    () => now.getTime(),
  ),
});

function hs256(payload: Record<string, unknown>, key: Uint8Array = secret, alg = 'HS256'): Promise<string> {
  return new SignJWT(payload).setProtectedHeader({ alg }).sign(key);
}

function base64url(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** A forged token that uses the text of the public key as the HMAC secret. */
function signedWithPublicKeyText(): string {
  const content = `${base64url({ alg: 'HS256' })}.${base64url(good)}`;
  return `${content}.${createHmac('sha256', publicPem).update(content).digest('base64url')}`;
}

const { exp: _exp, ...withoutExp } = good;
const { sub: _sub, ...withoutSub } = good;

const refused: Record<string, string> = {
  'an alg of none': `${base64url({ alg: 'none' })}.${base64url(good)}.`,
  'an alg of none with a signature': `${base64url({ alg: 'none' })}.${base64url(good)}.c2ln`,
  'another key': await hs256(good, new TextEncoder().encode('another secret that this service does not know')),
  'HS512 with the right key': await hs256(good, new Uint8Array(64).fill(7), 'HS512'),
  'an expired token': await hs256({ ...good, exp: nowSeconds - 6 }),
  'a token that is not valid yet': await hs256({ ...good, nbf: nowSeconds + 6 }),
  'no exp': await hs256(withoutExp),
  'no sub': await hs256(withoutSub),
  'an empty sub': await hs256({ ...good, sub: '' }),
  'a sub with NUL': await hs256({ ...good, sub: 'a\u0000b' }),
  'a sub of 256 characters': await hs256({ ...good, sub: 'a'.repeat(256) }),
  'a number as sub': await hs256({ ...good, sub: 5 }),
  'a wrong issuer': await hs256({ ...good, iss: 'another issuer' }),
  'a wrong audience': await hs256({ ...good, aud: 'another service' }),
  'a broken signature': `${(await hs256(good)).slice(0, -4)}AAAA`,
  'text that is not a token': 'x',
  'two parts': 'a.b',
};

const goodToken = await hs256(good);

describe('token verification', () => {
  test.each(Object.entries(refused))('returns 401 without the token in the response: %s', async (_, token) => {
    const response = await sharedSecret.call('GET', '/v2/private/healthAndCare/', {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(response.status).toBe(401);
    expect(response.headers.get('www-authenticate')).toContain('error="invalid_token"');
    expect(response.text).not.toContain(token === 'x' ? '"x"' : token);
  });

  test.each([
    ['Basic', 'Basic dXNlcjpwYXNz'],
    ['an empty Bearer', 'Bearer '],
    ['two tokens', `Bearer ${goodToken} ${goodToken}`],
    ['a token followed by a word', `Bearer ${goodToken} x`],
    ['a token followed by a comma', `Bearer ${goodToken}, realm="x"`],
    ['a word before Bearer', `x Bearer ${goodToken}`],
    ['a bare token', 'abc'],
  ])('returns 401 when the Authorization header has %s', async (_, authorization) => {
    const response = await sharedSecret.call('GET', '/v2/private/healthAndCare/', { headers: { authorization } });
    expect(response.status).toBe(401);
  });

  test.each([
    ['valid claims', good],
    ['an expiry less than 5 seconds ago', { ...good, exp: nowSeconds - 4 }],
    ['one role as text', { ...good, roles: 'salesManager' }],
  ])('accepts a token with %s', async (_, payload) => {
    const response = await sharedSecret.call('GET', '/v2/private/healthAndCare/', {
      headers: { authorization: `bearer ${await hs256(payload)}` },
    });
    expect(response.status).toBe(200);
  });

  test('accepts a token of the private key and rejects an HMAC of the public key text', async () => {
    const right = await new SignJWT(good).setProtectedHeader({ alg: 'EdDSA' }).sign(ed25519.privateKey);
    const call = (token: string) =>
      publicKey.call('GET', '/v2/private/healthAndCare/', { headers: { authorization: `Bearer ${token}` } });
    expect((await call(right)).status).toBe(200);
    expect((await call(signedWithPublicKeyText())).status).toBe(401);
    expect((await call(await hs256(good))).status).toBe(401);
  });
});

describe('verified-token cache', () => {
  test('rejects a cached token after its expiry', async () => {
    let time = now;
    const verify = await createTokenVerifier(
      settings({ kind: 'secret', secret: testSecret }),
      () => time,
      () => time.getTime(),
    );
    const token = await hs256({ ...good, exp: nowSeconds + 30 });
    expect(await verify(token)).toEqual({ id: 'plain-user', roles: [] });
    time = new Date(now.getTime() + 34_000);
    expect(await verify(token)).toEqual({ id: 'plain-user', roles: [] });
    time = new Date(now.getTime() + 35_001);
    await expect(verify(token)).rejects.toMatchObject({ slug: 'unauthenticated' });
  });

  test('rejects a cached token within a minute after its key was revoked', async () => {
    let time = now;
    const [revoked, current] = [generateKeyPairSync('ed25519'), generateKeyPairSync('ed25519')];
    let published = { ...revoked.publicKey.export({ format: 'jwk' }), kid: 'revoked' };
    const jwks = Bun.serve({ port: 0, fetch: () => Response.json({ keys: [published] }) });
    try {
      const verify = await createTokenVerifier(
        settings({ kind: 'jwks', url: jwks.url.href }),
        () => time,
        () => time.getTime(),
      );
      const sign = (kid: string, { privateKey }: typeof current) =>
        new SignJWT({ ...good, exp: nowSeconds + 10_000 }).setProtectedHeader({ alg: 'EdDSA', kid }).sign(privateKey);
      const token = await sign('revoked', revoked);
      await verify(token);
      published = { ...current.publicKey.export({ format: 'jwk' }), kid: 'current' };
      time = new Date(now.getTime() + 31_000);
      // An unknown key id triggers a new fetch of the keys.
      await verify(await sign('current', current));
      time = new Date(now.getTime() + 59_999);
      expect(await verify(token)).toMatchObject({ id: 'plain-user' });
      time = new Date(now.getTime() + 60_000);
      await expect(verify(token)).rejects.toMatchObject({ slug: 'unauthenticated', reason: 'key' });
    } finally {
      await jwks.stop(true);
    }
  });
});

test.each(privateRoutes)('$method $path verifies the token of a request once', async ({ method, target, body }) => {
  let calls = 0;
  const { call } = await createTestApp({
    verifyToken: async () => {
      calls += 1;
      return { id: 'plain-user', roles: [] };
    },
  });
  const response = await call(method, target, { as: 'plain-user', body: body?.examples[0] });
  expect(response.status).not.toBe(401);
  expect(calls).toBe(1);
});
