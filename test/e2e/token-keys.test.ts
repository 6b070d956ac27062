import { expect, test } from 'bun:test';
import { generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { createProduction, productionSettings } from '../support/processes';
import { atEnd, runProgram, temporaryFolder, until } from '../support/resources';
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

const createService = (url: string, environment: Record<string, string> = {}) =>
  createProduction({ AUTH_JWKS_URL: url, METRICS_TOKEN: metricsToken, ...environment }, { without: ['AUTH_SECRET'] });

test('a service without token keys is not ready, and SIGHUP applies the published keys at once', async () => {
  const issuer = startIssuer();
  const url = issuer.url.replace('//', '//sesame-user:sesame-password@');
  const service = await (await createService(`${url}?key=sesame-query`)).start();
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

const certificateAuthority = `[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
default_md = sha256
policy = any
rand_serial = yes
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = IP:127.0.0.1
[req]
distinguished_name = name
[name]
`;

test.skipIf(Bun.which('openssl') === null)(
  'an expired certificate of a JWKS is named in the log and in doctor',
  async () => {
    const folder = temporaryFolder();
    await Promise.all([
      Bun.write(join(folder, 'ca.cnf'), certificateAuthority),
      Bun.write(join(folder, 'index.txt'), ''),
    ]);
    for (const command of [
      'req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -subj /CN=a -out req.pem -config ca.cnf',
      'ca -batch -selfsign -config ca.cnf -keyfile key.pem -in req.pem -out cert.pem -notext -startdate 20200101000000Z -enddate 20210101000000Z',
    ]) {
      await runProgram(folder, ['openssl', ...command.split(' ')]);
    }
    const certificate = join(folder, 'cert.pem');
    const issuer = startIssuer({ key: Bun.file(join(folder, 'key.pem')), cert: Bun.file(certificate) });
    const production = await createService(issuer.url, { NODE_EXTRA_CA_CERTS: certificate });
    const service = await production.start();
    const { exitCode, stdout } = await production.planning('doctor');
    expect(exitCode).toBe(1);
    expect(stdout).toContain('AUTH_JWKS_URL has a TLS certificate that is not accepted (CERT_HAS_EXPIRED)');
    const lines = () => service.logLines().filter(({ msg }) => msg.includes('JWKS'));
    await until(() => lines().length > 0);
    expect(lines()).toMatchObject([{ reason: 'tls', code: 'CERT_HAS_EXPIRED' }]);
    expect(issuer.requests).toBe(0);
  },
);
