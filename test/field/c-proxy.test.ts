import { describe, expect, test } from 'bun:test';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { excludeLoopback, proxyHostFor } from '../../src/start/services';
import { applicant, startSandbox } from '../support/app';
import { createCommandLine } from '../support/command';
import { startService } from '../support/processes';
import { atEnd, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

/** A proxy that records the request line of each call and refuses it. */
function startProxy() {
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
  const proxy = `http://user:secret@${host}`;
  return { calls, host, environment: { HTTP_PROXY: proxy, https_proxy: proxy, ALL_PROXY: proxy } };
}

async function startIssuer() {
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const keys = [await exportJWK(publicKey)];
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => Response.json({ keys }) });
  atEnd(() => server.stop(true));
  const token = await new SignJWT()
    .setProtectedHeader({ alg: 'ES256' })
    .setSubject('ada')
    .setExpirationTime('1h')
    .sign(privateKey);
  return { url: server.url.href, token };
}

const apply = (address: string, token: string) =>
  fetch(`${address}/v2/private/ltc/totalCoverage`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(applicant),
  });

describe('C5 a proxy in the environment', () => {
  test('C5 receives no call to the sandbox carrier on this machine', async () => {
    const proxy = startProxy();
    const service = await startService({ environment: proxy.environment });
    expect((await apply(service.address, await service.token())).status).toBe(200);
    expect(proxy.calls).toEqual([]);
  });

  test.skipIf(!hasSqld)(
    'C5 receives no call to a libSQL server, JWKS, carrier or trace receiver on loopback',
    async () => {
      const proxy = startProxy();
      const [issuer, sandbox, sqld] = await Promise.all([startIssuer(), startSandbox(), startSqld()]);
      let traces = 0;
      const receiver = Bun.serve({
        port: 0,
        hostname: '127.0.0.1',
        fetch() {
          traces += 1;
          return new Response();
        },
      });
      atEnd(() => receiver.stop(true));
      const environment = {
        ...proxy.environment,
        NO_PROXY: 'internal.example',
        DATABASE_URL: sqld.url.replace('127.0.0.1', 'localhost'),
        AUTH_JWKS_URL: issuer.url,
        CARRIER_URL: sandbox.url,
        CARRIER_API_KEY: 'test-key',
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url.origin,
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

  test('C5 carries the calls to other hosts, and doctor names them without credentials', async () => {
    const proxy = startProxy();
    const environment = { ...proxy.environment, CARRIER_URL: 'http://carrier.example', AUTH_ISSUER: 'issuer' };
    const service = await startService({ environment });
    expect((await apply(service.address, await service.token())).status).toBe(503);
    expect(proxy.calls[0]).toStartWith('POST http://carrier.example/applications HTTP/1.1');
    const line = await createCommandLine(
      { ...environment, AUTH_JWKS_URL: 'https://issuer.example/keys' },
      { isProcess: true },
    );
    const { stdout, stderr } = await line.planning('doctor');
    expect(stdout).toContain(`carrier.example is called through ${proxy.host}\n`);
    expect(stdout).toContain(`issuer.example is called through ${proxy.host}\n`);
    expect(stdout + stderr).not.toContain('secret');
  });
});

const proxies = { HTTP_PROXY: 'PROXY' };
const loopbackHosts = ['127.0.0.1', '127.8.8.8', 'localhost', 'LOCALHOST', 'a.localhost', '[::1]', '[::]', '0.0.0.0'];

describe('C5 the variables of a proxy', () => {
  test.each<[Record<string, string>, host: string, isProxied: boolean]>([
    ...loopbackHosts.flatMap((host): [Record<string, string>, string, boolean][] => [
      [proxies, host, false],
      [{ ALL_PROXY: 'PROXY', NO_PROXY: 'x.example' }, host, false],
      [{ http_proxy: 'PROXY', no_proxy: 'x.example', NO_PROXY: 'y.example' }, host, false],
    ]),
    [proxies, 'carrier.test', true],
    [{ HTTPS_PROXY: 'PROXY' }, 'carrier.test', false],
    [{ ALL_PROXY: 'PROXY', HTTP_PROXY: '' }, 'carrier.test', true],
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
  ])('C5 have the same effect as in Bun: %j, %s', async (variables, host, isProxied) => {
    const { calls, environment } = startProxy();
    const names = ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'].flatMap((name) => [name, name.toUpperCase()]);
    const before = names.map((name) => [name, process.env[name]] as const);
    try {
      for (const name of names) delete process.env[name];
      for (const [name, text] of Object.entries(variables)) {
        process.env[name] = text.replace('PROXY', environment.HTTP_PROXY);
      }
      excludeLoopback(process.env);
      expect(proxyHostFor(`http://${host}/`, process.env) !== undefined).toBe(isProxied);
      await fetch(`http://${host}/`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined);
      expect(calls.length > 0).toBe(isProxied);
    } finally {
      for (const [name, text] of before) {
        if (text === undefined) delete process.env[name];
        else process.env[name] = text;
      }
    }
  });
});
