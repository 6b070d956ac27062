import { describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import { serveOptions } from '../../src/app';
import { createLog } from '../../src/log';
import { createTestApp, testConfig, testToken } from '../support/app';
import { connectRaw } from '../support/http';
import { amount, atEnd, isLong, until } from '../support/resources';

const testLog = createLog('silent', { write() {} });
/** Generous bound that only a hang exceeds, also on a busy machine. */
const hangTimeoutMs = 10_000;
const profile = '/v2/private/user/profile';

async function listen(requestTimeoutMs: number, config: Partial<typeof testConfig> = {}) {
  const testApp = await createTestApp({ config: { ...testConfig, ...config, requestTimeoutMs } });
  testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(() => testApp.app.stop(true));
  const port = testApp.app.server?.port ?? 0;
  const token = await testToken({ id: 'sender', now: testApp.now });
  const head = (fields: string) =>
    `POST ${profile} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n${fields}\r\n`;
  const read = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/v2/private/healthAndCare/`, {
      headers: { authorization: `Bearer ${token}` },
    });
    await response.bytes();
    return response.status;
  };
  return { testApp, port, token, head, read };
}

/** The longest duration of 20 sequential requests. */
async function worstWaitMs(read: () => Promise<number>): Promise<number> {
  let worstMs = 0;
  for (let count = 0; count < 20; count += 1) {
    const startedAtMs = performance.now();
    expect(await read()).toBe(200);
    worstMs = Math.max(worstMs, performance.now() - startedAtMs);
  }
  return worstMs;
}

describe('slow body', () => {
  test.each([
    ['with a length', 'Content-Length: 100\r\n', '{"firstName":', ' '],
    ['in chunks', 'Transfer-Encoding: chunked\r\n', 'd\r\n{"firstName":\r\n', '1\r\n \r\n'],
  ])('sent %s gets 408 and a closed connection although bytes keep arriving', async (_, fields, start, drip) => {
    const { testApp, port, head } = await listen(400);
    const { socket, exchange } = await connectRaw(port);
    const responding = exchange(`${head(fields)}${start}`);
    const dripping = setInterval(() => socket.write(drip), 50);
    const response = await responding;
    clearInterval(dripping);
    expect(response).toStartWith('HTTP/1.1 408 ');
    expect(response).toMatch(/\r\nconnection: close\r\n/i);
    expect(response).toContain('"type":"/problems/request-timeout"');
    expect(response).toContain('"code":205');
    expect((await testApp.db.$client.execute('SELECT * FROM users')).rows).toEqual([]);
    expect(testApp.logLines.join('\n')).not.toContain('request failed');
  });

  test('gets 401 at once without a token', async () => {
    const { port } = await listen(60_000);
    const { socket, exchange } = await connectRaw(port);
    const responding = exchange(
      `POST ${profile} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{`,
    );
    expect(await responding).toStartWith('HTTP/1.1 401 ');
    socket.end();
  });

  test('succeeds when all pieces arrive within the timeout', async () => {
    const { port, head } = await listen(5_000);
    const { socket, exchange } = await connectRaw(port);
    const responding = exchange(head('Connection: close\r\nContent-Length: 19\r\n'));
    for (const piece of ['{"first', 'Name":', '"Ada"}']) {
      await Bun.sleep(50);
      socket.write(piece);
    }
    expect(await responding).toStartWith('HTTP/1.1 200 ');
  });
});

describe('request head', () => {
  test.each([
    ['a path of 20,000 letters', `GET /${'a'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`],
    ['a field of 20,000 letters', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`],
    ['a thousand fields', `GET / HTTP/1.1\r\nHost: x\r\n${'X: y\r\n'.repeat(1000)}\r\n`],
    ['a field of 20,000 letters without an end', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}`],
  ])('gets 431 and a closed connection with %s', async (_, request) => {
    const { port } = await listen(1000);
    const { exchange } = await connectRaw(port);
    expect(await exchange(request)).toStartWith('HTTP/1.1 431 ');
  });

  test.skipIf(!isLong)('gets cut off within 20 seconds although bytes keep arriving', async () => {
    const { port } = await listen(1000);
    const startedAtMs = performance.now();
    const { socket, exchange } = await connectRaw(port);
    const cut = exchange('GET /health/live HTTP/1.1\r\nHost: x\r\n');
    const dripping = setInterval(() => socket.write('X: y\r\n'), 1000);
    expect(await cut).toBe('');
    clearInterval(dripping);
    expect(performance.now() - startedAtMs).toBeLessThan(20_000);
  });
});

describe('other requests', () => {
  test('succeed while many connections hold half a request', async () => {
    const { port, head, read } = await listen(20_000);
    const halves = [
      '',
      'GET / HTTP/1.1\r\nHos',
      head('Content-Length: 100\r\n'),
      `${head('Transfer-Encoding: chunked\r\n')}5\r\n{`,
    ];
    const count = amount({ long: 2000, short: 400 });
    const sockets = await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const { socket } = await connectRaw(port);
        socket.write(halves[index % halves.length] ?? '');
        return socket;
      }),
    );
    expect(await worstWaitMs(read)).toBeLessThan(hangTimeoutMs);
    for (const socket of sockets) socket.terminate();
    expect(await read()).toBe(200);
  });

  test('succeed while one connection pipelines thousands of requests', async () => {
    const { port, token, read } = await listen(20_000);
    const one = `GET /v2/private/healthAndCare/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
    let isHandled = false;
    const socket = await Bun.connect({
      hostname: '127.0.0.1',
      port,
      socket: {
        // Bun responds to pipelined requests in turn or closes the connection.
        data: () => {
          isHandled = true;
        },
        close: () => {
          isHandled = true;
        },
      },
    });
    const flood = Buffer.from(one.repeat(amount({ long: 20_000, short: 2000 })));
    let sent = socket.write(flood);
    const feeding = setInterval(() => {
      sent += Math.max(0, socket.write(flood.subarray(sent)));
    }, 5);
    expect(await worstWaitMs(read)).toBeLessThan(hangTimeoutMs);
    await until(() => isHandled);
    clearInterval(feeding);
    socket.terminate();
  });

  test('succeed, with bounded memory, while a connection sends an endless body', async () => {
    const { port, head, read } = await listen(20_000);
    const socket = await Bun.connect({ hostname: '127.0.0.1', port, socket: { data() {} } });
    socket.write(head('Content-Length: 4000000000\r\n'));
    const megabyte = Buffer.alloc(1_000_000, 'x');
    const before = process.memoryUsage.rss();
    for (let count = 0; count < 200; count += 1) {
      socket.write(megabyte);
      await Bun.sleep(1);
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
    expect(await worstWaitMs(read)).toBeLessThan(hangTimeoutMs);
    socket.terminate();
  });
});

/** The idle timeout in seconds that Bun gets. */
function idleSeconds(settings: { attempts: number; carrierMs: number; databaseMs: number; requestTimeoutMs: number }) {
  const carrier = { applicationsPerDay: 0, attempts: settings.attempts, timeoutMs: settings.carrierMs };
  const database = { timeoutMs: settings.databaseMs };
  const config = { ...testConfig, carrier, database, requestTimeoutMs: settings.requestTimeoutMs };
  return serveOptions({ config, log: testLog, newRequestId: () => '' }).idleTimeout;
}

describe('idle timeout', () => {
  test.each([100, 10_000, 25_000])('exceeds a REQUEST_TIMEOUT_MS of %d', (requestTimeoutMs) => {
    const shortest = idleSeconds({ attempts: 1, carrierMs: 50, databaseMs: 50, requestTimeoutMs });
    // Bun counts in steps of four seconds.
    expect(shortest).toBeGreaterThan(requestTimeoutMs / 1000 + 4);
    const longest = idleSeconds({ attempts: 5, carrierMs: 8000, databaseMs: 20_000, requestTimeoutMs });
    expect(longest).toBeLessThan(256);
  });

  test.skipIf(!isLong)('lets a slow body get its 408 when carrier and database timeouts are short', async () => {
    const quick = { carrier: { applicationsPerDay: 0, attempts: 1, timeoutMs: 50 }, database: { timeoutMs: 50 } };
    const { port, head } = await listen(15_000, quick);
    const { exchange } = await connectRaw(port);
    expect(await exchange(head('Content-Length: 100\r\n'))).toStartWith('HTTP/1.1 408 ');
  });
});

describe('slow response', () => {
  test('has an idle timeout above the sum of all deadlines and below the limit of Bun', () => {
    const usual = { attempts: 3, carrierMs: 5000, databaseMs: 2000, requestTimeoutMs: 100 };
    expect(idleSeconds(usual)).toBeGreaterThan(3 * 5 + 5 + 2);
    const longest = { attempts: 5, carrierMs: 8000, databaseMs: 20_000, requestTimeoutMs: 100 };
    expect(idleSeconds(longest)).toBeGreaterThan(5 * 8 + 8 + 5 * 20);
    expect(idleSeconds(longest)).toBeLessThan(256);
  });

  test.skipIf(!isLong)('arrives after Elysia’s default idle timeout', async () => {
    const options = serveOptions({ config: testConfig, log: testLog, newRequestId: () => '' });
    const app = new Elysia({ serve: { ...options, idleTimeout: 45 } })
      .get('/', async () => {
        await Bun.sleep(36_000);
        return 'late';
      })
      .listen({ port: 0, hostname: '127.0.0.1' });
    expect(await (await fetch(`http://127.0.0.1:${app.server?.port}/`)).text()).toBe('late');
    await app.stop(true);
  });
});
