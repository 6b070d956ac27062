import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { applications, users } from '../../src/db/schema/people';
import { createSalesStore } from '../../src/modules/sales/store';
import {
  applicant,
  counselor,
  createTestApp,
  listen,
  manager,
  startSandbox,
  testSecret,
  testToken,
} from '../support/app';
import { documentOfSources, type Schema } from '../support/conformance';
import { saveRoutes } from '../support/contract';
import { createRawClient } from '../support/http';
import { atEnd, cases } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
const { call, db, logLines } = testApp;
const document = await documentOfSources();
const client = createRawClient(listen(testApp));
atEnd(() => client.close());

const profile = '/v2/private/user/profile';
const coverage = '/v2/private/ltc/totalCoverage';
const glance = '/v2/private/user/salesManager/monthly-glance?month=3';
const user = '/v2/private/user';
const isCoverage = (path: string) => path.endsWith('totalCoverage');

const key = { 'idempotency-key': 'the-key-of-the-victim' };
await createSalesStore(db).upsertStaff(
  [manager('boss', 'Bossname'), counselor('c1', 'boss', 'Hiddenname'), manager('rival', 'Rivalname')],
  testApp.now,
);
await call('POST', profile, { as: 'victim', body: { firstName: 'Vera', email: 'vera@example.com' } });
await call('POST', coverage, { as: 'victim', body: applicant, headers: key });
await call('POST', profile, { as: 'attacker', body: { firstName: 'Mal' } });

const rowsOf = (id: string) => db.select().from(users).where(eq(users.id, id));
const victimTag = (await call('GET', user, { as: 'victim' })).headers.get('etag') ?? '';
const victimRows = await rowsOf('victim');
const victimIds = (await db.select({ id: applications.id }).from(applications)).map(({ id }) => id);

const names = ['x-user-id', 'x-sub', 'x-forwarded-user', 'x-remote-user', 'x-impersonate-user', 'from'];
const headersThatName = {
  ...Object.fromEntries(names.map((name) => [name, 'victim'])),
  cookie: 'sub=victim; userId=victim',
};
const queryThatNames = ['userId', 'user', 'id', 'sub', 'as'].map((name) => `${name}=victim`).join('&');

describe('another user’s data', () => {
  test('no header and no query parameter selects another user’s record', async () => {
    const options = { as: 'attacker', headers: headersThatName };
    expect((await call('GET', user, options)).body).toMatchObject({ user: { id: 'attacker' } });
    const list = await call('GET', '/v2/private/user/applications', options);
    expect(list.body).toEqual({ data: { applications: [], next: null } });
    for (const path of [user, '/v2/private/user/applications'])
      expect((await call('GET', `${path}?${queryThatNames}`, options)).status).toBe(422);
  });

  test.each(saveRoutes)('no header and no query parameter of $path writes another user’s record', async ({ path }) => {
    const options = { as: 'attacker', headers: headersThatName, body: {} };
    expect((await call('POST', path, options)).body).toMatchObject({ user: { id: 'attacker' } });
    expect((await call('POST', `${path}?${queryThatNames}`, options)).status).toBe(422);
    expect(await rowsOf('victim')).toEqual(victimRows);
  });

  test.each([
    '/v2/private/user/victim',
    '/v2/private/user/victim/profile',
    ...victimIds.map((id) => `/v2/private/user/applications/${id}`),
  ])('has no path of its own: %s', async (path) => {
    expect((await call('GET', path, { as: 'attacker' })).status).toBe(404);
  });

  test('another user’s ETag matches no record and writes none', async () => {
    const headers = { 'if-none-match': victimTag, 'if-match': victimTag };
    expect((await call('GET', user, { as: 'newcomer', headers })).status).toBe(404);
    for (const as of ['newcomer', 'attacker'])
      expect((await call('POST', profile, { as, headers, body: { firstName: 'Mal' } })).status).toBe(412);
    expect(await rowsOf('victim')).toEqual(victimRows);
    expect(await rowsOf('newcomer')).toEqual([]);
  });

  test('another user’s Idempotency-Key returns nothing of theirs and blocks neither user', async () => {
    const apply = (as: string) => call('POST', coverage, { as, headers: key, body: applicant });
    const Applied = v.object({
      user: v.object({ purchase: v.object({ partner: v.object({ appNumber: v.number() }) }) }),
    });
    const { appNumber } = v.parse(Applied, (await apply('owner')).body).user.purchase.partner;
    const before = await sandbox.store.count();
    const mine = await apply('other owner');
    expect(mine).toMatchObject({ status: 200, body: { user: { id: 'other owner' } } });
    expect(mine.text).not.toContain(String(appNumber));
    expect(await sandbox.store.count()).toBe(before + 1);
    expect((await apply('owner')).body).toMatchObject({ user: { id: 'owner', purchase: { partner: { appNumber } } } });
  });

  test.each([
    ...["victim' OR '1'='1", 'victim"--', '%', '_ictim', '*', 'VICTIM', 'victim ', ' victim'],
    ...['../victim', '__proto__'],
  ])('is not selected by a subject with SQL, a path or a wildcard: %j', async (id) => {
    expect((await call('GET', user, { as: id })).status).toBe(404);
    const saved = await call('POST', profile, { as: id, body: { firstName: 'Mal' } });
    expect(saved.body).toMatchObject({ user: { id } });
    expect(await rowsOf('victim')).toEqual(victimRows);
  });
});

describe('role escalation', () => {
  test.each<[string, Record<string, unknown>]>([
    ['in another case', { roles: ['SalesManager', 'SALESMANAGER', 'salesmanager'] }],
    ['with spaces', { roles: [' salesManager', 'salesManager ', 'sales Manager'] }],
    ['as part of a longer word', { roles: 'user;salesManager salesManager2' }],
    ['followed by NUL', { roles: ['salesManager\u0000'] }],
    ['in other claims', { role: 'salesManager', Roles: ['salesManager'], scope: 'salesManager' }],
    ['in nested claims', { realm_access: { roles: ['salesManager'] }, user: { roles: ['salesManager'] } }],
    ['under __proto__', JSON.parse('{"__proto__":{"roles":["salesManager"]}}')],
  ])('a role %s does not count', async (_, claims) => {
    const token = await new SignJWT({ sub: 'boss', exp: testApp.now.getTime() / 1000 + 60, ...claims })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode(testSecret));
    const response = await call('GET', glance, { headers: { authorization: `Bearer ${token}` } });
    expect(response.status).toBe(403);
    expect(response.text).not.toContain('Hiddenname');
  });

  test('a role in the request does not count', async () => {
    const second = await testToken({ id: 'boss', roles: ['salesManager'], now: testApp.now });
    const cookie = `roles=salesManager; token=${second}`;
    const headers = { 'x-roles': 'salesManager', 'x-user-roles': 'salesManager', cookie };
    const path = `${glance}&roles=salesManager&role=salesManager&access_token=${second}`;
    expect((await call('GET', path, { as: 'boss', headers })).status).toBe(403);
    for (const field of ['roles', 'role', 'isManager', 'managerId', 'scope'])
      expect((await call('POST', profile, { as: 'boss', body: { [field]: ['salesManager'] } })).status).toBe(422);
  });

  test('no header and no query parameter selects another team', async () => {
    const options = { as: 'rival', roles: ['salesManager'], headers: headersThatName };
    const response = await call('GET', glance, options);
    expect(response.status).toBe(200);
    expect(response.text).not.toContain('Hiddenname');
    const query = ['managerId', 'manager', 'teamId', 'team', 'staffId', 'id', 'sub'].map((name) => `${name}=boss`);
    expect((await call('GET', `${glance}&${query.join('&')}`, options)).status).toBe(422);
  });
});

describe('mass assignment', () => {
  const matches = { bestMatch: null, remainingMatches: [] };
  const values = cases<unknown>(['victim', { matches }, 99, true, null, ['salesManager']], 2);
  const columns = ['id', '_id', 'sub', 'userId', 'version', '__v', 'createdAt', 'updatedAt', 'counselorId', 'roles'];
  const results = ['insurance', 'insurance.matches', 'purchase', 'partner', 'user', 'matches', 'applications'];
  const magic = ['__proto__', 'constructor', 'prototype', '$set', '$where', 'toString', 'hasOwnProperty'];
  const fields = [...columns, 'counselor_id', ...results, ...magic];
  /** JSON with every field. Built as text: in an object literal, `__proto__` sets the prototype. */
  const bodyWith = (first: string, value: unknown, names: readonly string[]) =>
    `{${[first, ...names.map((name) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)].filter(Boolean).join()}}`;

  /** The unknown fields of a rejected body, each without its place. */
  async function rejectedFields(path: string, as: string, body: string): Promise<string[]> {
    const response = await call('POST', path, { as, body });
    expect(response.status).toBe(422);
    return v
      .parse(Rejection, response.body)
      .errors.filter(({ rule }) => rule === 'unknown_field')
      .map(({ pointer }) => pointer.replace(/^.*\//, ''));
  }
  const Rejection = v.object({ errors: v.array(v.object({ pointer: v.string(), rule: v.string() })) });

  test.each([
    ...saveRoutes.map(({ path }) => path),
    ...['/v2/private/engine/preview', '/v2/private/engine/matches', coverage],
  ])('no unknown field of %s is stored', async (path) => {
    const as = `writer of ${path}`;
    await call('POST', profile, { as, body: {} });
    const before = await rowsOf(as);
    const good = path === coverage ? JSON.stringify(applicant).slice(1, -1) : '';
    for (const value of values)
      expect((await rejectedFields(path, as, bodyWith(good, value, fields))).sort()).toEqual(fields.toSorted());
    expect(await rowsOf(as)).toEqual(before);
  });

  test.each([
    ['selections', '"id":1,"title":"a"'],
    ['hobbies', '"id":1,"title":"a"'],
    ['customSelections', '"title":"a"'],
  ])('no unknown field in an item of %s is stored', async (name, item) => {
    const own = fields.filter((field) => field !== 'id');
    const body = `{${JSON.stringify(name)}:[${bodyWith(item, { a: 1 }, own)}]}`;
    expect((await rejectedFields('/v2/private/deepDives/lifetimeCare', name, body)).sort()).toEqual(own.toSorted());
    expect(await rowsOf(name)).toEqual([]);
  });
});

const sql = cases(
  [
    ...[`'; DROP TABLE users; --' OR '1'='1`, `" OR ""="; x' || (SELECT group_concat(id) FROM users) || '`],
    ...["Robert'); UPDATE users SET version = 99; --", "\\'; SELECT 1; --", "'||json_extract('$')||'"],
    ...['$[0]."a"', '?1 :a @a $a', "/*' or 1=1#*/", '"}]},"injected":{"a":[{"b":"'],
  ],
  2,
);

/** The text fields of a request, each as a function that returns a body with a given text in the field. */
function textFields(schema: unknown): ((text: string) => unknown)[] {
  const at: Schema = v.parse(v.record(v.string(), v.unknown()), schema);
  if (typeof at.$ref === 'string') return textFields(document.schemas[at.$ref.replace('#/components/schemas/', '')]);
  if (Array.isArray(at.anyOf)) return at.anyOf.flatMap(textFields);
  if (at.type === 'string') return 'enum' in at ? [] : [(text) => text];
  if (at.type === 'array') return textFields(at.items).map((fill) => (text: string) => [fill(text)]);
  const properties = v.parse(v.optional(v.record(v.string(), v.unknown()), {}), at.properties);
  const others = 'id' in properties ? { id: 1 } : {};
  return Object.entries(properties).flatMap(([name, inner]) =>
    textFields(inner).map((fill) => (text: string) => ({ ...others, [name]: fill(text) })),
  );
}

const fields = document.operations.flatMap(({ path, body }) =>
  (body === undefined ? [] : textFields(body.schema)).map((fill) => ({ path, fill, at: JSON.stringify(fill('…')) })),
);

describe('injection', () => {
  /** Row counts of every table except the audit log, and the record of an uninvolved user. */
  async function stateOfDatabase(): Promise<unknown> {
    const { rows } = await db.$client.execute(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'audit_events' ORDER BY name",
    );
    const counts: unknown[] = [];
    for (const { name } of v.parse(v.array(v.looseObject({ name: v.string() })), rows)) {
      const counted = await db.$client.execute(`SELECT count(*) AS n FROM "${name}"`);
      counts.push([name, Number(counted.rows[0]?.n)]);
    }
    return [counts, await rowsOf('victim')];
  }

  test.each(fields)('SQL in $path $at stays text or returns 422', async ({ path, fill }) => {
    const as = 'injector';
    const send = (text: string) =>
      call('POST', path, { as, body: isCoverage(path) ? { ...applicant, ...Object(fill(text)) } : fill(text) });
    const withoutTime = (body: unknown) => ({ ...Object(body), calculatedAt: undefined });
    // A new application adds its own rows.
    const before = isCoverage(path) ? undefined : await stateOfDatabase();
    for (const text of sql) {
      const quoted = JSON.stringify(text).slice(1, -1);
      const response = await send(text);
      expect([200, 422]).toContain(response.status);
      if (response.status === 200 && path.includes('/engine/')) {
        // The engine stores nothing, and no rule reads free text.
        expect(withoutTime(response.body)).toEqual(withoutTime((await send('harmless')).body));
        expect(response.text).not.toContain(quoted);
      } else if (response.status === 200) expect((await call('GET', user, { as })).text).toContain(quoted);
      // An application does not replace the answers of an earlier one.
      await db.delete(users).where(eq(users.id, as));
    }
    if (before !== undefined) expect(await stateOfDatabase()).toEqual(before);
    expect(await rowsOf('victim')).toEqual(victimRows);
  });

  test('SQL is sent in every text field of the API document', () => expect(fields.length).toBeGreaterThan(25));

  test('SQL in queries and headers is refused or ignored', async () => {
    const before = await stateOfDatabase();
    for (const text of sql) {
      const escaped = encodeURIComponent(text);
      const month = `/v2/private/user/salesManager/monthly-glance?month=${escaped}`;
      const queries = ['page', 'limit', 'sort'].map((name) => `/v2/private/cemetery/all?${name}=${escaped}`);
      for (const path of [...queries, month])
        expect((await call('GET', path, { as: 'x', roles: ['salesManager'] })).status).toBe(422);
      const headers = { 'if-none-match': text, 'idempotency-key': text.replaceAll(' ', '') };
      const conditional = { ...headers, 'if-match': text };
      expect((await call('POST', profile, { as: 'x', body: {}, headers: conditional })).status).toBe(412);
      expect((await call('GET', user, { as: 'victim', headers })).status).toBe(200);
    }
    expect(await stateOfDatabase()).toEqual(before);
  });

  test('no request value adds a line to the log', async () => {
    const line = 'a\r\nSet-Cookie: evil=1\n{"level":"error","msg":"forged"}\u001b[2J\u2028b\u2029c\u0085';
    await Bun.sleep(20);
    logLines.length = 0;
    let requests = 0;
    for (const text of [line, `${line}\u0000`]) {
      const escaped = encodeURIComponent(text);
      for (const { path, fill } of fields.filter((each) => !isCoverage(each.path))) {
        await call('POST', path, { as: 'liner', body: fill(text) });
        requests += 1;
      }
      await call('GET', `/v2/private/${escaped}?a=${escaped}`, { as: line });
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

  test.each([
    ...['a%0d%0aX-Evil: 1', 'aaaaaaaa%0aX-Evil:1', 'aaaaaaaa\u0085X-Evil: 1', 'aaaaaaaa\u000bX-Evil: 1'],
    '"a\\r\\nX-Evil: 1"',
  ])('no request value adds a response header: %j', async (text) => {
    const authorization = `Bearer ${await testToken({ id: 'splitter', now: testApp.now })}`;
    const sent = ['X-Request-Id', 'If-Match', 'If-None-Match', 'Idempotency-Key', 'Origin', 'traceparent', 'Accept'];
    for (const target of [user, `/v2/private/healthAndCare?a=${encodeURI(text)}`, `/${encodeURI(text)}`]) {
      for (const name of sent) {
        const headers = Object.entries({ Host: 'localhost', Authorization: authorization, [name]: text });
        const response = await client.send({ method: 'GET', target, headers });
        expect([...(response?.headers ?? [])].join('\n')).not.toMatch(/x-evil|set-cookie/i);
      }
    }
  });

  test('no request changes a prototype', async () => {
    const known = Reflect.ownKeys(Object.prototype);
    const poison = '{"polluted":"yes","roles":["salesManager"],"isManager":true}';
    const magic = ['__proto__', 'constructor', 'prototype', 'constructor.prototype', '__proto__.polluted'];
    const member = `{${magic.map((name) => `"${name}":${poison}`).join()}}`;
    for (const { path } of document.operations.filter(({ body }) => body !== undefined))
      for (const body of [member, `{"profile":${member},"selections":[${member}]}`, `[${member}]`])
        await call('POST', path, { as: 'polluter', body });
    const queries = ['__proto__[polluted]=1', '__proto__.polluted=1', 'constructor[prototype][polluted]=1'];
    for (const query of [...queries, 'toString=1', '__proto__=1&__proto__=2'])
      expect((await call('GET', `/v2/private/cemetery/all?${query}`, { as: 'polluter' })).status).toBe(422);
    const headers = [
      ['Host', 'x'],
      ['__proto__', 'polluted'],
      ['constructor', 'x'],
      ['Cookie', '__proto__=polluted'],
    ] as const;
    await client.send({ method: 'GET', target: '/v2/private/user?__proto__=1', headers });
    expect(Reflect.ownKeys(Object.prototype)).toEqual(known);
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    expect((await call('GET', glance, { as: 'polluter' })).status).toBe(403);
  });
});
