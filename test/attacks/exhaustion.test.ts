import { describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { createTestApp, testToken } from '../support/app';
import { atEnd } from '../support/cleanup';
import { amount, cases } from '../support/long';
import { createRawClient } from '../support/raw-http';
import { connectRaw } from '../support/raw-socket';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const port = testApp.app.server?.port ?? 0;
const client = createRawClient(port);
atEnd(async () => {
  client.close();
  await testApp.app.stop(true);
});
const token = await testToken({ id: 'exhauster', now: testApp.now });
const profile = '/v2/private/user/profile';
const auth = ['Authorization', `Bearer ${token}`] as const;

/** Whoever holds the one thread up longer than this, on a machine that others load too, holds everybody up. */
const patienceMs = 1_500;

async function isServed(): Promise<void> {
  const startedAtMs = performance.now();
  const answer = await fetch(`http://127.0.0.1:${port}/v2/private/user`, { headers: { authorization: auth[1] } });
  expect([200, 404]).toContain(answer.status);
  expect(performance.now() - startedAtMs).toBeLessThan(patienceMs);
}

/** The time of the thread that it takes, whatever others do on the machine. */
async function cpuMs(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

const oversized: [name: string, target: string, headers: [string, string][]][] = [
  ['a path of 40 KB', `/${'a'.repeat(40_000)}`, []],
  ['a query of 40 KB', `/v2/private/cemetery/all?page=${'1'.repeat(40_000)}`, []],
  ['a header of 40 KB', '/v2/private/user', [['X-Large', 'a'.repeat(40_000)]]],
  ['a token of 40 KB', '/v2/private/user', [['Authorization', `Bearer ${'a'.repeat(40_000)}`]]],
  ['a name of a header of 40 KB', '/v2/private/user', [['X'.repeat(40_000), '1']]],
  ['1,000 headers', '/v2/private/user', Array.from({ length: 1_000 }, (_, index) => [`X-${index}`, '1'])],
];

describe('attack by size:', () => {
  test.each(oversized)('%s is refused, and others are served', async (_, target, headers) => {
    const answer = await client.send({ method: 'GET', target, headers: [['Host', 'x'], auth, ...headers] });
    expect([400, 413, 414, 431, undefined]).toContain(answer?.status);
    await isServed();
  });

  test.each([
    ['1,500 query parameters', `?${Array.from({ length: 1_500 }, (_, index) => `p${index}=1`).join('&')}`, 200],
    ['one parameter 1,500 times', `?${'page=1&'.repeat(1_500)}`, 422],
  ])('%s cost nothing', async (_, query, status) => {
    const answer = await client.send({
      method: 'GET',
      target: `/v2/private/cemetery/all${query}`,
      headers: [['Host', 'x'], auth],
    });
    expect(answer?.status).toBe(status);
    await isServed();
  });

  const keys = Array.from({ length: 20_000 }, (_, index) => `"k${index}":1`).join();
  const deep = (open: string, close: string, depth: number) => open.repeat(depth) + close.repeat(depth);
  test.each([
    ['20,000 fields', `{${keys}}`],
    ['one field 20,000 times', `{${'"firstName":"a",'.repeat(14_000)}"zzz":1}`],
    ['20,000 fields in an item', `{"selections":[{${keys}}]}`],
    ['a list in a list 100,000 times', `{"firstName":${deep('[', ']', 100_000)}}`],
    ['an object in an object 40,000 times', `{"firstName":${'{"a":'.repeat(40_000)}1${'}'.repeat(40_000)}}`],
    [
      '100 lists of 1,000',
      `{"selections":[${Array(100)
        .fill(`[${Array(1_000).fill(1).join()}]`)
        .join()}]}`,
    ],
    ['a number of 200,000 digits', `{"heightCm":${'1'.repeat(200_000)}}`],
    ['a fraction of 200,000 digits', `{"heightCm":1.${'1'.repeat(200_000)}}`],
    ['a text of escapes', `{"firstName":"${'\\u0041'.repeat(40_000)}"}`],
    [
      '100 unknown fields of 2 KB',
      `{${Array.from({ length: 100 }, (_, index) => `"${index}${'x'.repeat(2_000)}":1`).join()}}`,
    ],
  ])('%s in a body are refused at once, in few words', async (_, body) => {
    for (const path of [profile, '/v2/private/ltc/lifetimeCare', '/v2/private/engine/preview']) {
      let text = '';
      const spentMs = await cpuMs(async () => {
        const answer = await testApp.call('POST', path, { as: 'exhauster', body });
        expect([200, 422]).toContain(answer.status);
        ({ text } = answer);
      });
      expect(spentMs).toBeLessThan(patienceMs);
      expect(text.length).toBeLessThan(40_000);
    }
  });

  test('a body in 100,000 chunks of a byte is counted like any other', async () => {
    const { exchange } = await connectRaw(port);
    const head = `POST ${profile} HTTP/1.1\r\nHost: x\r\n${auth.join(': ')}\r\nContent-Type: application/json\r\nConnection: close\r\n`;
    const chunks = `1\r\n{\r\n${'1\r\n \r\n'.repeat(100_000)}1\r\n}\r\n0\r\n\r\n`;
    expect(await exchange(`${head}Transfer-Encoding: chunked\r\n\r\n${chunks}`)).toStartWith('HTTP/1.1 200 ');
    await isServed();
  });
});

describe('attack by slowness:', () => {
  test.each([
    ['say nothing', ''],
    ['begin a line', 'GET /v2/priv'],
    ['begin a head', 'GET /v2/private/user HTTP/1.1\r\nHost: x\r\nX-A: '],
    [
      'announce a body',
      `POST ${profile} HTTP/1.1\r\nHost: x\r\n${auth.join(': ')}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    ],
    [
      'begin a chunk',
      `POST ${profile} HTTP/1.1\r\nHost: x\r\n${auth.join(': ')}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{`,
    ],
    ['read no answer', 'GET /swagger/scalar.js HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(20)],
  ])('many connections that %s keep nobody from being served', async (_, bytes) => {
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

describe('attack on patterns:', () => {
  /** For each place that a pattern looks at, what would make a careless pattern go back again and again. */
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
  const repeated = cases(texts, 5).map((text) => text.repeat(length / text.length));
  const fields = ['firstName', 'lastName', 'email', 'dateOfBirth', 'state', 'gender'];

  test.each(fields)('no text of 60,000 characters in %s takes long', async (field) => {
    for (const text of repeated) {
      for (const value of [text, `a${text}`, `${text}!`, `a@${text}`, `2000-01-01T${text}`]) {
        const spentMs = await cpuMs(() => testApp.call('POST', profile, { as: 'exhauster', body: { [field]: value } }));
        expect([field, value.slice(0, 20), spentMs < patienceMs]).toEqual([field, value.slice(0, 20), true]);
      }
    }
  });

  test('no accents up to the longest that is composed take long', async () => {
    const value = `a${'\u0315\u0300'.repeat(500)}@x.org`;
    const body = { firstName: value.slice(0, 400), lastName: value.slice(0, 400), email: value };
    expect(await cpuMs(() => testApp.call('POST', profile, { as: 'exhauster', body }))).toBeLessThan(patienceMs);
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
  ])('no value of 60,000 characters in %s takes long', async (name) => {
    for (const text of repeated) {
      const latin = text.replaceAll(/[^\x20-\x7e]/g, 'x');
      for (const value of [
        latin,
        `Bearer ${latin}`,
        `Bearer ${latin} x`,
        `application/json${latin}`,
        `application/json;${latin}x`,
        `"${latin}`,
      ]) {
        const headers = { [name]: value };
        const spentMs = await cpuMs(async () => {
          await testApp.call('POST', '/v2/private/ltc/totalCoverage', {
            ...(name === 'authorization' ? {} : { as: 'exhauster' }),
            body: {},
            headers,
          });
          await testApp.call('GET', '/v2/private/healthAndCare', { as: 'exhauster', headers });
        });
        expect([name, value.slice(0, 20), spentMs < patienceMs]).toEqual([name, value.slice(0, 20), true]);
      }
    }
  });

  test.each([
    '/v2/private/cemetery/all?page=',
    '/v2/private/user/salesManager/monthly-glance?month=',
    '/icons/',
    '/problems/',
    '/v2/private/',
  ])('no text of 60,000 characters behind %s takes long', async (start) => {
    for (const text of repeated) {
      const spentMs = await cpuMs(() =>
        testApp.call('GET', start + encodeURIComponent(text), { as: 'exhauster', roles: ['salesManager'] }),
      );
      expect([start, text.slice(0, 20), spentMs < patienceMs]).toEqual([start, text.slice(0, 20), true]);
    }
  });
});
