import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { applicant, createTestApp, startSandbox, testToken } from '../support/app';
import type { Schema } from '../support/conformance';
import { documentOfSources } from '../support/conformance';
import { createRawClient } from '../support/http';
import { atEnd, cases } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
const { call, db, logLines } = testApp;
const document = await documentOfSources();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const client = createRawClient(testApp.app.server?.port ?? 0);
atEnd(async () => {
  client.close();
  await testApp.app.stop(true);
});
const token = await testToken({ id: 'injector', now: testApp.now });
await call('POST', '/v2/private/user/profile', { as: 'bystander', body: { firstName: 'Bea' } });

const Tables = v.array(v.looseObject({ name: v.string() }));
/** Row counts of every table except the audit log, and the record of an uninvolved user. */
async function stateOfDatabase(): Promise<unknown> {
  const { rows } = await db.$client.execute(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'audit_events' ORDER BY name",
  );
  const counts = await Promise.all(
    v.parse(Tables, rows).map(async ({ name }) => {
      const counted = await db.$client.execute(`SELECT count(*) AS n FROM "${name}"`);
      return [name, Number(counted.rows[0]?.n)];
    }),
  );
  return [counts, (await call('GET', '/v2/private/user', { as: 'bystander' })).text];
}

const allSql = [
  "'; DROP TABLE users; --",
  "' OR '1'='1",
  "Robert'); UPDATE users SET version = 99; --",
  '" OR ""="',
  "\\'; SELECT 1; --",
  "x' || (SELECT group_concat(id) FROM users) || '",
  "'||json_extract('$')||'",
  '$[0]."a"',
  '?1 :a @a $a',
  "/*' or 1=1#*/",
  '"}]},"injected":{"a":[{"b":"',
];
const sql = cases(allSql, 4);
const lines = [
  'a\r\nSet-Cookie: evil=1',
  'a\n{"level":"error","msg":"forged"}',
  '\u001b[2J\u001b[31m',
  'a\u2028b\u2029c',
  '\u0085',
  '\u0000',
];

/** The text fields of a request, each as a function that returns a body with a given text in the field. */
function textFields(schema: unknown, name = ''): ((text: string) => unknown)[] {
  const at: Schema = v.parse(v.record(v.string(), v.unknown()), schema);
  if (typeof at.$ref === 'string')
    return textFields(document.schemas[at.$ref.replace('#/components/schemas/', '')], name);
  if (Array.isArray(at.anyOf)) return at.anyOf.flatMap((option) => textFields(option, name));
  if (at.type === 'string') return 'enum' in at ? [] : [(text) => text];
  if (at.type === 'array') return textFields(at.items, name).map((fill) => (text: string) => [fill(text)]);
  const properties = v.parse(v.optional(v.record(v.string(), v.unknown()), {}), at.properties);
  const others = 'id' in properties ? { id: 1 } : {};
  return Object.entries(properties).flatMap(([key, inner]) =>
    textFields(inner, key).map((fill) => (text: string) => ({ ...others, [key]: fill(text) })),
  );
}

const fields = document.operations.flatMap(({ path, body }) =>
  (body === undefined ? [] : textFields(body.schema)).map((fill) => ({ path, fill, at: JSON.stringify(fill('…')) })),
);
const isCoverage = (path: string) => path.endsWith('totalCoverage');
const complete = (path: string, body: unknown) =>
  isCoverage(path) ? { ...applicant, ...v.parse(v.looseObject({}), body) } : body;

const withoutTime = (body: unknown) => ({ ...v.parse(v.looseObject({}), body), calculatedAt: undefined });

describe('injection', () => {
  test('the tests include every text field of the API document', () => expect(fields.length).toBeGreaterThan(25));

  test.each(fields)('SQL in $path $at stays text or returns 422', async ({ path, fill }) => {
    // A new application adds its own rows.
    const before = isCoverage(path) ? undefined : await stateOfDatabase();
    for (const text of sql) {
      const response = await call('POST', path, { as: 'bystander-2', body: complete(path, fill(text)) });
      expect([200, 422]).toContain(response.status);
      if (response.status === 200 && path.includes('/engine/')) {
        // The engine stores nothing, and no rule reads free text.
        const harmless = await call('POST', path, { as: 'bystander-2', body: fill('harmless') });
        expect(withoutTime(response.body)).toEqual(withoutTime(harmless.body));
        expect(response.text).not.toContain(JSON.stringify(text).slice(1, -1));
      } else if (response.status === 200) {
        const stored = await call('GET', '/v2/private/user', { as: 'bystander-2' });
        expect(stored.text).toContain(JSON.stringify(text).slice(1, -1));
      }
      // An application does not replace the answers of an earlier one.
      await db.$client.execute("DELETE FROM users WHERE id = 'bystander-2'");
    }
    if (before !== undefined) expect(await stateOfDatabase()).toEqual(before);
    expect((await call('GET', '/v2/private/user', { as: 'bystander' })).body).toMatchObject({
      user: { profile: { firstName: 'Bea' } },
    });
  });

  test('SQL in queries and headers is refused or ignored', async () => {
    const before = await stateOfDatabase();
    for (const text of sql) {
      const escaped = encodeURIComponent(text);
      for (const name of ['page', 'limit', 'sort']) {
        expect((await call('GET', `/v2/private/cemetery/all?${name}=${escaped}`, { as: 'x' })).status).toBe(422);
      }
      const glance = await call('GET', `/v2/private/user/salesManager/monthly-glance?month=${escaped}`, {
        as: 'x',
        roles: ['salesManager'],
      });
      expect(glance.status).toBe(422);
      const headers = { 'if-match': text, 'if-none-match': text, 'idempotency-key': text.replaceAll(' ', '') };
      expect((await call('POST', '/v2/private/user/profile', { as: 'x', body: {}, headers })).status).toBe(412);
      const { 'if-match': _, ...unconditional } = headers;
      const read = await call('GET', '/v2/private/user', { as: 'bystander', headers: unconditional });
      expect(read.status).toBe(200);
    }
    expect(await stateOfDatabase()).toEqual(before);
  });

  test('no request value adds a line to the log', async () => {
    await Bun.sleep(20);
    logLines.length = 0;
    let requests = 0;
    for (const text of lines) {
      const escaped = encodeURIComponent(text);
      for (const { path, fill } of fields.filter((each) => !isCoverage(each.path))) {
        await call('POST', path, { as: 'liner', body: fill(text) });
        requests += 1;
      }
      await call('GET', `/v2/private/${escaped}?a=${escaped}`, { as: text.replaceAll('\u0000', '') });
      await call('GET', '/health/live', { headers: { 'x-request-id': escaped, 'user-agent': escaped } });
      requests += 2;
    }
    await Bun.sleep(20);
    const texts = logLines.map((line) => JSON.parse(line).msg);
    expect(texts.filter((text) => text === 'request')).toHaveLength(requests);
    expect(new Set(texts)).toEqual(new Set(['request', 'request refused']));
    for (const line of logLines) {
      expect(line.trimEnd()).toMatch(/^[\x20-\x7e]+$/);
      expect(line).not.toContain('forged');
    }
  });

  test('no request value adds a response header', async () => {
    const splitting = [
      'a%0d%0aX-Evil: 1',
      'aaaaaaaa%0aX-Evil:1',
      'aaaaaaaa\u0085X-Evil: 1',
      'aaaaaaaa\u000bX-Evil: 1',
      '"a\\r\\nX-Evil: 1"',
    ];
    for (const text of splitting) {
      const names = ['X-Request-Id', 'If-Match', 'If-None-Match', 'Idempotency-Key', 'Origin', 'traceparent', 'Accept'];
      for (const name of names) {
        for (const target of [
          '/v2/private/user',
          `/v2/private/healthAndCare?a=${encodeURI(text)}`,
          `/${encodeURI(text)}`,
          '/v2/private/user/profile',
        ]) {
          const headers = [
            ['Host', 'localhost'],
            ['Authorization', `Bearer ${token}`],
            [name, text],
          ] as const;
          const response = await client.send({ method: 'GET', target, headers });
          expect([...(response?.headers.keys() ?? [])].join()).not.toMatch(/x-evil|set-cookie/);
          for (const value of response?.headers.values() ?? []) expect(value).not.toContain('X-Evil');
        }
      }
    }
  });

  test('no request changes a prototype', async () => {
    const known = Reflect.ownKeys(Object.prototype);
    const poison = '{"polluted":"yes","roles":["salesManager"],"isManager":true}';
    for (const { path, body } of document.operations) {
      if (body === undefined) continue;
      for (const key of ['__proto__', 'constructor', 'prototype', 'constructor.prototype', '__proto__.polluted']) {
        await call('POST', path, { as: 'polluter', body: `{"${key}":${poison}}` });
        await call('POST', path, {
          as: 'polluter',
          body: `{"profile":{"${key}":${poison}},"selections":[{"${key}":${poison}}]}`,
        });
        await call('POST', path, { as: 'polluter', body: `[{"${key}":${poison}}]` });
      }
    }
    for (const query of [
      '__proto__[polluted]=1',
      '__proto__.polluted=1',
      'constructor[prototype][polluted]=1',
      '__proto__=1&__proto__=2',
      'toString=1',
    ]) {
      const response = await call('GET', `/v2/private/cemetery/all?${query}`, { as: 'polluter' });
      expect(response.status).toBe(422);
    }
    await client.send({
      method: 'GET',
      target: '/v2/private/user?__proto__=1',
      headers: [
        ['Host', 'x'],
        ['__proto__', 'polluted'],
        ['constructor', 'x'],
        ['Cookie', '__proto__=polluted'],
      ],
    });
    expect(Reflect.ownKeys(Object.prototype)).toEqual(known);
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    const glance = await call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', { as: 'polluter' });
    expect(glance.status).toBe(403);
  });
});
