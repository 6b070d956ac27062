import { describe, expect, test } from 'bun:test';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { excludeLoopback, proxyHostFor } from '../../src/start/services';
import { applicant, callerOf, createTestApp, listen, startSandbox, type TestResponse } from '../support/app';
import { createCommandLine } from '../support/command';
import { connectRaw } from '../support/http';
import { startService } from '../support/processes';
import { atEnd, freePort, until } from '../support/resources';
import {
  hasSqld,
  missingProxies,
  nginxTemporaryFiles,
  type ProxyPlace,
  startProxy,
  startSqld,
} from '../support/servers';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';

/** A proxy that records each call and refuses it, and the variables that name it. */
function startOutgoingProxy() {
  const calls: string[] = [];
  const server = Bun.listen({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      data(socket, chunk) {
        calls.push(chunk.toString());
        socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
      },
    },
  });
  atEnd(() => server.stop(true));
  const host = `127.0.0.1:${server.port}`;
  const url = `http://user:secret@${host}`;
  return { calls, host, url, environment: { HTTP_PROXY: url, https_proxy: url, ALL_PROXY: url } };
}

function serve(fetch: () => Response): URL {
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch });
  atEnd(() => server.stop(true));
  return server.url;
}

async function startIssuer() {
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const keys = [await exportJWK(publicKey)];
  const header = { alg: 'ES256' };
  const token = new SignJWT().setProtectedHeader(header).setSubject('ada').setExpirationTime('1h').sign(privateKey);
  return { url: serve(() => Response.json({ keys })), token: await token };
}

const apply = (address: string, token: string) =>
  fetch(`${address}/v2/private/ltc/totalCoverage`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(applicant),
  });

describe('proxy in the environment', () => {
  test.skipIf(!hasSqld)(
    'carries the calls to other hosts, and none to a libSQL server, JWKS or trace receiver on loopback',
    async () => {
      const proxy = startOutgoingProxy();
      const [issuer, sqld] = await Promise.all([startIssuer(), startSqld()]);
      let traces = 0;
      const receiver = serve(() => {
        traces += 1;
        return new Response();
      });
      const environment = {
        ...proxy.environment,
        NO_PROXY: 'internal.example',
        DATABASE_URL: sqld.url.replace('127.0.0.1', 'localhost'),
        AUTH_JWKS_URL: issuer.url.href,
        CARRIER_URL: 'http://carrier.example',
        CARRIER_API_KEY: 'test-key',
        CARRIER_ATTEMPTS: '1',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.origin,
      };
      const line = await createCommandLine(environment, { isEmpty: true, isProcess: true });
      expect(await line.planning('migrate')).toMatchObject({ exitCode: 0 });
      const service = await startService({ environment });
      expect((await apply(service.address, issuer.token)).status).toBe(503);
      await until(() => traces > 0);
      const calls = proxy.calls.map((call) => call.split('\r\n', 1)[0]);
      expect(new Set(calls)).toEqual(new Set(['POST http://carrier.example/applications HTTP/1.1']));
    },
  );

  test('is named by doctor without credentials for other hosts, and not for loopback', async () => {
    const { environment, host } = startOutgoingProxy();
    const settings = { ...environment, AUTH_ISSUER: 'issuer', CARRIER_API_KEY: 'test-key' };
    const doctor = async (carrier: string, issuer: string) => {
      const urls = { CARRIER_URL: carrier, AUTH_JWKS_URL: issuer };
      return (await createCommandLine({ ...settings, ...urls }, { isProcess: true })).planning('doctor');
    };
    const [other, loopback] = await Promise.all([
      doctor('http://carrier.example', 'https://issuer.example/keys'),
      doctor('http://127.0.0.1:1', 'http://localhost:1/keys'),
    ]);
    expect(other.stdout).toContain(`carrier.example is called through ${host}\n`);
    expect(other.stdout).toContain(`issuer.example is called through ${host}\n`);
    expect(other.stdout + other.stderr).not.toContain('secret');
    expect(loopback.stdout).not.toContain('proxy');
    expect(loopback.stdout).toContain('carrier');
  });
});

describe('variables of a proxy', () => {
  const proxy = startOutgoingProxy();
  const proxies = { HTTP_PROXY: proxy.url };
  const names = ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'].flatMap((name) => [name, name.toUpperCase()]);
  const loopback = ['127.0.0.1', '127.8.8.8', 'localhost', 'LOCALHOST', 'a.localhost', '[::1]', '[::]', '0.0.0.0'];

  /** Whether Bun sends a request for a host to the proxy under the given variables. */
  async function isSentToProxy(variables: Record<string, string>, host: string): Promise<boolean> {
    const before = names.map((name) => [name, process.env[name]] as const);
    proxy.calls.length = 0;
    try {
      for (const name of names) delete process.env[name];
      Object.assign(process.env, variables);
      await fetch(`http://${host}/`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined);
      return proxy.calls.length > 0;
    } finally {
      for (const [name, text] of before) {
        if (text === undefined) delete process.env[name];
        else process.env[name] = text;
      }
    }
  }

  test.each<[Record<string, string>, host: string, isProxied: boolean]>([
    ...loopback.flatMap((host): [Record<string, string>, string, boolean][] => [
      [proxies, host, false],
      [{ ALL_PROXY: proxy.url, NO_PROXY: 'x.example' }, host, false],
      [{ http_proxy: proxy.url, no_proxy: 'x.example', NO_PROXY: 'y.example' }, host, false],
    ]),
    [proxies, 'carrier.test', true],
    [{ HTTPS_PROXY: proxy.url }, 'carrier.test', false],
    [{ ALL_PROXY: proxy.url, HTTP_PROXY: '' }, 'carrier.test', true],
    [{ ALL_PROXY: 'socks5://127.0.0.1:1' }, 'carrier.test', false],
    [{ ...proxies, NO_PROXY: '.carrier.test' }, 'carrier.test', false],
    [{ ...proxies, NO_PROXY: 'carrier.test, x' }, 'api.carrier.test', false],
    [{ ...proxies, NO_PROXY: '*.carrier.test x' }, 'carrier.test', false],
    [{ ...proxies, NO_PROXY: 'carrier.test' }, 'xcarrier.test', true],
    [{ ...proxies, NO_PROXY: 'carrier.test:81' }, 'carrier.test', true],
    [{ ...proxies, NO_PROXY: 'carrier.test:80' }, 'carrier.test', false],
    [{ ...proxies, no_proxy: '""', NO_PROXY: 'CARRIER.test.' }, 'carrier.test', false],
    [{ ...proxies, no_proxy: 'x', NO_PROXY: 'carrier.test' }, 'carrier.test', true],
    [{ ...proxies, NO_PROXY: '192.0.2.0/24' }, '192.0.2.9', false],
    ...['33', '-1', '8.5', '', 'abc', '255.0.0.0', '8/9', '+8', '0x8', '1e1'].flatMap((length) =>
      ['192.0.2.9', '203.0.113.9'].map((host): [Record<string, string>, string, boolean] => [
        { ...proxies, NO_PROXY: `192.0.2.9/${length}` },
        host,
        true,
      ]),
    ),
    [{ ...proxies, NO_PROXY: '192.0.2.0/024' }, '192.0.2.9', false],
    [{ ...proxies, NO_PROXY: '192.0.2.0/024' }, '192.0.3.9', true],
    [{ ...proxies, NO_PROXY: '192.0.2.0/24' }, '[::ffff:192.0.2.9]', false],
    [{ ...proxies, NO_PROXY: '192.0.2.9' }, '[::ffff:192.0.2.9]', false],
    [{ ...proxies, NO_PROXY: '0.0.0.0/0' }, '192.0.2.9', false],
    [{ ...proxies, NO_PROXY: '0.0.0.0/0' }, '[2001:db8::1]', true],
    [{ ...proxies, NO_PROXY: '::/0' }, '192.0.2.9', true],
    [{ ...proxies, NO_PROXY: '::/0' }, '[2001:db8::1]', false],
    [{ ...proxies, NO_PROXY: '2001:db8::/32' }, '[2001:db8::1]', false],
    [{ ...proxies, NO_PROXY: '2001:db8::/32' }, '[2001:db9::1]', true],
    [{ ...proxies, NO_PROXY: '2001:db8::1/129' }, '[2001:db8::1]', true],
    [{ ...proxies, NO_PROXY: '::ffff:0:0/96' }, '192.0.2.9', false],
    [{ ...proxies, NO_PROXY: '::ffff:192.0.2.0/120' }, '192.0.2.9', false],
    [{ ...proxies, NO_PROXY: '::ffff:192.0.2.0/120' }, '[::ffff:192.0.2.9]', false],
    [{ ...proxies, NO_PROXY: '[::ffff:192.0.2.0]/120' }, '192.0.2.9', false],
    [{ ...proxies, NO_PROXY: '::ffff:192.0.2.0/120' }, '192.0.3.9', true],
    [{ ...proxies, NO_PROXY: '::ffff:192.0.2.0/24' }, '192.0.2.9', true],
    [{ ...proxies, NO_PROXY: '::ffff:192.0.2.9/129' }, '192.0.2.9', true],
    [{ ...proxies, NO_PROXY: '*' }, 'carrier.test', false],
  ])('have the same effect as in Bun, with loopback excluded: %j, %s', async (variables, host, isProxied) => {
    const environment = { ...variables };
    excludeLoopback(environment);
    expect(proxyHostFor(`http://${host}/`, environment) !== undefined).toBe(isProxied);
    expect(await isSentToProxy(environment, host)).toBe(isProxied);
  });
});

test.skipIf(missingProxies.includes('haproxy'))(
  'HAProxy marks an instance as up by each kind of check, and as down while it drains',
  async () => {
    const checks = [
      'option httpchk',
      'option httpchk GET /health/ready',
      'option httpchk\n  http-check send meth HEAD uri /health/ready ver HTTP/1.1 hdr Host x',
    ];
    const testApp = await createTestApp();
    const target = `127.0.0.1:${listen(testApp)}`;
    const ports = await Promise.all(checks.map(freePort));
    await startProxy(
      'haproxy',
      ({ port }) => `
${haproxyDefaults}
frontend unused
  bind 127.0.0.1:${port}
${checks
  .map(
    (check, index) => `
listen by${index}
  bind 127.0.0.1:${ports[index]}
  ${check}
  server one ${target} check inter 50 fall 1 rise 1
`,
  )
  .join('')}`,
    );
    /** For each check, whether HAProxy considers the instance up; without one it returns 503 itself. */
    const states = () =>
      Promise.all(
        ports.map(async (port) => {
          const { exchange } = await connectRaw(port);
          const head = 'GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
          return (await exchange(head)).startsWith('HTTP/1.1 200 ');
        }),
      );
    const all = async (isUp: boolean) => (await states()).every((state) => state === isUp);
    const checked = () => testApp.logLines.filter((line) => line.includes('"msg":"request"')).length;
    await until(() => all(true));
    // HAProxy considers a server up until its first check.
    const before = checked();
    await until(() => checked() >= before + 5 * checks.length);
    expect(await states()).toEqual([true, true, true]);
    testApp.lifecycle.isDraining = true;
    await until(() => all(false));
    testApp.lifecycle.isDraining = false;
    await until(() => all(true));
  },
);

const haproxyDefaults = `
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s`;

/** The default nginx configuration: HTTP/1.0 to the service, gzip for JSON of any length. */
const nginx = ({ folder, port }: ProxyPlace, target: string) => `
daemon off;
worker_processes 1;
pid ${folder}/pid;
error_log stderr;
events {}
http {
  access_log off;
  ${nginxTemporaryFiles(folder)}
  gzip on;
  gzip_proxied any;
  gzip_min_length 1;
  gzip_types application/json application/problem+json;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://${target};
    }
  }
}
`;

const haproxy = ({ port }: ProxyPlace, target: string) => `
${haproxyDefaults}
listen front
  bind 127.0.0.1:${port}
  compression algo gzip
  compression type application/json application/problem+json
  server one ${target}
`;

describe.each([
  { name: 'nginx', configure: nginx },
  { name: 'haproxy', configure: haproxy },
] as const)('service behind $name with compression', ({ name, configure }) => {
  test.skipIf(missingProxies.includes(name))(
    'accepts the weak ETag in If-Match of saves, matches and applications, and returns 304',
    async () => {
      const testApp = await createTestApp({ carrier: (await startSandbox()).carrier() });
      testApp.now = new Date();
      const target = `127.0.0.1:${listen(testApp)}`;
      const send = callerOf(await startProxy(name, (place) => configure(place, target)));
      const call = (method: string, path: string, headers: Record<string, string> = {}, body?: object) =>
        send(method, path, { as: name, headers: { 'accept-encoding': 'gzip', ...headers }, body });
      const tagOf = ({ headers }: TestResponse) => headers.get('etag') ?? '';

      const made = await call('POST', profile, {}, { heightCm: 160 });
      expect([made.status, made.headers.get('vary')]).toEqual([200, expect.stringContaining('Authorization')]);
      // A weak tag shows that the proxy has compressed the response.
      expect(tagOf(made)).toStartWith('W/"');

      for (const [path, body] of [
        [profile, { heightCm: 161 }],
        ['/v2/private/engine/matches', {}],
        ['/v2/private/engine/matches?explain=true', {}],
        ['/v2/private/ltc/totalCoverage', applicant],
      ] as const) {
        const current = tagOf(await call('GET', user));
        expect(current).toStartWith('W/"');
        const unchanged = await call('GET', user, { 'if-none-match': current });
        expect([path, unchanged.status, unchanged.text]).toEqual([path, 304, '']);
        expect([path, (await call('POST', path, { 'if-match': current }, body)).status]).toEqual([path, 200]);
      }

      const stale = await call('POST', profile, { 'if-match': tagOf(made) }, { heightCm: 162 });
      const type = expect.stringContaining('/problems/precondition-failed');
      expect(stale).toMatchObject({ status: 412, body: { type } });
      const saved = await call('POST', profile, { 'if-match': tagOf(stale) }, { heightCm: 163 });
      expect(saved.body).toMatchObject({ user: { profile: { heightCm: 163 } } });
    },
  );
});
