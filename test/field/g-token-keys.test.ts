import { beforeEach, describe, expect, test } from 'bun:test';
import { createHmac, generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { SignJWT } from 'jose';
import { createTokenVerifier } from '../../src/auth/verifier';
import { atEnd } from '../support/resources';

type Jwk = Record<string, unknown>;

const now = new Date('2026-03-10T12:00:00.000Z');
const exp = now.getTime() / 1000 + 3600;
const rsa = (modulusLength = 2048) => generateKeyPairSync('rsa', { modulusLength });
const ec = (namedCurve = 'P-256') => generateKeyPairSync('ec', { namedCurve });
const [rsa1, rsa2, ec1, ec2, p384, ed] = [rsa(), rsa(), ec(), ec(), ec('P-384'), generateKeyPairSync('ed25519')];
const jwk = ({ publicKey }: KeyPairKeyObjectResult, more: Jwk = {}): Jwk => ({
  ...publicKey.export({ format: 'jwk' }),
  ...more,
});
const token = ({ privateKey }: KeyPairKeyObjectResult, alg: string, more: { kid?: string; exp?: number } = {}) => {
  const header = more.kid === undefined ? { alg } : { alg, kid: more.kid };
  return new SignJWT({ sub: 'ada', exp: more.exp ?? exp }).setProtectedHeader(header).sign(privateKey);
};

let published: Jwk[] = [];
let fetches = 0;
let passedMs = 0;
beforeEach(() => {
  fetches = 0;
  passedMs = 0;
});
const server = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch() {
    fetches += 1;
    return Response.json({ keys: published });
  },
});
atEnd(() => server.stop(true));

const verifier = () =>
  createTokenVerifier(
    { key: { kind: 'jwks', url: server.url.href }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
    () => now,
    () => now.getTime() + passedMs,
  );

describe('G10 a JWKS', () => {
  test.each<[string, keys: Jwk[], token: () => Promise<string>]>([
    ['two keys, the first one signed', [jwk(rsa1, { kid: 'a' }), jwk(rsa2, { kid: 'b' })], () => token(rsa1, 'RS256')],
    ['two keys, the second one signed', [jwk(rsa1, { kid: 'a' }), jwk(rsa2, { kid: 'b' })], () => token(rsa2, 'RS256')],
    ['two keys without alg, kid and use', [jwk(ec1), jwk(ec2)], () => token(ec2, 'ES256')],
    ['keys of several types', [jwk(rsa1), jwk(p384), jwk(ed), jwk(ec1), jwk(ec2)], () => token(ec2, 'ES256')],
    ['two keys of one kid', [jwk(ec1, { kid: 'a' }), jwk(ec2, { kid: 'a' })], () => token(ec2, 'ES256', { kid: 'a' })],
    ['a short key beside the right one', [jwk(rsa(1024)), jwk(rsa1)], () => token(rsa1, 'RS256')],
    ['a broken key beside the right one', [{ kty: 'RSA', n: '!', e: 'AQAB' }, jwk(rsa1)], () => token(rsa1, 'RS256')],
    [
      'seven other keys before the right one',
      [...Array.from({ length: 7 }, () => jwk(ec())), jwk(ec1)],
      () => token(ec1, 'ES256'),
    ],
  ])('G10 accepts a token without kid with %s', async (_, keys, sign) => {
    published = keys;
    expect(await (await verifier())(await sign())).toEqual({ id: 'ada', roles: [] });
  });

  test.each<[string, keys: Jwk[], reason: string, token: () => Promise<string>]>([
    ['an unknown key', [jwk(ec1), jwk(ec2)], 'signature', () => token(ec(), 'ES256')],
    [
      'a key after eight others',
      [...Array.from({ length: 8 }, () => jwk(ec())), jwk(ec1)],
      'signature',
      () => token(ec1, 'ES256'),
    ],
    [
      'an expired token of the second key',
      [jwk(ec1), jwk(ec2), jwk(ec())],
      'expired',
      () => token(ec2, 'ES256', { exp: exp - 9999 }),
    ],
    ['a key for encryption', [jwk(ec1, { use: 'enc' }), jwk(ec2)], 'signature', () => token(ec1, 'ES256')],
    ['a short key', [jwk(rsa(1024)), jwk(ec1)], 'key', () => token(rsa1, 'RS256')],
  ])('G10 refuses %s', async (_, keys, reason, sign) => {
    published = keys;
    await expect((await verifier())(await sign())).rejects.toMatchObject({ slug: 'unauthenticated', reason });
  });

  test('G10 finds a rotated key for tokens without kid, and reloads the keys once in thirty seconds', async () => {
    published = [jwk(ec1)];
    const verify = await verifier();
    await verify(await token(ec1, 'ES256'));
    published = [jwk(ec2)];
    passedMs = 29_000;
    await expect(verify(await token(ec2, 'ES256'))).rejects.toMatchObject({ reason: 'signature' });
    expect(fetches).toBe(1);
    passedMs = 31_000;
    expect(await verify(await token(ec2, 'ES256'))).toMatchObject({ id: 'ada' });
    for (let count = 0; count < 5; count += 1) await verify(await token(ec(), 'ES256')).catch(() => undefined);
    expect(fetches).toBe(2);
  });
});

describe('G11 the algorithms of a JWKS', () => {
  const secret = Buffer.alloc(48, 7);
  const hs256 = () => {
    const content = [
      { alg: 'HS256', kid: 'oct' },
      { sub: 'ada', exp },
    ]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
    return Promise.resolve(`${content}.${createHmac('sha256', secret).update(content).digest('base64url')}`);
  };

  test.each<[string, keys: Jwk[], token: () => Promise<string>]>([
    ['RS384', [jwk(rsa1)], () => token(rsa1, 'RS384')],
    ['RS512', [jwk(rsa1)], () => token(rsa1, 'RS512')],
    ['PS256', [jwk(rsa1)], () => token(rsa1, 'PS256')],
    ['ES384', [jwk(p384)], () => token(p384, 'ES384')],
    ['ES384 with a key of that alg', [jwk(p384, { alg: 'ES384' })], () => token(p384, 'ES384')],
    ['HS256 by a published secret', [{ kty: 'oct', kid: 'oct', k: secret.toString('base64url') }], hs256],
  ])('G11 refuse %s', async (_, keys, sign) => {
    published = keys;
    await expect((await verifier())(await sign())).rejects.toMatchObject({
      slug: 'unauthenticated',
      reason: 'algorithm',
    });
  });

  test.each(['RS384', 'RS512', 'PS256'])('G11 refuse %s for a public key', async (alg) => {
    const pem = rsa1.publicKey.export({ type: 'spki', format: 'pem' }).toString();
    const verify = await createTokenVerifier(
      { key: { kind: 'public-key', pem }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
      () => now,
      () => now.getTime(),
    );
    await expect(verify(await token(rsa1, alg))).rejects.toMatchObject({ reason: 'algorithm' });
    expect(await verify(await token(rsa1, 'RS256'))).toMatchObject({ id: 'ada' });
  });

  test.each<[string, KeyPairKeyObjectResult]>([
    ['RS256', rsa1],
    ['ES256', ec1],
    ['EdDSA', ed],
    ['Ed25519', ed],
  ])('G11 accept %s', async (alg, pair) => {
    published = [jwk(pair)];
    expect(await (await verifier())(await token(pair, alg))).toMatchObject({ id: 'ada' });
  });
});
