import { beforeAll, describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import { serveOptions } from '../../src/app';
import { createLog } from '../../src/log';
import { createTestApp, listen, testConfig, testToken } from '../support/app';
import { connectRaw } from '../support/http';
import { amount, isLong, until } from '../support/resources';

const profile = '/v2/private/user/profile';
const lists = '/v2/private/healthAndCare/';

async function start(config: Partial<typeof testConfig> = {}) {
  const testApp = await createTestApp({ config: { ...testConfig, ...config } });
  const port = listen(testApp);
  const token = await testToken({ id: 'sender', now: testApp.now });
  const read = async () => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(`http://127.0.0.1:${port}${lists}`, { headers });
    await response.bytes();
    return response.status;
  };
  return { testApp, port, token, read };
}
const service = await start({ requestTimeoutMs: 20_000 });
const { port, token, read } = service;

const head = `POST ${profile} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n`;

/**
 * A proxy and the service must agree on where a request ends. Otherwise the body of one client runs as a request of
 * another. Each shape hides a complete request in such a place.
 */
const hiddenId = 'smuggled-request';
const hidden = `GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ${hiddenId}\r\n\r\n`;
const chunks = '2\r\n{}\r\n0\r\n\r\n';
const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`;
const lastChunk = `0\r\n\r\n${hidden}`;
const hiddenLength = `Content-Length: ${hidden.length}\r\n\r\n${hidden}`;
const longer = String(2 + hidden.length);

const lengths = [
  ...['2, 2', `2, ${longer}`, '+2', '-2', '0x2', '2 0', '2.0', '2e0', '\x0b2', '18446744073709551618', '4294967298'],
  ...[`2\r\nContent-Length: ${longer}`, `${longer}\r\nContent-Length: 2`],
];
const encodings = [
  ...['chunked, identity', 'identity, chunked', 'gzip, chunked', 'xchunked', '"chunked"', 'chunked;q=1', '\x0bchunked'],
  ...['chunked\0', '\r\n chunked', 'chunked\r\nTransfer-Encoding: chunked'],
  ...['chunked\r\nTransfer-Encoding: identity', 'identity\r\nTransfer-Encoding: chunked'],
];
const sizes = ['+2', '0x2', '2 ', ' 2', '10000000000000002', '100000002', 'fffffffffffffff', '-2', ''];

const shapes: Record<string, string> = {
  ...Object.fromEntries(
    lengths.map((value) => [JSON.stringify({ length: value }), `${head}Content-Length: ${value}\r\n\r\n{}${hidden}`]),
  ),
  ...Object.fromEntries(
    encodings.map((value) => [
      JSON.stringify({ encoding: value }),
      `${head}Transfer-Encoding: ${value}\r\n\r\n${chunks}${hidden}`,
    ]),
  ),
  ...Object.fromEntries(
    sizes.map((value) => [JSON.stringify({ chunk: value }), `${chunked}${value}\r\n{}\r\n0\r\n\r\n${hidden}`]),
  ),
  'a length and chunks': `${head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}${hidden}`,
  'chunks and a length': `${head}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n${chunks}${hidden}`,
  'a length over the chunks and what follows': `${head}Content-Length: ${lastChunk.length}\r\nTransfer-Encoding: chunked\r\n\r\n${lastChunk}`,
  'an empty length': `${head}Content-Length: \r\n\r\n${hidden}`,
  'a space before the colon of a length': `${head}Content-Length : 2\r\n\r\n{}${hidden}`,
  'a tab before the colon of a length': `${head}Content-Length\t: 2\r\n\r\n{}${hidden}`,
  'a space before the colon of an encoding': `${head}Transfer-Encoding : chunked\r\nContent-Length: ${lastChunk.length}\r\n\r\n${lastChunk}`,
  'an encoding of identity': `${head}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'an empty encoding': `${head}Transfer-Encoding:\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'chunks in HTTP/1.0': `${chunked}${chunks}${hidden}`.replace('HTTP/1.1', 'HTTP/1.0'),
  'a length on a folded line': `${head}X-A: b\r\n ${hiddenLength}`,
  'lines that end in a lone LF': `${head}Content-Length: 2\r\n\r\n{}${hidden}`.replaceAll('\r\n', '\n'),
  'a length after a lone LF': `${head}X-A: b\n${hiddenLength}`,
  'a length after a lone CR': `${head}X-A: b\r${hiddenLength}`,
  'chunks after a lone LF': `${head}X-A: b\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n${lastChunk}`,
  'NUL in a header': `${head}X-A: b\0c\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'a chunk’s extension that ends in LF': `${chunked}2;a\n{}\r\n0\r\n\r\n${hidden}`,
  'a chunk’s extension of 20 KB': `${chunked}2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n${hidden}`,
  'chunks that end in LF': `${chunked}2\n{}\n0\n\n${hidden}`,
  'a chunk that is longer than it says': `${chunked}2\r\n{}XX0\r\n\r\n${hidden}`,
  'a trailer with a length': `${chunked}2\r\n{}\r\n0\r\n${hiddenLength}`,
  'a body of a GET': `GET ${lists} HTTP/1.1\r\nHost: x\r\n${hiddenLength}`,
  'a body in chunks of a GET': `GET /health/ready HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
  'a body of a HEAD': `HEAD /health/ready HTTP/1.1\r\nHost: x\r\n${hiddenLength}`,
  'a body of an OPTIONS *': `OPTIONS * HTTP/1.1\r\nHost: x\r\n${hiddenLength}`,
  'a body that no path takes': `POST /nowhere HTTP/1.1\r\nHost: x\r\n${hiddenLength}`,
  'a body without a valid token': `${head.replace(token, 'x')}${hiddenLength}`,
  'a body of another type': `${head.replace('application/json', 'text/plain')}${hiddenLength}`,
  'a body over the limit': `${head}Content-Length: 300000\r\n\r\n${hidden.padEnd(300_000, 'x')}`,
  'a chunk over the limit': `${chunked}493e0\r\n${hidden.padEnd(300_000, 'x')}\r\n0\r\n\r\n`,
  'a first line of HTTP/0.9': `GET /v2/private/user\r\n\r\n${hidden}`,
  'a preface of HTTP/2': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`,
};

/** Returns the bytes received until the connection closes, or for half a second. */
async function exchange(bytes: string): Promise<string> {
  const connection = await connectRaw(port);
  const timer = setTimeout(() => connection.socket.terminate(), 500);
  const received = await connection.exchange(bytes);
  clearTimeout(timer);
  return received;
}

describe('request smuggling', () => {
  const responses = new Map<string, string>();
  beforeAll(async () => {
    await Promise.all(Object.entries(shapes).map(async ([name, bytes]) => responses.set(name, await exchange(bytes))));
  });

  test.each(Object.keys(shapes))('does not run a request hidden in %s', (name) => {
    const received = responses.get(name) ?? 'HTTP/1.1 HTTP/1.1 ';
    expect(received.match(/^HTTP\/1\.1 /gm)?.length ?? 0).toBeLessThanOrEqual(1);
    expect(received).not.toContain(hiddenId);
    expect(received).not.toContain('"live"');
  });

  test('leaves no hidden request in the log', () => {
    expect(service.testApp.logLines.length).toBeGreaterThan(5);
    expect(service.testApp.logLines.join('')).not.toContain(hiddenId);
  });

  test('is not the same as a pipelined request, which runs', async () => {
    const pipelined = hidden.replace(hiddenId, 'pipelined-request');
    const received = await exchange(`GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n${pipelined}`);
    expect(received.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
    expect(received).toContain('pipelined-request');
  });

  test('does not give a pipelined request the token of the first', async () => {
    const get = (headers: string) => `GET ${lists} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`;
    const first = get(`Authorization: Bearer ${token}\r\n`);
    // Bun closes a connection that pipelines after a request that waits, as for lists that are not cached.
    await exchange(first);
    const received = await exchange(first + get(''));
    expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 401']);
  });

  test('does not include a chunk extension, which leaves the body unchanged', async () => {
    expect(await exchange(`${chunked}2;a=b\r\n{}\r\n0\r\n\r\n`)).toStartWith('HTTP/1.1 200 ');
  });
});

describe('slow body', () => {
  test.each([
    ['with a length', 'Content-Length: 100\r\n', '{"firstName":', ' '],
    ['in chunks', 'Transfer-Encoding: chunked\r\n', 'd\r\n{"firstName":\r\n', '1\r\n \r\n'],
  ])('sent %s gets 408 and a closed connection although bytes keep arriving', async (_, fields, begin, drip) => {
    const impatient = await start({ requestTimeoutMs: 150 });
    const connection = await connectRaw(impatient.port);
    const responding = connection.exchange(`${head}${fields}\r\n${begin}`);
    const dripping = setInterval(() => connection.socket.write(drip), 20);
    const response = await responding;
    clearInterval(dripping);
    expect(response).toStartWith('HTTP/1.1 408 ');
    expect(response).toMatch(/\r\nconnection: close\r\n/i);
    expect(response).toContain('"type":"/problems/request-timeout"');
    expect((await impatient.testApp.db.$client.execute('SELECT * FROM users')).rows).toEqual([]);
    expect(impatient.testApp.logLines.join('\n')).not.toContain('request failed');
  });

  test('succeeds when all pieces arrive within the timeout', async () => {
    const connection = await connectRaw(port);
    const responding = connection.exchange(`${head}Connection: close\r\nContent-Length: 19\r\n\r\n`);
    for (const piece of ['{"first', 'Name":', '"Ada"}']) {
      await Bun.sleep(20);
      connection.socket.write(piece);
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
    expect(await (await connectRaw(port)).exchange(request)).toStartWith('HTTP/1.1 431 ');
  });

  test.skipIf(!isLong)('is cut off although bytes keep arriving', async () => {
    const connection = await connectRaw((await start({ requestTimeoutMs: 1000 })).port);
    const cut = connection.exchange('GET /health/live HTTP/1.1\r\nHost: x\r\n');
    const dripping = setInterval(() => connection.socket.write('X: y\r\n'), 1000);
    expect(await cut).toBe('');
    clearInterval(dripping);
  });
});

describe('other requests', () => {
  const readOften = async () => {
    for (let count = 0; count < 20; count += 1) expect(await read()).toBe(200);
  };

  test('succeed while many connections hold half a request', async () => {
    const partial = `${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{`;
    const halves = ['', 'GET / HTTP/1.1\r\nHos', `${head}Content-Length: 100\r\n\r\n`, partial];
    const sockets = await Promise.all(
      Array.from({ length: amount({ long: 2000, short: 400 }) }, async (_, index) => {
        const { socket } = await connectRaw(port);
        socket.write(halves[index % halves.length] ?? '');
        return socket;
      }),
    );
    await readOften();
    for (const socket of sockets) socket.terminate();
    expect(await read()).toBe(200);
  });

  test('succeed while one connection pipelines thousands of requests', async () => {
    const one = `GET ${lists} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
    let isHandled = false;
    const onHandled = () => {
      isHandled = true;
    };
    // Bun responds to pipelined requests in turn or closes the connection.
    const handlers = { data: onHandled, close: onHandled };
    const socket = await Bun.connect({ hostname: '127.0.0.1', port, socket: handlers });
    const flood = Buffer.from(one.repeat(amount({ long: 20_000, short: 2000 })));
    let sent = socket.write(flood);
    const feeding = setInterval(() => {
      sent += Math.max(0, socket.write(flood.subarray(sent)));
    }, 5);
    await readOften();
    await until(() => isHandled);
    clearInterval(feeding);
    socket.terminate();
  });

  test('succeed, with bounded memory, while a connection sends an endless body', async () => {
    const { socket } = await connectRaw(port);
    socket.write(`${head}Content-Length: 4000000000\r\n\r\n`);
    const megabyte = Buffer.alloc(1_000_000, 'x');
    const before = process.memoryUsage.rss();
    for (let count = 0; count < 200; count += 1) {
      socket.write(megabyte);
      await Bun.sleep(1);
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
    await readOften();
    socket.terminate();
  });
});

describe('idle timeout', () => {
  const log = createLog('silent', { write() {} });

  /** The seconds that Bun gets. */
  function idleSeconds({ attempts = 1, carrierMs = 50, databaseMs = 50, requestTimeoutMs = 100 }) {
    const carrier = { applicationsPerDay: 0, attempts, timeoutMs: carrierMs };
    const config = { ...testConfig, carrier, database: { timeoutMs: databaseMs }, requestTimeoutMs };
    return serveOptions({ config, log, newRequestId: () => '' }).idleTimeout;
  }
  const longest = { attempts: 5, carrierMs: 8000, databaseMs: 20_000 };

  test.each([100, 10_000, 25_000])('exceeds a REQUEST_TIMEOUT_MS of %d', (requestTimeoutMs) => {
    // Bun counts in steps of four seconds.
    expect(idleSeconds({ requestTimeoutMs })).toBeGreaterThan(requestTimeoutMs / 1000 + 4);
    expect(idleSeconds({ ...longest, requestTimeoutMs })).toBeLessThan(256);
  });

  test('exceeds the sum of all deadlines and is below the limit of Bun', () => {
    expect(idleSeconds({ attempts: 3, carrierMs: 5000, databaseMs: 2000 })).toBeGreaterThan(3 * 5 + 5 + 2);
    expect(idleSeconds(longest)).toBeGreaterThan(5 * 8 + 8 + 5 * 20);
    expect(idleSeconds(longest)).toBeLessThan(256);
  });

  test.skipIf(!isLong)('replaces that of Elysia, so that a slow response arrives', async () => {
    const options = serveOptions({ config: testConfig, log, newRequestId: () => '' });
    const app = new Elysia({ serve: { ...options, idleTimeout: 45 } }).get('/', async () => {
      await Bun.sleep(36_000);
      return 'late';
    });
    expect(await (await fetch(`http://127.0.0.1:${listen({ app })}/`)).text()).toBe('late');
  });
});
