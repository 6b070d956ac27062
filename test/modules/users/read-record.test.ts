import { describe, expect, test } from 'bun:test';
import { DatabaseError } from '../../../src/db/errors';
import { readWithFallback } from '../../../src/db/replica';
import { createUserStore } from '../../../src/modules/users/store';
import { createLastWrites, createReadRecord } from '../../../src/modules/users/versions';
import { applicant, createTestApp, createTestCarrier, unavailable } from '../../support/app';
import { temporaryDatabase } from '../../support/database';

const carrier = createTestCarrier();
const user = '/v2/private/user';
const revision = '0123456789abcdef';
const tagOf = (createdAt: number, version: number) => `"${createdAt}-${version}-${revision}"`;

const first = {
  userId: 'ada',
  section: 'profile',
  patch: { firstName: 'Ada' },
  requestId: null,
  now: new Date(0),
} as const;

/** An app whose replica has the first version of Ada's record and changes only when `sync` is called. */
async function setUp() {
  const { db: replica } = await temporaryDatabase();
  const testApp = await createTestApp({ carrier, replica });
  const sync = async () => {
    const { rows, columns } = await testApp.db.$client.execute('SELECT * FROM users');
    await replica.$client.batch(
      [
        'DELETE FROM users',
        ...rows.map((row) => ({
          sql: `INSERT INTO users (${columns.join()}) VALUES (${columns.map(() => '?').join()})`,
          args: columns.map((column) => row[column] ?? null),
        })),
      ],
      'write',
    );
  };
  await createUserStore(testApp.db).saveSection(first);
  await sync();
  return { testApp, replica, sync, read: (headers = {}) => testApp.call('GET', user, { as: 'ada', headers }) };
}

describe('GET /v2/private/user with a replica', () => {
  test('returns the version that each route wrote while the replica lags, also for an application that fails', async () => {
    const { testApp, sync, read } = await setUp();
    const steps: [path: string, body: object | undefined, status?: number][] = [
      ['ltc/totalCoverage', { ...applicant, lastName: 'King' }, 503],
      ['user/profile', applicant],
      ['ltc/lifetimeCare', { careCosts: 1 }],
      ['deepDives/lifeInsurance', { livingStatus: 'stayHome' }],
      ['deepDives/lifetimeCare', { careSafety: 1 }],
      ['engine/matches', undefined],
      ['ltc/totalCoverage', applicant],
      ['life/totalCoverage', applicant],
    ];
    const tags = new Set(['']);
    for (const [path, body, status = 200] of steps) {
      carrier.respond = status === 503 ? unavailable : carrier.acceptAll;
      const response = await testApp.call('POST', `/v2/private/${path}`, { as: 'ada', body });
      expect([path, response.status]).toEqual([path, status]);
      const tag = response.headers.get('etag') ?? '';
      const seen = [await read(), await read()].map(({ headers }) => headers.get('etag'));
      expect([path, tags.has(tag), ...seen]).toEqual([path, false, tag, tag]);
      tags.add(tag);
      // The applications then change nothing but the purchase.
      if (path === 'engine/matches') await sync();
    }
  });

  test('returns no version older than an unchanged match result', async () => {
    const { testApp, read } = await setUp();
    await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' });
    await testApp.db.$client.execute(`UPDATE users SET version = 7, revision = '${revision}'`);
    const response = await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' });
    expect(response.headers.get('etag')).toBe(tagOf(0, 7));
    expect((await read()).headers.get('etag')).toBe(tagOf(0, 7));
  });

  test('returns the saved version after 99,999 saves by other users', async () => {
    const { testApp, replica } = await setUp();
    const lastWrites = createLastWrites();
    const users = createUserStore(testApp.db, lastWrites);
    const readRecord = createReadRecord(users.find, createUserStore(replica).find, lastWrites);
    const saved = await users.saveSection({ ...first, patch: { lastName: 'Byron' } });
    for (let other = 0; other < 99_999; other += 1) {
      lastWrites.add({ id: `other-${other}`, createdAt: 0, version: 1, revision });
    }
    expect(await readRecord('ada', [])).toEqual(saved);
    lastWrites.add({ id: 'one-more', createdAt: 0, version: 1, revision });
    expect(lastWrites.find('other-0')).toBeUndefined();
    expect(lastWrites.find('other-1')).toBeDefined();
  });

  test('reads the replica once it has caught up, also when the primary is unavailable', async () => {
    const { testApp, sync, read } = await setUp();
    const saved = await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { lastName: 'Byron' } });
    await sync();
    testApp.db.$client.close();
    const seen = await read();
    expect(seen).toMatchObject({ status: 200, body: saved.body });
    const tag = seen.headers.get('etag') ?? '';
    expect((await read({ 'if-none-match': tag })).status).toBe(304);
  });

  test('returns no version older than the one in If-None-Match that another instance returned', async () => {
    const { testApp, read } = await setUp();
    // Simulates a write by another instance: this app did not record the version.
    await testApp.db.$client.execute(`UPDATE users SET version = 5, revision = '${revision}', updated_at = 1`);
    expect((await read()).headers.get('etag')).toStartWith('"0-1-');
    expect((await read({ 'if-none-match': tagOf(0, 4) })).headers.get('etag')).toBe(tagOf(0, 5));
    // A compressing proxy makes the tag weak.
    expect((await read({ 'if-none-match': `W/${tagOf(0, 4)}` })).headers.get('etag')).toBe(tagOf(0, 5));
    expect((await read({ 'if-none-match': `W/${tagOf(0, 5)}` })).status).toBe(304);
  });

  test('returns 503 when the replica is stale and the primary is unavailable', async () => {
    const { testApp, read } = await setUp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { lastName: 'Byron' } });
    testApp.db.$client.close();
    const response = await read();
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(response.headers.get('retry-after')).toBe('1');
  });

  test('reads the primary when the replica does not have the record', async () => {
    const { testApp } = await setUp();
    const body = { firstName: 'New' };
    await testApp.db.$client.execute("INSERT INTO users (id, version, created_at, updated_at) VALUES ('new', 1, 5, 5)");
    expect((await testApp.call('GET', user, { as: 'new' })).status).toBe(200);
    expect((await testApp.call('GET', user, { as: 'unknown' })).status).toBe(404);
    expect((await testApp.call('POST', '/v2/private/user/profile', { as: 'unknown', body })).status).toBe(200);
    expect((await testApp.call('GET', user, { as: 'unknown' })).status).toBe(200);
  });

  test('returns a record that was erased and created again with an earlier createdAt', async () => {
    const { testApp, sync, read } = await setUp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { lastName: 'Byron' } });
    await testApp.db.$client.batch(
      [
        "DELETE FROM users WHERE id = 'ada'",
        `INSERT INTO users (id, version, revision, created_at, updated_at) VALUES ('ada', 1, '${revision}', -5, -5)`,
      ],
      'write',
    );
    expect((await read()).headers.get('etag')).toBe(tagOf(-5, 1));
    await sync();
    testApp.db.$client.close();
    expect((await read()).headers.get('etag')).toBe(tagOf(-5, 1));
  });
});

test('replica with fallback sends a write only to the primary, once', async () => {
  const { db } = await temporaryDatabase();
  const sent: unknown[] = [];
  const read = (sql: string) => {
    sent.push(sql);
    return Promise.reject(new DatabaseError('ECONNRESET', true));
  };
  const reads = readWithFallback({ ...db.$client, read }, db.$client);
  await reads.write([{ sql: "INSERT INTO users (id, version, created_at, updated_at) VALUES ('a', 1, 1, 1)" }]);
  expect(sent).toEqual([]);
  expect((await reads.read('SELECT count(*) AS n FROM users')).rows[0]?.n).toBe(1);
  expect(sent).toHaveLength(1);
});

describe('reads with a replica', () => {
  test('use the primary for matches, previews and applications', async () => {
    const { testApp, replica } = await setUp();
    replica.$client.close();
    for (const [path, body] of [
      ['engine/matches', {}],
      ['engine/preview', {}],
      ['life/totalCoverage', applicant],
    ] as const) {
      const { status } = await testApp.call('POST', `/v2/private/${path}`, { as: 'ada', body });
      expect([path, status]).toEqual([path, 200]);
    }
    expect(await testApp.call('GET', '/v2/private/user/applications', { as: 'ada' })).toMatchObject({
      status: 200,
      body: { data: { applications: [{ state: 'submitted' }] } },
    });
  });

  test('use the replica for reference lists, cemeteries and the monthly glance', async () => {
    const { testApp } = await setUp();
    testApp.db.$client.close();
    const asBoss = { as: 'boss', roles: ['salesManager'] } as const;
    for (const [path, expected] of [
      ['healthAndCare/', 200],
      ['cemetery/all', 200],
      ['user/salesManager/monthly-glance?month=3', 403],
    ] as const) {
      const { status } = await testApp.call('GET', `/v2/private/${path}`, asBoss);
      expect([path, status]).toEqual([path, expected]);
    }
  });
});
