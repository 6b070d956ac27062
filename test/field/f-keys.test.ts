import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync, type KeyPairKeyObjectResult } from 'node:crypto';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { createTokenVerifier } from '../../src/auth/verifier';
import { createProduction, type Production, productionSettings } from '../support/processes';
import { atEnd, runProgram, temporaryFolder, until } from '../support/resources';

type Jwk = Record<string, unknown>;

const rsa = (modulusLength = 2048) => generateKeyPairSync('rsa', { modulusLength });
const ec = () => generateKeyPairSync('ec', { namedCurve: 'P-256' });
const publicOf = ({ publicKey }: KeyPairKeyObjectResult, more: Jwk = {}): Jwk => ({
  ...publicKey.export({ format: 'jwk' }),
  ...more,
});
const privateOf = ({ privateKey }: KeyPairKeyObjectResult, more: Jwk = {}): Jwk => ({
  ...privateKey.export({ format: 'jwk' }),
  ...more,
});
const tokenOf = (pair: KeyPairKeyObjectResult, kid: string, now = new Date()) =>
  new SignJWT()
    .setProtectedHeader({ alg: 'ES256', kid })
    .setSubject('ada')
    .setIssuer(productionSettings.AUTH_ISSUER)
    .setAudience(productionSettings.AUTH_AUDIENCE)
    .setExpirationTime(new Date(now.getTime() + 3_600_000))
    .sign(pair.privateKey);

const [first, second] = [ec(), ec()];
const metricsToken = 'u5Gk9Wz2Qb7Xn4Td8Rm1Vc6Lj3Hs0PfYe';
const setOf = (...keys: Jwk[]) => Response.json({ keys });
const good = () => setOf(publicOf(first, { kid: 'first' }));

/** A JWKS server; a test sets its response. */
function startIssuer(tls?: Bun.TLSOptions) {
  const issuer = { respond: good as (request: Request) => Response, requests: 0, url: '' };
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    ...(tls && { tls }),
    fetch(request) {
      issuer.requests += 1;
      return issuer.respond(request);
    },
  });
  atEnd(() => server.stop(true));
  issuer.url = server.url.href;
  return issuer;
}

const createService = (url: string, environment: Record<string, string> = {}) =>
  createProduction({ AUTH_JWKS_URL: url, METRICS_TOKEN: metricsToken, ...environment }, { without: ['AUTH_SECRET'] });

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

/** The finding of `planning doctor` about the keys, and its exit code. */
async function doctorOf({ planning }: Awaited<ReturnType<typeof createProduction>>) {
  const { exitCode, stdout } = await planning('doctor', '--json');
  const { findings } = v.parse(Findings, JSON.parse(stdout));
  const found = findings.find(({ check }) => check === 'token keys');
  return { exitCode, result: found?.result, detail: found?.detail };
}

const readUser = async ({ address }: Production, token: string) =>
  fetch(`${address}/v2/private/healthAndCare/`, { headers: { authorization: `Bearer ${token}` } });
const keyLines = (service: Production) => service.logLines().filter(({ msg }) => msg.includes('JWKS'));

async function keysAge({ address }: Production): Promise<number> {
  const response = await fetch(`${address}/metrics`, { headers: { authorization: `Bearer ${metricsToken}` } });
  return Number(/^planning_jwks_age_seconds (\S+)$/m.exec(await response.text())?.[1]);
}

/** Sends one byte every 100 ms without an end. */
function endless(): Response {
  let timer: Timer | undefined;
  const body = new ReadableStream({
    start(controller) {
      timer = setInterval(() => controller.enqueue(new TextEncoder().encode(' ')), 100);
    },
    cancel: () => clearInterval(timer),
  });
  return new Response(body);
}

const badSets: [name: string, respond: (request: Request) => Response, reason: string, detail: string][] = [
  ['an HTML page', () => new Response('<!doctype html>'), 'not-json', 'does not send JSON'],
  ['{}', () => Response.json({}), 'not-a-key-set', 'sends JSON without an array `keys`'],
  ['an empty set', () => setOf(), 'no-keys', 'sends a set without keys'],
  [
    'only private keys',
    () => setOf(privateOf(first, { kid: 'first' })),
    'no-usable-key',
    'sends no usable key; "first" is not usable: it contains its private key: stop signing with it',
  ],
  ['a huge response', () => setOf({ x5c: ['A'.repeat(600_000)] }), 'too-large', 'sends more than 512 kB'],
  [
    'keys of a wrong kind',
    () =>
      setOf(
        publicOf(rsa(), { kid: 'a', alg: 'ES256' }),
        publicOf(rsa(1024), { kid: 'b' }),
        publicOf(ec(), { kid: 'c', use: 'enc' }),
        publicOf(rsa(), { kid: 'd', alg: 'PS256' }),
        { kty: 'oct', kid: 'e\u001b[2J', k: 'c2VjcmV0' },
      ),
    'no-usable-key',
    'sends no usable key; "a" is not usable: its kty, crv and alg do not fit together, or it cannot be read; "b" is not usable: it is an RSA key of fewer than 2048 bits; "c" is not usable: its use is not sig; "d" is not usable: its alg is not one of EdDSA, ES256 and RS256; "e?[2J" is not usable: it is a shared secret, which a JWKS must not publish',
  ],
  [
    'a redirect loop',
    (request) => Response.redirect(request.url),
    'redirect-302',
    'redirects, which is not followed: set the final address (status 302)',
  ],
  ['500', () => new Response('no', { status: 500 }), 'status-500', 'does not respond with 200 (status 500)'],
  ['an endless response', endless, 'timeout', 'does not send the whole set within 3 s'],
];

describe('F7 a JWKS that becomes bad', () => {
  test('F7 leaves the last keys in use, and appears in the log and in doctor', async () => {
    const issuer = startIssuer();
    const production = await createService(issuer.url);
    const service = await production.start();
    const reload = () => service.process.kill('SIGHUP');
    const token = await tokenOf(first, 'first');
    expect((await readUser(service, token)).status).toBe(200);
    expect(keyLines(service)).toEqual([]);
    expect(await doctorOf(production)).toEqual({
      exitCode: 0,
      result: 'ok',
      detail: 'AUTH_JWKS_URL has 1 usable key: "first" (ES256)',
    });

    for (const [index, [name, respond, reason, detail]] of badSets.entries()) {
      issuer.respond = respond;
      reload();
      const [found] = await Promise.all([doctorOf(production), until(() => keyLines(service).length > index)]);
      expect({ name, ...keyLines(service)[index] }).toMatchObject({
        name,
        level: 'warn',
        setting: 'AUTH_JWKS_URL',
        reason,
      });
      expect({ name, ...found }).toEqual({ name, exitCode: 1, result: 'failed', detail: `AUTH_JWKS_URL ${detail}` });
      expect((await readUser(service, token)).status).toBe(200);
      expect(await service.health()).toBe(200);
    }
    const newLines = () => keyLines(service).filter(({ msg }) => !msg.endsWith('(repeated)'));
    const before = newLines();
    reload();
    await until(() => service.logLines().filter(({ msg }) => msg.includes('read again')).length > badSets.length);
    // The same failure is not logged again at once.
    expect(newLines()).toEqual(before);

    const age = await keysAge(service);
    issuer.respond = good;
    reload();
    await until(() => keyLines(service).some(({ msg }) => msg === 'the JWKS is fetched again'));
    expect(await keysAge(service)).toBeLessThan(age);
  }, 120_000);

  test('F7 appears in doctor when part of it is usable', async () => {
    const issuer = startIssuer();
    issuer.respond = () =>
      setOf(publicOf(first, { kid: 'a' }), publicOf(second, { kid: 'a' }), privateOf(ec(), { kid: 'leaked' }));
    expect(await doctorOf(await createService(issuer.url))).toEqual({
      exitCode: 0,
      result: 'warning',
      detail:
        'AUTH_JWKS_URL has 2 usable keys: "a" (ES256), "a" (ES256); "leaked" is not usable: it contains its private key: stop signing with it; several keys have the kid "a"',
    });
  });
});

describe('F7 a JWKS that is bad at the start', () => {
  test('F7 makes the service not ready, and recovers by itself', async () => {
    const issuer = startIssuer();
    issuer.respond = () => new Response('no', { status: 503 });
    const service = await (await createService(issuer.url)).start();
    await until(() => keyLines(service).length > 0);
    expect(keyLines(service)).toMatchObject([
      { level: 'error', setting: 'AUTH_JWKS_URL', reason: 'status-503', msg: expect.stringContaining('no token') },
    ]);
    const refused = await readUser(service, await tokenOf(first, 'first'));
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await refused.json()).toMatchObject({ type: '/problems/auth-keys-unavailable' });
    expect([await service.health(), await service.health('live')]).toEqual([503, 200]);
    issuer.respond = good;
    await until(async () => (await service.health()) === 200);
    expect((await readUser(service, await tokenOf(first, 'first'))).status).toBe(200);
    expect(keyLines(service).length).toBe(2);
  });

  test.skipIf(Bun.which('openssl') === null)('F7 names an expired certificate', async () => {
    const folder = temporaryFolder();
    await Bun.write(
      join(folder, 'ca.cnf'),
      `[ca]
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
`,
    );
    await Bun.write(join(folder, 'index.txt'), '');
    const openssl = (line: string) => runProgram(folder, ['openssl', ...line.split(' ')]);
    await openssl(
      'req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -subj /CN=a -out req.pem -config ca.cnf',
    );
    await openssl(
      'ca -batch -selfsign -config ca.cnf -keyfile key.pem -in req.pem -out cert.pem -notext -startdate 20200101000000Z -enddate 20210101000000Z',
    );
    const certificate = join(folder, 'cert.pem');
    const issuer = startIssuer({ key: Bun.file(join(folder, 'key.pem')), cert: Bun.file(certificate) });
    const production = await createService(issuer.url, { NODE_EXTRA_CA_CERTS: certificate });
    const [service, found] = await Promise.all([production.start(), doctorOf(production)]);
    expect(found).toEqual({
      exitCode: 1,
      result: 'failed',
      detail: 'AUTH_JWKS_URL has a TLS certificate that is not accepted (CERT_HAS_EXPIRED)',
    });
    await until(() => keyLines(service).length > 0);
    expect(keyLines(service)).toMatchObject([{ reason: 'tls', code: 'CERT_HAS_EXPIRED' }]);
    expect(issuer.requests).toBe(0);
  });
});

describe('F7 a rotation of keys', () => {
  /** A verifier with a test clock. */
  async function createVerifier(url: string) {
    const clock = { ms: Date.now() };
    const now = () => new Date(clock.ms);
    const claims = { issuer: productionSettings.AUTH_ISSUER, audience: undefined, rolesClaim: 'roles' };
    const fetched = { count: 0 };
    const onKeysFetched = () => {
      fetched.count += 1;
    };
    const verify = await createTokenVerifier({ key: { kind: 'jwks', url }, ...claims }, now, () => clock.ms, {
      onKeysFetched,
    });
    return { clock, fetched, verify };
  }

  test('F7 uses a new key within 30 seconds, and refuses a removed one after 11 minutes', async () => {
    const issuer = startIssuer();
    const { clock, fetched, verify } = await createVerifier(issuer.url);
    const [old, next] = [await tokenOf(first, 'first'), await tokenOf(second, 'second')];
    await verify(old);
    issuer.respond = () => setOf(publicOf(second, { kid: 'second' }));
    clock.ms += 30_000;
    await verify(next);
    await expect(verify(old)).resolves.toMatchObject({ id: 'ada' });
    clock.ms += 60_000;
    await expect(verify(old)).rejects.toMatchObject({ reason: 'key' });

    issuer.respond = () => setOf(publicOf(ec(), { kid: 'third' }));
    const before = fetched.count;
    clock.ms += 11 * 60_000;
    await verify(next);
    await until(() => fetched.count > before);
    clock.ms += 60_000;
    await expect(verify(next)).rejects.toMatchObject({ reason: 'key' });
  });

  test('F7 takes effect at once on SIGHUP', async () => {
    const issuer = startIssuer();
    const service = await (await createService(issuer.url)).start();
    const [old, next] = [await tokenOf(first, 'first'), await tokenOf(second, 'second')];
    expect((await readUser(service, old)).status).toBe(200);
    expect((await readUser(service, next)).status).toBe(401);
    issuer.respond = () => setOf(publicOf(second, { kid: 'second' }));
    service.process.kill('SIGHUP');
    await until(async () => (await readUser(service, next)).status === 200);
    expect((await readUser(service, old)).status).toBe(401);
  });

  test('F7 allows a clock difference of five seconds', async () => {
    const { clock, verify } = await createVerifier(startIssuer().url);
    const token = await tokenOf(first, 'first', new Date(clock.ms));
    clock.ms += 3_600_000 + 3_000;
    await verify(token);
    clock.ms += 4_000;
    await expect(verify(token)).rejects.toMatchObject({ reason: 'expired' });
  });
});
