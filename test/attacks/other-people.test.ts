import { describe, expect, test } from 'bun:test';
import { asc } from 'drizzle-orm';
import { SignJWT } from 'jose';
import { applications, users } from '../../src/db/schema/people';
import { createSalesStore } from '../../src/modules/sales/store';
import { applicant, counselor, createTestApp, manager, startSandbox, testSecret, testToken } from '../support/app';
import { saveRoutes } from '../support/contract';
import { cases } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
const { call, db } = testApp;
const profile = '/v2/private/user/profile';
const coverage = '/v2/private/ltc/totalCoverage';
const glance = '/v2/private/user/salesManager/monthly-glance?month=3';
const key = { 'idempotency-key': 'the-key-of-the-victim' };

await createSalesStore(db).upsertStaff(
  [manager('boss', 'Bossname'), counselor('c1', 'boss', 'Hiddenname'), manager('rival', 'Rivalname')],
  testApp.now,
);
await call('POST', profile, { as: 'victim', body: { firstName: 'Vera', email: 'vera@example.com' } });
await call('POST', coverage, { as: 'victim', body: applicant, headers: key });
await call('POST', profile, { as: 'attacker', body: { firstName: 'Mal' } });

const rowsOf = async (id: string) =>
  (await db.select().from(users).orderBy(asc(users.id))).filter((row) => row.id === id);
const victimTag = (await call('GET', '/v2/private/user', { as: 'victim' })).headers.get('etag') ?? '';
const victimRows = await rowsOf('victim');
const victimIds = (await db.select({ id: applications.id }).from(applications)).map(({ id }) => id);

/** Headers and query parameters that may name a user. */
const named = 'victim';
const headersThatName = {
  'x-user-id': named,
  'x-sub': named,
  'x-forwarded-user': named,
  'x-remote-user': named,
  'x-impersonate-user': named,
  cookie: `sub=${named}; userId=${named}`,
  from: named,
};
const queryThatNames = `userId=${named}&user=${named}&id=${named}&sub=${named}&as=${named}`;

describe('another user’s data', () => {
  test('no header and no query parameter selects another user’s record', async () => {
    const options = { as: 'attacker', headers: headersThatName };
    const read = await call('GET', '/v2/private/user', options);
    expect(read.body).toMatchObject({ user: { id: 'attacker', profile: { firstName: 'Mal' } } });
    const list = await call('GET', '/v2/private/user/applications', options);
    expect(list.body).toEqual({ data: { applications: [], next: null } });
    for (const path of ['/v2/private/user', '/v2/private/user/applications']) {
      expect((await call('GET', `${path}?${queryThatNames}`, options)).status).toBe(422);
    }
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
  ])('the path %s does not exist', async (path) =>
    expect((await call('GET', path, { as: 'attacker' })).status).toBe(404),
  );

  test('another user’s ETag matches no record and writes none', async () => {
    const headers = { 'if-none-match': victimTag, 'if-match': victimTag };
    const read = await call('GET', '/v2/private/user', { as: 'newcomer', headers });
    expect(read.status).toBe(404);
    expect((await call('POST', profile, { as: 'newcomer', headers, body: { firstName: 'Mal' } })).status).toBe(412);
    await call('POST', profile, { as: 'attacker', headers, body: { firstName: 'Mal' } });
    expect(await rowsOf('victim')).toEqual(victimRows);
    expect(await rowsOf('newcomer')).toEqual([]);
  });

  test.each([
    ['the same', applicant],
    ['other', { ...applicant, state: 'NY' }],
  ])(
    'another user’s Idempotency-Key with %s data returns nothing of theirs and blocks neither user',
    async (_, body) => {
      const before = await sandbox.store.count();
      const as = `attacker-${body.state}`;
      const mine = await call('POST', coverage, { as, headers: key, body });
      expect(mine.status).toBe(200);
      expect(mine.body).toMatchObject({ user: { id: as } });
      expect(await sandbox.store.count()).toBe(before + 1);
      const again = await call('POST', coverage, { as: 'victim', headers: key, body: applicant });
      expect(again.body).toMatchObject({ user: { id: 'victim', purchase: { partner: { appNumber: 100_001 } } } });
      expect(mine.text).not.toContain('100001');
    },
  );

  test('a subject with SQL, a path or a wildcard selects only its own record', async () => {
    for (const id of [
      "victim' OR '1'='1",
      'victim"--',
      '%',
      '_ictim',
      '*',
      'VICTIM',
      'victim ',
      ' victim',
      '../victim',
      '__proto__',
    ]) {
      expect((await call('GET', '/v2/private/user', { as: id })).status).toBe(404);
      const saved = await call('POST', profile, { as: id, body: { firstName: 'Mal' } });
      expect(saved.body).toMatchObject({ user: { id } });
    }
    expect(await rowsOf('victim')).toEqual(
      victimRows.map((row) => ({ ...row, requestId: expect.anything(), updatedAt: expect.anything() })),
    );
  });
});

describe('role escalation', () => {
  const withClaims = (claims: Record<string, unknown>) =>
    new SignJWT({ sub: 'boss', exp: testApp.now.getTime() / 1000 + 60, ...claims })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode(testSecret));

  test.each<[string, Record<string, unknown>]>([
    ['in another case', { roles: ['SalesManager', 'SALESMANAGER', 'salesmanager'] }],
    ['with spaces', { roles: [' salesManager', 'salesManager ', 'sales Manager'] }],
    ['as part of a longer word', { roles: 'user;salesManager salesManager2' }],
    ['in a list within the text', { roles: '["salesManager"]' }],
    ['followed by NUL', { roles: ['salesManager\u0000'] }],
    ['in letters that look the same', { roles: ['sаlesManager', 'ſalesManager'] }],
    [
      'in other claims',
      { role: 'salesManager', Roles: ['salesManager'], scope: 'salesManager', groups: ['salesManager'] },
    ],
    ['in nested claims', { realm_access: { roles: ['salesManager'] }, user: { roles: ['salesManager'] } }],
    ['under __proto__', JSON.parse('{"__proto__":{"roles":["salesManager"]}}')],
  ])('a role %s does not count', async (_, claims) => {
    const headers = { authorization: `Bearer ${await withClaims(claims)}` };
    const response = await call('GET', glance, { headers });
    expect(response.status).toBe(403);
    expect(response.text).not.toContain('Hiddenname');
  });

  test('a role in the request does not count', async () => {
    const second = await testToken({ id: 'boss', roles: ['salesManager'], now: testApp.now });
    const headers = {
      'x-roles': 'salesManager',
      'x-user-roles': 'salesManager',
      cookie: `roles=salesManager; token=${second}`,
    };
    const response = await call('GET', `${glance}&roles=salesManager&role=salesManager&access_token=${second}`, {
      as: 'boss',
      headers,
    });
    expect(response.status).toBe(403);
    for (const field of ['roles', 'role', 'isManager', 'managerId', 'scope']) {
      expect((await call('POST', profile, { as: 'boss', body: { [field]: ['salesManager'] } })).status).toBe(422);
    }
  });

  test('a manager sees only the own team, also if the request names another team', async () => {
    for (const name of ['managerId', 'manager', 'teamId', 'team', 'staffId', 'id', 'sub']) {
      const options = { as: 'rival', roles: ['salesManager'], headers: headersThatName };
      const response = await call('GET', glance, options);
      expect(response.status).toBe(200);
      expect(response.text).not.toContain('Hiddenname');
      expect((await call('GET', `${glance}&${name}=boss`, options)).status).toBe(422);
    }
  });
});

describe('mass assignment', () => {
  const values = cases<unknown>(
    ['victim', 99, true, null, { matches: { bestMatch: null, remainingMatches: [] } }, ['salesManager']],
    2,
  );
  const fields = [
    'id',
    '_id',
    'sub',
    'userId',
    'version',
    '__v',
    'createdAt',
    'updatedAt',
    'counselorId',
    'counselor_id',
    'roles',
  ];
  const results = ['insurance', 'insurance.matches', 'purchase', 'partner', 'user', 'matches', 'ltc', 'applications'];
  const magic = ['__proto__', 'constructor', 'prototype', '$set', '$where', 'toString', 'hasOwnProperty'];

  test.each([
    ...saveRoutes.map(({ path }) => path),
    '/v2/private/engine/preview',
    '/v2/private/engine/matches',
    coverage,
  ])('no unknown field of %s is stored', async (path) => {
    const isOwn = (field: string) => path.endsWith('preview') && field === 'ltc';
    const before = await rowsOf('attacker');
    for (const field of [...fields, ...results, ...magic].filter((each) => !isOwn(each))) {
      for (const value of values) {
        // Built as text: in an object literal, `__proto__` sets the prototype.
        const good = path === coverage ? JSON.stringify(applicant).slice(1, -1) : '';
        const body = `{${good}${good === '' ? '' : ','}${JSON.stringify(field)}:${JSON.stringify(value)}}`;
        const response = await call('POST', path, { as: 'attacker', body });
        expect([field, response.status]).toEqual([field, 422]);
      }
    }
    expect(await rowsOf('attacker')).toEqual(before);
  });

  test.each(['selections', 'hobbies', 'customSelections'])(
    'no unknown field in an item of %s is stored',
    async (name) => {
      const before = await rowsOf('attacker');
      for (const field of [...fields.slice(1), ...results, ...magic]) {
        const id = name === 'customSelections' ? '' : '"id":1,';
        const body = `{${JSON.stringify(name)}:[{${id}"title":"a",${JSON.stringify(field)}:{"a":1}}]}`;
        expect((await call('POST', '/v2/private/deepDives/lifetimeCare', { as: 'attacker', body })).status).toBe(422);
      }
      expect(await rowsOf('attacker')).toEqual(before);
    },
  );
});
