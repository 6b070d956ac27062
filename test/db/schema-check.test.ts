import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { neededMigration, requireCompatibleSchema, schemaState } from '../../src/db/schema-check';
import { createTestApp } from '../support/app';
import { temporaryDatabase } from '../support/database';
import { temporaryFolder } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const newer = `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('newer', ${neededMigration + 1000})`;
const makeIncompatible = `UPDATE schema_compatibility SET min_reader = ${neededMigration + 1000}`;

describe('the schema compatibility check', () => {
  test('accepts a newer schema until it is incompatible', async () => {
    const { db } = await temporaryDatabase();
    expect(await schemaState(db.$client)).toBe('compatible');
    await db.$client.execute(newer);
    expect(await schemaState(db.$client)).toBe('compatible');
    await db.$client.execute(makeIncompatible);
    expect(await schemaState(db.$client)).toBe('too-new');
  });

  test.each([
    { place: 'a file', open: async () => `file:${join(temporaryFolder(), 'planning.db')}` },
    ...(hasSqld ? [{ place: 'a libSQL server', open: async () => (await startSqld()).url }] : []),
  ])('rejects every statement to $place until the schema is migrated', async ({ open }) => {
    const settings = { url: await open(), timeoutMs: 2000 };
    const migrating = await openDatabase(settings);
    const db = await openServiceDatabase(settings);
    const unfit = { code: 'SCHEMA_EMPTY', isUnavailable: true };
    await expect(db.$client.execute('SELECT 1')).rejects.toMatchObject(unfit);
    await expect(db.$client.batch(['CREATE TABLE t (id)'], 'write')).rejects.toMatchObject(unfit);
    await expect(db.$client.migrate(['CREATE TABLE t (id)'])).rejects.toMatchObject(unfit);
    await migrateDatabase(migrating);
    expect((await db.$client.execute('SELECT 1 AS one')).rows[0]?.one).toBe(1);
    migrating.$client.close();
    db.$client.close();
  });

  test('notices an incompatible migration while the service runs, and rejects statements', async () => {
    const { url } = await temporaryDatabase();
    const other = await openDatabase({ url, timeoutMs: 2000 });
    const checked = requireCompatibleSchema(other.$client, { timeoutMs: 2000, checkIntervalMs: 20 });
    const count = () => checked.read('SELECT count(*) AS n FROM users');
    await other.$client.execute(newer);
    expect((await count()).rows[0]?.n).toBe(0);
    await other.$client.execute(makeIncompatible);
    // After a pause the first statement waits for a new check.
    await Bun.sleep(50);
    await expect(count()).rejects.toMatchObject({ code: 'SCHEMA_TOO_NEW' });
    await other.$client.execute('UPDATE schema_compatibility SET min_reader = 0');
    expect((await count()).rows[0]?.n).toBe(0);
    other.$client.close();
  });

  test('rejects a replica of another database', async () => {
    const [{ db: primary }, { db: other }] = [await temporaryDatabase(), await temporaryDatabase()];
    const codes: unknown[] = [];
    const settings = { timeoutMs: 2000, onChange: (code?: string) => codes.push(code) };
    const same = requireCompatibleSchema(primary.$client, { ...settings, replicaOf: primary.$client });
    expect((await same.read('SELECT 1 AS one')).rows[0]?.one).toBe(1);
    expect(codes).toEqual([]);
    await other.$client.execute("UPDATE schema_compatibility SET database_id = 'other'");
    const foreign = requireCompatibleSchema(other.$client, { ...settings, replicaOf: primary.$client });
    await expect(foreign.read('SELECT 1')).rejects.toMatchObject({
      code: 'REPLICA_OF_ANOTHER',
      isUnavailable: true,
    });
    await expect(foreign.read('SELECT 1')).rejects.toMatchObject({ code: 'REPLICA_OF_ANOTHER' });
    expect(codes).toEqual(['REPLICA_OF_ANOTHER']);
  });

  test('keeps its result while the database is unavailable', async () => {
    const { db } = await temporaryDatabase();
    const checked = requireCompatibleSchema(db.$client, { timeoutMs: 2000, checkIntervalMs: 0 });
    await checked.read('SELECT 1');
    db.$client.close();
    for (let count = 0; count < 3; count += 1) {
      await expect(checked.read('SELECT 1')).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
      await Bun.sleep(1);
    }
  });

  test('takes an instance out of service, with the reason, when the schema is incompatible', async () => {
    const testApp = await createTestApp();
    await testApp.db.$client.execute(newer);
    expect((await testApp.call('GET', '/health/ready')).status).toBe(200);
    await testApp.db.$client.execute(makeIncompatible);
    const detail = 'The schema is newer than this build can read.';
    const closed = openServiceDatabase({ url: testApp.url, timeoutMs: 2000 });
    const late = await createTestApp({ db: await closed });
    expect(await late.call('GET', '/v2/private/user', { as: 'ada' })).toMatchObject({ status: 503, body: { detail } });
    for (const time of ['first', 'second']) {
      const answer = await testApp.call('GET', '/health/ready');
      expect({ time, status: answer.status, body: answer.body }).toMatchObject({ status: 503, body: { detail } });
    }
  });
});
