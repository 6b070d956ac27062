import { beforeAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { createTestApp, testSecret, testToken } from '../support/app';
import {
  anonymousRequests,
  authenticatedRequests,
  costMicros,
  createRawClient,
  plainRequests,
  statusOf,
} from '../support/http';
import { startService } from '../support/processes';
import { amount, atEnd, cases } from '../support/resources';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const port = testApp.app.server?.port ?? 0;
const client = createRawClient(port);
atEnd(async () => {
  client.close();
  await testApp.app.stop(true);
});
const token = await testToken({ id: 'exhauster', now: testApp.now });
const tokenOfToday = await testToken({ id: 'exhauster', now: new Date() });
const profile = '/v2/private/user/profile';
const auth = ['Authorization', `Bearer ${token}`] as const;

async function isServed(): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/v2/private/user`, { headers: { authorization: auth[1] } });
  expect([200, 404]).toContain(response.status);
}

const oversized: [name: string, target: string, headers: [string, string][]][] = [
  ['a path of 40 KB', `/${'a'.repeat(40_000)}`, []],
  ['a query of 40 KB', `/v2/private/cemetery/all?page=${'1'.repeat(40_000)}`, []],
  ['a header of 40 KB', '/v2/private/user', [['X-Large', 'a'.repeat(40_000)]]],
  ['a token of 40 KB', '/v2/private/user', [['Authorization', `Bearer ${'a'.repeat(40_000)}`]]],
  ['a header name of 40 KB', '/v2/private/user', [['X'.repeat(40_000), '1']]],
  ['1,000 headers', '/v2/private/user', Array.from({ length: 1_000 }, (_, index) => [`X-${index}`, '1'])],
];

describe('an oversized request', () => {
  test.each(oversized)('returns an error for %s, while other requests are served', async (_, target, headers) => {
    const response = await client.send({ method: 'GET', target, headers: [['Host', 'x'], auth, ...headers] });
    expect([400, 413, 414, 431, undefined]).toContain(response?.status);
    await isServed();
  });
});

describe('slow connections', () => {
  test.each([
    ['send nothing', ''],
    ['send part of a request line', 'GET /v2/priv'],
    ['send part of a header', 'GET /v2/private/user HTTP/1.1\r\nHost: x\r\nX-A: '],
    [
      'send part of a body',
      `POST ${profile} HTTP/1.1\r\nHost: x\r\n${auth.join(': ')}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    ],
    [
      'send part of a chunk',
      `POST ${profile} HTTP/1.1\r\nHost: x\r\n${auth.join(': ')}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{`,
    ],
    ['never read the response', 'GET /swagger/scalar.js HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(20)],
  ])('do not block other requests when they %s', async (_, bytes) => {
    const sockets = Array.from({ length: amount({ long: 200, short: 50 }) }, () => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.pause();
      socket.write(bytes);
      return socket;
    });
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
    await isServed();
    await isServed();
    for (const socket of sockets) socket.destroy();
  });
});

const isLinux = process.platform === 'linux';

describe.skipIf(!isLinux)('expensive requests (measured on Linux only)', () => {
  const authorization = `Bearer ${tokenOfToday}`;
  const plain = plainRequests(authorization);
  const measured = { rounds: 5, requests: 2 };
  /** Above this cost, relative to a plain request of the same size, a few clients can stop the service. */
  const mostTimes = 20;
  let service: Parameters<typeof costMicros>[0];

  beforeAll(async () => {
    const { address, process: child } = await startService({ environment: { AUTH_SECRET: testSecret } });
    service = { pid: child.pid, port: Number(new URL(address).port) };
    for (let sent = 0; sent < 200; sent += 1) {
      for (const { bytes } of Object.values(plain)) await statusOf(service.port, bytes);
    }
  });

  test.each([
    { sender: 'an unauthenticated client', beside: plain.longHead, requests: anonymousRequests() },
    { sender: 'an authenticated client', beside: plain.longBody, requests: authenticatedRequests(authorization) },
  ])('cost at most 20 times as much as $beside.name when sent by $sender', async ({ beside, requests }) => {
    const plainMicros = await costMicros(service, beside.bytes, measured);
    const costly: string[] = [];
    for (const { name, bytes } of requests) {
      const micros = await costMicros(service, bytes, measured);
      if (micros > mostTimes * plainMicros) costly.push(`${name}: ${(micros / plainMicros).toFixed(0)} times`);
    }
    expect(costly).toEqual([]);
  });
});

describe('regular expressions', () => {
  /** Texts that make a careless regular expression backtrack. */
  const length = 60_000;
  const accents = 'a\u0315\u0300';
  const texts = [
    accents,
    ' ',
    'a.',
    '"',
    ';charset=',
    'a',
    '\t',
    '.',
    '@',
    '-',
    '0',
    '.@',
    'a@',
    ' a',
    'W/"',
    '",',
    '\\',
    '; ',
    '\u1e69',
    'A\u030a',
  ];
  const repeat = (text: string) => text.repeat(length / text.length);
  const harmless = repeat('x');
  const repeated = cases(texts, 5).map(repeat);
  const fields = ['firstName', 'lastName', 'email', 'dateOfBirth', 'state', 'gender'];
  /** Backtracking would take 60,000 times as long. */
  const mostTimes = 400;

  /** CPU time of the fastest of three runs; other work of the process only adds to it. */
  async function cpuMicros(work: () => Promise<unknown>): Promise<number> {
    let least = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < 3; turn += 1) {
      const before = process.cpuUsage();
      await work();
      const { user, system } = process.cpuUsage(before);
      least = Math.min(least, user + system);
    }
    return least;
  }

  /** Returns the values that cost many times as much as a harmless one of the same length. */
  async function findCostly(values: readonly string[], send: (value: string) => Promise<unknown>): Promise<string[]> {
    for (let sent = 0; sent < 20; sent += 1) await send(harmless);
    const harmlessMicros = await cpuMicros(() => send(harmless));
    const costly: string[] = [];
    for (const value of values) {
      const micros = await cpuMicros(() => send(value));
      if (micros > mostTimes * harmlessMicros) costly.push(`${value.slice(0, 20)}: ${micros} µs`);
    }
    return costly;
  }

  test.each(fields)('take linear time for 60,000 characters in the field %s', async (field) => {
    const values = repeated.flatMap((text) => [text, `a${text}`, `${text}!`, `a@${text}`, `2000-01-01T${text}`]);
    const send = (value: string) => testApp.call('POST', profile, { as: 'exhauster', body: { [field]: value } });
    expect(await findCostly(values, send)).toEqual([]);
  });

  test('take linear time for accents up to the longest text that is composed', async () => {
    const long = `a${'\u0315\u0300'.repeat(500)}`;
    const values = [{ firstName: long.slice(0, 400), lastName: long.slice(0, 400), email: `${long}@x.org` }];
    const send = (value: string) => {
      const body = value === harmless ? { firstName: harmless } : values[0];
      return testApp.call('POST', profile, { as: 'exhauster', body });
    };
    expect(await findCostly(['accents'], send)).toEqual([]);
    const composed = await testApp.call('POST', profile, {
      as: 'exhauster',
      body: { firstName: ' e\u0301'.repeat(50) },
    });
    expect(composed.body).toMatchObject({ user: { profile: { firstName: ' \u00e9'.repeat(50).trim() } } });
  });

  test.each([
    'authorization',
    'content-type',
    'if-match',
    'if-none-match',
    'idempotency-key',
    'x-request-id',
    'accept',
    'origin',
    'x-forwarded-for',
    'traceparent',
    'content-encoding',
    'access-control-request-headers',
  ])('take linear time for 60,000 characters in the header %s', async (name) => {
    const values = repeated.flatMap((text) => {
      const latin = text.replaceAll(/[^\x20-\x7e]/g, 'x');
      const typed = [`application/json${latin}`, `application/json;${latin}x`];
      return [latin, `Bearer ${latin}`, `Bearer ${latin} x`, ...typed, `"${latin}`];
    });
    const send = async (value: string) => {
      const headers = { [name]: value };
      const options = { headers, ...(name === 'authorization' ? {} : { as: 'exhauster' }) };
      await testApp.call('POST', '/v2/private/ltc/totalCoverage', { ...options, body: {} });
      await testApp.call('GET', '/v2/private/healthAndCare', options);
    };
    expect(await findCostly(values, send)).toEqual([]);
  });

  test.each([
    '/v2/private/cemetery/all?page=',
    '/v2/private/user/salesManager/monthly-glance?month=',
    '/icons/',
    '/problems/',
    '/v2/private/',
  ])('take linear time for 60,000 characters after %s', async (start) => {
    const send = (text: string) => testApp.call('GET', start + text, { as: 'exhauster', roles: ['salesManager'] });
    expect(await findCostly(repeated.map(encodeURIComponent), send)).toEqual([]);
  });
});
