import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { excludeLoopback, proxyHostFor } from '../../src/start/services';
import { applicant, createTestApp, listen, startSandbox } from '../support/app';
import { createCommandLine } from '../support/command';
import { connectRaw } from '../support/http';
import { startService } from '../support/processes';
import { atEnd, runToEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, missingProxies, startProxy, startSqld } from '../support/servers';

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

test('a service in development calls its sandbox carrier without the proxy, and has its limit and its zone', async () => {
  const proxy = startOutgoingProxy();
  const settings = { RATE_LIMIT_PER_MINUTE: '2', REPORT_TIME_ZONE: 'Asia/Kathmandu' };
  const service = await startService({ environment: { ...proxy.environment, ...settings } });
  expect(service.output()).toContain('months   Asia/Kathmandu, now +05:45, without a change to come\n');
  const token = await service.token();
  expect((await apply(service.address, token)).status).toBe(200);
  expect(proxy.calls).toEqual([]);
  const headers = { authorization: `Bearer ${token}` };
  const read = async () => (await fetch(`${service.address}/v2/private/healthAndCare`, { headers })).status;
  expect([await read(), await read()]).toEqual([200, 429]);
  expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
});

describe('proxy in the environment', () => {
  test.skipIf(!hasSqld)(
    'receives no call to a libSQL server, JWKS, carrier or trace receiver on loopback',
    async () => {
      const proxy = startOutgoingProxy();
      const [issuer, sandbox, sqld] = await Promise.all([startIssuer(), startSandbox(), startSqld()]);
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
        CARRIER_URL: sandbox.url,
        CARRIER_API_KEY: 'test-key',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.origin,
      };
      const line = await createCommandLine(environment, { isEmpty: true, isProcess: true });
      expect(await line.planning('migrate')).toMatchObject({ exitCode: 0 });
      const service = await startService({ environment });
      expect((await apply(service.address, issuer.token)).status).toBe(200);
      await until(() => traces > 0);
      const doctor = await line.planning('doctor');
      expect(doctor.stdout).not.toContain('proxy');
      expect(doctor).toMatchObject({ exitCode: 0 });
      expect(proxy.calls).toEqual([]);
    },
  );

  test('carries the calls to other hosts, and doctor names them without credentials', async () => {
    const proxy = startOutgoingProxy();
    const environment = { ...proxy.environment, CARRIER_URL: 'http://carrier.example', AUTH_ISSUER: 'issuer' };
    const service = await startService({ environment });
    expect((await apply(service.address, await service.token())).status).toBe(503);
    expect(proxy.calls[0]).toStartWith('POST http://carrier.example/applications HTTP/1.1');
    const settings = { ...environment, AUTH_JWKS_URL: 'https://issuer.example/keys' };
    const { stdout, stderr } = await (await createCommandLine(settings, { isProcess: true })).planning('doctor');
    expect(stdout).toContain(`carrier.example is called through ${proxy.host}\n`);
    expect(stdout).toContain(`issuer.example is called through ${proxy.host}\n`);
    expect(stdout + stderr).not.toContain('secret');
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
    [{ ...proxies, NO_PROXY: '192.0.2.0/99' }, '192.0.2.9', true],
    [{ ...proxies, NO_PROXY: '*' }, 'carrier.test', false],
  ])('have the same effect as in Bun, with loopback excluded: %j, %s', async (variables, host, isProxied) => {
    const environment = { ...variables };
    excludeLoopback(environment);
    expect(proxyHostFor(`http://${host}/`, environment) !== undefined).toBe(isProxied);
    expect(await isSentToProxy(environment, host)).toBe(isProxied);
  });
});

describe.skipIf(missingProxies.includes('haproxy'))('HAProxy', () => {
  test.each([
    'option httpchk',
    'option httpchk GET /health/ready',
    'option httpchk; http-check send meth HEAD uri /health/ready ver HTTP/1.1 hdr Host x',
  ])('marks an instance as up with `%s`, and as down while it drains', async (check) => {
    const testApp = await createTestApp();
    const backend = `server one 127.0.0.1:${listen(testApp)} check inter 50 fall 1 rise 1`;
    const address = await startProxy(
      'haproxy',
      ({ port }) => `
defaults
  mode http
  timeout connect 2s
  timeout client 5s
  timeout server 5s
frontend all
  bind 127.0.0.1:${port}
  default_backend service
backend service
  ${check.replace('; ', '\n  ')}
  ${backend}
`,
    );
    /** Whether HAProxy considers the instance up; without one it returns 503 itself. */
    const isUp = async () => {
      const { exchange } = await connectRaw(Number(new URL(address).port));
      const head = 'GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
      return (await exchange(head)).startsWith('HTTP/1.1 200 ');
    };
    const checks = () => testApp.logLines.filter((line) => line.includes('"msg":"request"')).length;
    await until(isUp);
    // HAProxy considers a server up until its first check.
    const before = checks();
    await until(() => checks() >= before + 3);
    expect(await isUp()).toBeTrue();
    testApp.lifecycle.isDraining = true;
    await until(async () => !(await isUp()));
    testApp.lifecycle.isDraining = false;
    await until(isUp);
  });
});

test('a test run fails when a test receives an undocumented response', async () => {
  const folder = temporaryFolder();
  const support = join(import.meta.dirname, '../support');
  const program = `
    import { test } from 'bun:test';
    const service = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('{}', { status: 418 }) });
    test('undocumented', () => fetch(service.url + 'v2/private/user'));
    test('unobserved', () => fetch(service.url + 'v2/other'));
  `;
  await Bun.write(join(folder, 'wrong.test.ts'), program);
  const command = [process.execPath, 'test', '--preload', join(support, 'preload.ts'), './wrong.test.ts'];
  const { exitCode, stderr } = await runToEnd(Bun.spawn(command, { cwd: folder, stdout: 'pipe', stderr: 'pipe' }));
  expect(stderr.match(/^\((?:pass|fail)\) [a-z]+(?= \[)/gm)?.slice(0, 2)).toEqual([
    '(fail) undocumented',
    '(pass) unobserved',
  ]);
  expect(stderr).toContain('GET /v2/private/user: 418 is not documented');
  expect(exitCode).toBe(1);
});
