import { describe, expect, test } from 'bun:test';
import { DatabaseError } from '../../../src/db/errors';
import { readWithFallback } from '../../../src/db/replica';
import { createUserStore } from '../../../src/modules/users/store';
import { createLastWrites, createReadRecord } from '../../../src/modules/users/versions';
import { applicant, createTestApp, startSandbox } from '../../support/app';
import { temporaryDatabase } from '../../support/database';

const sandbox = await startSandbox();
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
async function setUp(overrides: Parameters<typeof createTestApp>[0] = {}) {
  const { db: replica } = await temporaryDatabase();
  const testApp = await createTestApp({ ...overrides, replica });
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
  test.each([
    { path: '/v2/private/user/profile', body: { lastName: 'Byron' } },
    { path: '/v2/private/ltc/lifetimeCare', body: { careCosts: 1 } },
    { path: '/v2/private/deepDives/lifeInsurance', body: { livingStatus: 'stayHome' } },
    { path: '/v2/private/deepDives/lifetimeCare', body: { careSafety: 1 } },
    { path: '/v2/private/engine/matches', body: undefined },
    { path: '/v2/private/ltc/totalCoverage', body: applicant },
    { path: '/v2/private/life/totalCoverage', body: applicant },
  ])('returns the version that POST $path wrote while the replica lags', async ({ path, body }) => {
    const { testApp, read } = await setUp({ carrier: sandbox.carrier() });
    const response = await testApp.call('POST', path, { as: 'ada', body });
    expect(response.status).toBe(200);
    const seen = await read();
    expect(seen.headers.get('etag')).toBe(response.headers.get('etag'));
    expect(seen.headers.get('etag')).not.toStartWith('"0-1-');
  });

  test('returns the purchase of an application that changed nothing else while the replica lags', async () => {
    const { testApp, sync, read } = await setUp({ carrier: sandbox.carrier() });
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: applicant });
    await sync();
    const response = await testApp.call('POST', '/v2/private/life/totalCoverage', { as: 'ada', body: applicant });
    expect((await read()).headers.get('etag')).toBe(response.headers.get('etag'));
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

  test('returns the profile that a failed application saved', async () => {
    const { testApp, read } = await setUp();
    const failed = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: applicant });
    expect(failed.status).toBe(503);
    expect(await read()).toMatchObject({ status: 200, body: { user: { profile: { lastName: 'Byron' } } } });
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
    const now = new Date(1);
    // Simulates a write by another instance: this app did not record the version.
    await testApp.db.$client.execute({
      sql: 'UPDATE users SET version = 5, revision = ?, updated_at = ?',
      args: [revision, now.getTime()],
    });
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
    const { testApp, replica } = await setUp({ carrier: sandbox.carrier() });
    replica.$client.close();
    const asAda = { as: 'ada' } as const;
    expect((await testApp.call('POST', '/v2/private/engine/matches', asAda)).status).toBe(200);
    expect((await testApp.call('POST', '/v2/private/engine/preview', { ...asAda, body: {} })).status).toBe(200);
    expect((await testApp.call('POST', '/v2/private/life/totalCoverage', { ...asAda, body: applicant })).status).toBe(
      200,
    );
    expect(await testApp.call('GET', '/v2/private/user/applications', asAda)).toMatchObject({
      status: 200,
      body: { data: { applications: [{ state: 'submitted' }] } },
    });
  });

  test('use the replica for reference lists, cemeteries and the monthly glance', async () => {
    const { testApp } = await setUp();
    testApp.db.$client.close();
    const asBoss = { as: 'boss', roles: ['salesManager'] } as const;
    expect((await testApp.call('GET', '/v2/private/healthAndCare/', asBoss)).status).toBe(200);
    expect((await testApp.call('GET', '/v2/private/cemetery/all', asBoss)).status).toBe(200);
    expect((await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', asBoss)).status).toBe(
      403,
    );
  });
});
