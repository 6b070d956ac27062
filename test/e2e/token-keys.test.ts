import { expect, test } from 'bun:test';
import { generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { SignJWT } from 'jose';
import { createDeployment, createProduction, productionSettings } from '../support/processes';
import { atEnd, until } from '../support/resources';
import { certificate } from '../support/servers';
import { metricsToken } from '../support/telemetry';

const keyPair = () => generateKeyPairSync('ec', { namedCurve: 'P-256' });
const setOf = ({ publicKey }: KeyPairKeyObjectResult) =>
  Response.json({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'current' }] });
const tokenOf = ({ privateKey }: KeyPairKeyObjectResult) =>
  new SignJWT()
    .setProtectedHeader({ alg: 'ES256', kid: 'current' })
    .setSubject('ada')
    .setIssuer(productionSettings.AUTH_ISSUER)
    .setAudience(productionSettings.AUTH_AUDIENCE)
    .setExpirationTime('1h')
    .sign(privateKey);

/** A JWKS server; a test sets its response. */
function startIssuer(tls: Bun.TLSOptions = {}) {
  const issuer = { respond: () => new Response('no', { status: 503 }), requests: 0, url: '' };
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    tls,
    fetch() {
      issuer.requests += 1;
      return issuer.respond();
    },
  });
  atEnd(() => server.stop(true));
  issuer.url = server.url.href;
  return issuer;
}

test('a service without token keys is not ready, and SIGHUP applies the published keys at once', async () => {
  const issuer = startIssuer();
  const url = issuer.url.replace('//', '//sesame-user:sesame-password@');
  const settings = { AUTH_JWKS_URL: `${url}?key=sesame-query`, METRICS_TOKEN: metricsToken };
  const service = await (await createProduction(settings, { without: ['AUTH_SECRET'] })).start();
  const get = (path: string, token: string) =>
    fetch(`${service.address}${path}`, { headers: { authorization: `Bearer ${token}` } });
  const lists = '/v2/private/healthAndCare/';
  const statusWith = async (token: string) => (await get(lists, token)).status;
  const keysAge = async () =>
    Number(/^planning_jwks_age_seconds (\S+)$/m.exec(await (await get('/metrics', metricsToken)).text())?.[1]);
  const [first, second] = [keyPair(), keyPair()];
  const [old, next] = await Promise.all([tokenOf(first), tokenOf(second)]);

  const refused = await get(lists, old);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
  expect(await refused.json()).toMatchObject({ type: '/problems/auth-keys-unavailable' });
  expect([await service.health(), await service.health('live')]).toEqual([503, 200]);

  issuer.respond = () => setOf(first);
  const sentAtMs = performance.now();
  service.process.kill('SIGHUP');
  await until(async () => (await service.health()) === 200);
  expect(await keysAge()).toBeLessThan((performance.now() - sentAtMs) / 1000);
  expect([await statusWith(old), await statusWith(next)]).toEqual([200, 401]);

  issuer.respond = () => setOf(second);
  service.process.kill('SIGHUP');
  await until(async () => (await statusWith(next)) === 200);
  expect(await statusWith(old)).toBe(401);
  expect(service.logLines().filter(({ msg }) => msg.includes('JWKS'))).toMatchObject([
    { level: 'error', setting: 'AUTH_JWKS_URL', reason: 'status-503' },
    { level: 'info', msg: 'the JWKS is fetched again' },
  ]);
  // The log shows no credentials of the address.
  expect(service.output()).not.toContain('sesame');
});

test.skipIf(Bun.which('openssl') === null)(
  'a certificate of a JWKS that is not accepted is named in the log and in doctor',
  async () => {
    const { certificate: cert, key } = await certificate();
    const issuer = startIssuer({ key, cert });
    const { planning, start } = await createDeployment({ AUTH_JWKS_URL: issuer.url }, { without: ['AUTH_SECRET'] });
    const { logLines } = await start();
    const { exitCode, stdout } = await planning('doctor');
    expect(exitCode).toBe(1);
    expect(stdout).toMatch(/AUTH_JWKS_URL has a TLS certificate that is not accepted \([A-Z_]+\)/);
    const lines = () => logLines().filter(({ msg }) => msg.includes('JWKS'));
    await until(() => lines().length > 0);
    expect(lines()).toMatchObject([{ reason: 'tls', code: expect.stringMatching(/^[A-Z_]+$/) }]);
    expect(issuer.requests).toBe(0);
  },
);
