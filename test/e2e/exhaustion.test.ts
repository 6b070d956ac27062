import { beforeAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import * as v from 'valibot';
import { createTestApp, listen, testSecret, testToken } from '../support/app';
import {
  anonymousRequests,
  authenticatedRequests,
  connectRaw,
  costMicros,
  plainRequests,
  statusOf,
} from '../support/http';
import { startService } from '../support/processes';
import { amount, cases } from '../support/resources';

const testApp = await createTestApp();
const { call } = testApp;
const port = listen(testApp);
const as = 'exhauster';
const authorization = `Bearer ${await testToken({ id: as, now: testApp.now })}`;
const profile = '/v2/private/user/profile';
const postHead = (...headers: string[]) =>
  [`POST ${profile} HTTP/1.1`, 'Host: x', ...headers, 'Content-Type: application/json', ''].join('\r\n');
const chunkedHead = (token = authorization) =>
  `${postHead(`Authorization: ${token}`, 'Transfer-Encoding: chunked')}\r\n`;

const Problem = v.object({
  type: v.string(),
  detail: v.string(),
  errors: v.optional(v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() }))),
});

async function expectService(): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/v2/private/healthAndCare`, { headers: { authorization } });
  expect(response.status).toBe(200);
}

describe('a query', () => {
  const parameters = (count: number) => Array.from({ length: count }, (_, index) => `p${index}=1`).join('&');

  test.each([
    ['65 parameters', parameters(65)],
    ['one parameter 7,800 times', 'a&'.repeat(7_800)],
    ['only separators', '&'.repeat(64)],
    ['integer names', Array.from({ length: 65 }, (_, index) => index).join('&')],
    ['a second question mark', `a?b&${parameters(64)}`],
    ['names that are not UTF-8', '%ff&'.repeat(70)],
  ])('with %s returns 400 before the token check', async (_, query) => {
    for (const path of ['/v2/private/user', '/v2/private/cemetery/all', '/health/live', '/swagger', '/nowhere', '/']) {
      const response = await call('GET', `${path}?${query}`);
      expect([path, response.status]).toEqual([path, 400]);
      expect(v.parse(Problem, response.body)).toMatchObject({
        type: '/problems/malformed-request',
        detail: 'The query has more than 64 parameters.',
      });
    }
  });

  test.each([
    ['64 parameters', parameters(64)],
    ['one parameter with many separators that are escaped', `a=${'%26'.repeat(1_000)}`],
    ['a parameter twice', 'page=1&page=2'],
    ['a parameter 64 times', Array(64).fill('page=1').join('&')],
  ])('with %s reaches the validation', async (_, query) => {
    expect((await call('GET', `/v2/private/cemetery/all?${query}`, { as })).status).toBe(422);
  });
});

describe('a body', () => {
  const nested = (depth: number, value = '1') => '[{"a":'.repeat(depth / 2) + value + '}]'.repeat(depth / 2);
  const fields = (count: number, name: (index: number) => string) =>
    `{${Array.from({ length: count }, (_, index) => `"${name(index)}":1`).join()}}`;

  test.each([
    ['max_depth', '33 levels', `{"firstName":${nested(32)}}`],
    ['max_depth', '260,000 lists that are not closed', '['.repeat(260_000)],
    ['max_depth', '40,000 objects', '{"a":'.repeat(40_000)],
    ['max_depth', 'levels after a text with an escaped quote', `{"a":"\\"]]","b":${nested(32)}}`],
    ['max_depth', 'levels after a text that ends with a backslash', `{"a":"\\\\","b":${nested(32)}}`],
    ['max_depth', 'levels after closing brackets', `]]]]}}}}${nested(34)}`],
    ['max_fields', '26,000 integers as names', fields(26_000, String)],
    ['max_fields', '201 fields', fields(201, (index) => `k${index}`)],
    ['max_fields', 'one field 201 times', fields(201, () => 'firstName')],
    ['max_fields', '201 fields in an item', `{"selections":[{},${fields(201, String)}]}`],
    ['max_fields', '201 fields with values that have commas', `{"z":[1,2],${fields(200, String).slice(1)}`],
    ['max_values', '10,001 numbers', `[${Array(10_001).fill(1).join()}]`],
    ['max_values', '40,000 objects side by side', `[${Array(40_000).fill('{}').join()}]`],
    ['max_values', '60 objects of 200 fields', `[${Array(60).fill(fields(200, String)).join()}]`],
  ])('fails by %s with %s', async (rule, _, body) => {
    for (const path of [profile, '/v2/private/engine/preview', '/v2/private/ltc/totalCoverage']) {
      const response = await call('POST', path, { as, body });
      expect(response.status).toBe(422);
      expect(v.parse(Problem, response.body).errors).toEqual([{ pointer: '', rule, message: expect.any(String) }]);
    }
  });

  test.each([
    ['32 levels', `{"firstName":${nested(30, '[]')}}`, '/firstName'],
    ['brackets in a text', `{"firstName":"${'['.repeat(90)}","lastName":1}`, '/lastName'],
    ['an escaped quote before brackets', `{"firstName":"\\"${'[{'.repeat(45)}","lastName":1}`, '/lastName'],
    ['commas in a text', `{"firstName":"${','.repeat(90)}","email":"${',,'.repeat(150)}"}`, '/email'],
    ['a number of 200,000 digits', `{"heightCm":${'1'.repeat(200_000)}}`, '/heightCm'],
    ['a number out of range', '{"heightCm":1e999}', '/heightCm'],
  ])('passes the limits with %s, and the response names its field', async (_, body, pointer) => {
    const response = await call('POST', profile, { as, body });
    expect(response.status).toBe(422);
    expect(v.parse(Problem, response.body).errors?.map((error) => error.pointer)).toContain(pointer);
  });

  test.each(['{"firstName":"Ada"}]', '"', '"\\', '[', ']', ','])('is malformed JSON: %s', async (body) => {
    expect((await call('POST', profile, { as, body })).status).toBe(400);
  });
});

describe('a body in chunks', () => {
  const send = async (chunks: string) => {
    const { exchange } = await connectRaw(port);
    return exchange(`${chunkedHead().replace('Host', 'Connection: close\r\nHost')}${chunks}0\r\n\r\n`);
  };

  test.each([
    ['100,000 of a byte', `1\r\n{\r\n${'1\r\n \r\n'.repeat(100_000)}1\r\n}\r\n`],
    ['15,000 of 16 bytes', `2\r\n{}\r\n${`10\r\n${' '.repeat(16)}\r\n`.repeat(15_000)}`],
  ])('returns 413 and closes the connection: %s', async (_, chunks) => {
    const response = await send(chunks);
    expect(response).toStartWith('HTTP/1.1 413 ');
    expect(response).toContain('The body may arrive in at most 512 chunks.');
    expect(response.toLowerCase()).toContain('\r\nconnection: close\r\n');
  });

  test.each([
    ['500 of a byte', `1\r\n{\r\n${'1\r\n \r\n'.repeat(498)}1\r\n}\r\n`],
    ['180 of 1,460 bytes', `2\r\n{}\r\n${`5b4\r\n${' '.repeat(1_460)}\r\n`.repeat(179)}`],
  ])('returns 200: %s', async (_, chunks) => {
    expect(await send(chunks)).toStartWith('HTTP/1.1 200 ');
  });

  test.each([
    [
      'returns 401 before its last chunk without a valid token, and closes the connection',
      'Bearer x',
      '1\r\n{\r\n',
      401,
    ],
    ['keeps its connection open after its last chunk', authorization, '1\r\n{\r\n0\r\n\r\n', 400],
  ])('%s', async (_, token, chunks, status) => {
    const { socket, received } = await connectRaw(port);
    socket.write(chunkedHead(token) + chunks);
    const response = await received;
    expect(response).toStartWith(`HTTP/1.1 ${status} `);
    expect(response.toLowerCase().includes('\r\nconnection: close\r\n')).toBe(status === 401);
    socket.end();
  });
});

test('connections that are slow at every part of an exchange do not block other requests', async () => {
  const auth = `Authorization: ${authorization}`;
  const parts = {
    nothing: '',
    'part of a request line': 'GET /v2/priv',
    'part of a header': 'GET /v2/private/user HTTP/1.1\r\nHost: x\r\nX-A: ',
    'part of a body': `${postHead(auth, 'Content-Length: 100')}\r\n{`,
    'part of a chunk': `${postHead(auth, 'Transfer-Encoding: chunked')}\r\nff\r\n{`,
    'requests, and never reads': 'GET /swagger/scalar.js HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(20),
  };
  const sockets = Object.values(parts).flatMap((bytes) =>
    Array.from({ length: amount({ long: 200, short: 50 }) }, () => {
      const socket = connect(port, '127.0.0.1').on('error', () => undefined);
      socket.pause();
      socket.write(bytes);
      return socket;
    }),
  );
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
  await expectService();
  for (const socket of sockets) socket.destroy();
});

describe.skipIf(process.platform !== 'linux')('expensive requests', () => {
  let service: { readonly pid: number; readonly port: number };
  let token = '';
  beforeAll(async () => {
    token = `Bearer ${await testToken({ id: as, now: new Date() })}`;
    const { address, process: child } = await startService({ environment: { AUTH_SECRET: testSecret } });
    service = { pid: child.pid, port: Number(new URL(address).port) };
    for (let sent = 0; sent < 20; sent += 1) {
      for (const { bytes } of Object.values(plainRequests(token))) await statusOf(service.port, bytes);
    }
  });

  /** Above this cost, relative to a plain request of the same size, a few clients could stop the service. */
  const mostTimes = 20;
  test.each([
    ['an unauthenticated client', 'a long header', () => plainRequests(token).longHead, anonymousRequests],
    ['an authenticated client', 'a long body', () => plainRequests(token).longBody, () => authenticatedRequests(token)],
  ] as const)('of %s cost at most 20 times as much as %s', async (_, __, plain, requests) => {
    const plainMicros = await costMicros(service, plain().bytes, { rounds: 3, requests: 2 });
    const timesOf = async (bytes: Buffer, rounds: number) =>
      (await costMicros(service, bytes, { rounds, requests: rounds })) / plainMicros;
    const costly: string[] = [];
    for (const { name, bytes } of requests()) {
      // Other work only adds to a measurement, so a low one needs no other.
      if ((await timesOf(bytes, 1)) <= mostTimes) continue;
      const times = await timesOf(bytes, 3);
      if (times > mostTimes) costly.push(`${name}: ${times.toFixed(0)} times`);
    }
    expect(costly).toEqual([]);
  });
});

describe('regular expressions', () => {
  const length = 30_000;
  /** Backtracking would take 30,000 times as long. */
  const mostTimes = 400;
  const harmless = 'x'.repeat(length);
  /** Texts that make a careless regular expression backtrack. */
  const texts = ['a\u0315\u0300', ' ', 'a.', '"', ';charset=', 'a', '\t', '.', '@', '-', '0', '.@', 'a@', ' a', 'W/"'];
  const repeated = cases([...texts, '",', '\\', '; ', '\u1e69', 'A\u030a'], 5).map((text) =>
    text.repeat(length / text.length),
  );

  /** CPU time of the fastest of some runs; other work of the process only adds to it. */
  async function cpuMicros(work: () => Promise<unknown>, runs: number): Promise<number> {
    let least = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < runs; turn += 1) {
      const before = process.cpuUsage();
      await work();
      const { user, system } = process.cpuUsage(before);
      least = Math.min(least, user + system);
    }
    return least;
  }

  /** Returns the values that cost many times as much as a harmless one of the same length. */
  async function findCostly(values: readonly string[], send: (value: string) => Promise<unknown>): Promise<string[]> {
    const limitMicros = mostTimes * (await cpuMicros(() => send(harmless), 10));
    const costly: string[] = [];
    for (const value of values) {
      if ((await cpuMicros(() => send(value), 1)) <= limitMicros) continue;
      const micros = await cpuMicros(() => send(value), 3);
      if (micros > limitMicros) costly.push(`${value.slice(0, 20)}: ${micros} µs`);
    }
    return costly;
  }

  test('take linear time for 30,000 characters in each field', async () => {
    const values = repeated.flatMap((text) => [text, `a${text}`, `${text}!`, `a@${text}`, `2000-01-01T${text}`]);
    // A body with three of the longest values would be too large to be validated.
    const pairs = [
      ['firstName', 'lastName'],
      ['email', 'dateOfBirth'],
      ['state', 'gender'],
    ];
    const send = async (value: string) => {
      for (const fields of pairs) {
        const body = Object.fromEntries(fields.map((field) => [field, value]));
        expect([200, 422]).toContain((await call('POST', profile, { as, body })).status);
      }
    };
    expect(await findCostly(values, send)).toEqual([]);
  });

  test('take linear time for accents up to the longest text that is composed', async () => {
    const long = `a${'\u0315\u0300'.repeat(500)}`;
    const accented = { firstName: long.slice(0, 400), lastName: long.slice(0, 400), email: `${long}@x.org` };
    const send = (value: string) =>
      call('POST', profile, { as, body: value === harmless ? { firstName: harmless } : accented });
    expect(await findCostly(['accents'], send)).toEqual([]);
    const composed = await call('POST', profile, { as, body: { firstName: ' e\u0301'.repeat(50) } });
    expect(composed.body).toMatchObject({ user: { profile: { firstName: ' \u00e9'.repeat(50).trim() } } });
  });

  const tokenAndBody = ['authorization', 'content-type', 'content-encoding', 'idempotency-key', 'if-match'];
  const others = ['if-none-match', 'x-request-id', 'accept', 'origin', 'x-forwarded-for', 'traceparent'];
  test.each([...tokenAndBody, ...others, 'access-control-request-headers'])(
    'take linear time for 30,000 characters in the header %s',
    async (name) => {
      const values = repeated.flatMap((text) => {
        const latin = text.replaceAll(/[^\x20-\x7e]/g, 'x');
        const typed = [`application/json${latin}`, `application/json;${latin}x`];
        return [latin, `Bearer ${latin}`, `Bearer ${latin} x`, ...typed, `"${latin}`];
      });
      const send = async (value: string) => {
        const options = { headers: { [name]: value }, ...(name === 'authorization' ? {} : { as }) };
        await call('POST', '/v2/private/ltc/totalCoverage', { ...options, body: {} });
        await call('GET', '/v2/private/healthAndCare', options);
      };
      expect(await findCostly(values, send)).toEqual([]);
    },
  );

  test.each([
    '/v2/private/cemetery/all?page=',
    '/v2/private/user/salesManager/monthly-glance?month=',
    '/icons/',
    '/problems/',
    '/v2/private/',
  ])('take linear time for 30,000 characters after %s', async (start) => {
    const send = (text: string) => call('GET', start + text, { as, roles: ['salesManager'] });
    expect(await findCostly(repeated.map(encodeURIComponent), send)).toEqual([]);
  });
});
