import { describe, expect, test } from 'bun:test';
import { SignJWT } from 'jose';
import { createTokenVerifier, type TokenRefusal, tokenRefusals } from '../../src/auth/verifier';
import { createTestApp, listen, testSecret } from '../support/app';
import { privateRoutes } from '../support/contract';
import { connectRaw } from '../support/http';

const now = new Date('2026-03-10T12:00:00.000Z');
const lists = '/v2/private/healthAndCare/';
const good = { sub: 'ada', exp: now.getTime() / 1000 + 60, iss: 'issuer', aud: 'audience' };
const sign = (payload: Record<string, unknown>) =>
  new SignJWT(payload).setProtectedHeader({ alg: 'HS256' }).sign(new TextEncoder().encode(testSecret));
const token = await sign(good);
const bobs = await sign({ ...good, sub: 'bob' });
const testApp = await createTestApp({
  verifyToken: await createTokenVerifier(
    { key: { kind: 'secret', secret: testSecret }, issuer: 'issuer', audience: 'audience', rolesClaim: 'roles' },
    () => now,
    () => now.getTime(),
  ),
});
const port = listen(testApp);
const read = (authorization: string) => testApp.call('GET', lists, { headers: { authorization } });

const value = 'value-4711';

describe('a refused token', () => {
  test.each<[TokenRefusal, payload: Record<string, unknown> | string]>([
    ['issuer', { ...good, iss: value }],
    ['audience', { ...good, aud: `planning.${value}` }],
    ['start-invalid', { ...good, nbf: value }],
    ['expiry', { ...good, exp: value }],
    ['subject', { ...good, sub: { id: value } }],
    ['malformed', value],
  ])('returns 401 and a log line with the failed check and no value: %s', async (reason, payload) => {
    const sent = typeof payload === 'string' ? payload : await sign(payload);
    testApp.logLines.length = 0;
    const response = await read(`Bearer ${sent}`);
    const detail = tokenRefusals[reason];
    expect(response).toMatchObject({ status: 401, body: { detail } });
    expect(response.headers.get('www-authenticate')).toBe(
      `Bearer realm="personal-planning", error="invalid_token", error_description="${detail}"`,
    );
    const log = testApp.logLines.join('');
    expect(log.split(`"reason":"${reason}"`)).toHaveLength(2);
    for (const text of [response.text, log]) for (const secret of [value, sent]) expect(text).not.toContain(secret);
  });

  test('has a detail that is valid in a header of RFC 6750, for each reason', () => {
    for (const detail of Object.values(tokenRefusals)) expect(detail).toMatch(/^[\x20-\x21\x23-\x5b\x5d-\x7e]+$/);
  });
});

describe('Authorization header', () => {
  test.each(['Bearer', 'bearer', 'BEARER', 'Bearer '])('accepts the scheme %p', async (scheme) => {
    expect((await read(`${scheme} ${token}`)).status).toBe(200);
  });

  test.each([
    ['Basic', 'Basic dXNlcjpwYXNz'],
    ['an empty Bearer', 'Bearer '],
    ['two tokens', `Bearer ${token} ${token}`],
    ['a word before Bearer', `x Bearer ${token}`],
    ['a bare token', token],
    ...['=', '==', '.', '\u00a0', '%3D', '\t.', '.a', 'A', ' x', ', x', ', realm="x"', '\u0000'].map(
      (tail) => [`a valid token and ${JSON.stringify(tail)}`, `Bearer ${encodeURI(token + tail)}`] as const,
    ),
    ...[' x', ', realm="x"'].map((tail) => [`a valid token and ${tail}, unescaped`, `Bearer ${token}${tail}`] as const),
  ])('returns 401 for %s', async (_, authorization) => {
    expect((await read(authorization)).status).toBe(401);
  });

  test.each<[string, string, Record<string, string>]>([
    ['the query', `${lists}?access_token=${token}&token=${token}`, {}],
    ['a cookie', lists, { cookie: `token=${token}; Authorization=Bearer ${token}` }],
    ['another header', lists, { 'x-authorization': `Bearer ${token}`, 'x-access-token': token }],
    ['Proxy-Authorization', lists, { 'proxy-authorization': `Bearer ${token}` }],
  ])('is the only place of a token: returns 401 for a valid token in %s', async (_, path, headers) => {
    expect((await testApp.call('GET', path, { headers })).status).toBe(401);
  });

  test.each([
    [token, bobs],
    [bobs, 'x'],
    ['x', bobs],
  ])('returns 401 for two headers, in either order: %#', async (first, second) => {
    const { exchange } = await connectRaw(port);
    const headers = `Authorization: Bearer ${first}\r\nAuthorization: Bearer ${second}\r\nConnection: close`;
    const response = await exchange(`GET ${lists} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n\r\n`);
    expect(response).toStartWith('HTTP/1.1 401 ');
  });
});

describe('a request', async () => {
  let verified = 0;
  const { call } = await createTestApp({
    verifyToken: async () => {
      verified += 1;
      return { id: 'plain-user', roles: [] };
    },
  });

  test.each(privateRoutes)('verifies its token once: $method $path', async ({ method, target, body }) => {
    const before = verified;
    expect((await call(method, target, { as: 'plain-user', body: body?.examples[0] })).status).not.toBe(401);
    expect(verified - before).toBe(1);
  });
});
