import { describe, expect, test } from 'bun:test';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createCemeteryStore } from '../../src/modules/cemeteries/store';
import { createUserStore } from '../../src/modules/users/store';
import { seedDatabase } from '../../src/seed';
import { createTestApp } from '../support/app';
import { hasSqld, startSqld } from '../support/servers';

const now = new Date('2026-03-10T12:00:00Z');

async function migrate(url: string) {
  const db = await openDatabase({ url, timeoutMs: 10_000 });
  await migrateDatabase(db);
  db.$client.close();
}

describe.skipIf(!hasSqld)('a libSQL server', () => {
  test('serves the same stores through every URL scheme', async () => {
    const sqld = await startSqld();
    const first = await openDatabase({ url: sqld.url, timeoutMs: 2000 });
    await migrateDatabase(first, undefined, { forDevelopment: true });
    await seedDatabase(first, { withDemo: true, now });
    await seedDatabase(first, { withDemo: true, now });
    first.$client.close();
    const addresses = [sqld.url, `ws://127.0.0.1:${sqld.port}`, `libsql://127.0.0.1:${sqld.port}?tls=0`];
    for (const [index, url] of addresses.entries()) {
      const db = await openServiceDatabase({ url, timeoutMs: 2000 });
      const saved = await createUserStore(db).saveSection({
        userId: 'remote',
        section: 'lifeInsurance',
        patch: { policySupport: { selections: [{ id: index, title: 'é🎻' }] }, livingStatus: null },
        requestId: 'request-1',
        now,
      });
      expect(saved).toMatchObject({
        sections: `"profile":{},"insurance":{},"ltc":{},"purchase":{},"lifeInsurance":{"policySupport":{"selections":[{"id":${index},"title":"é🎻"}],"customSelections":[]}},"lifetimeCare":{}`,
        version: index + 1,
      });
      expect(await createUserStore(db).find('remote')).toEqual(saved);
      expect(await createCemeteryStore(db).listPage({ page: 2, limit: 10, sort: 'asc' })).toMatchObject({
        count: 12,
        rows: [{}, {}],
      });
      db.$client.close();
    }
  });

  test('causes 503 within the deadline when it hangs, and a repeated save counts once', async () => {
    const sqld = await startSqld();
    await migrate(sqld.url);
    const db = await openServiceDatabase({ url: sqld.url, timeoutMs: 300 });
    const testApp = await createTestApp({ db });
    const save = () => testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'slow', body: { careCosts: 5 } });
    expect((await save()).status).toBe(200);
    sqld.pause();
    const startedAtMs = performance.now();
    const response = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'slow', body: { careCosts: 6 } });
    expect(performance.now() - startedAtMs).toBeLessThan(2000);
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(response.headers.get('retry-after')).toBe('1');
    sqld.resume();
    const repeated = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'slow', body: { careCosts: 6 } });
    expect(repeated).toMatchObject({ status: 200, body: { user: { ltc: { lifetimeCare: { careCosts: 6 } } } } });
    expect(await createUserStore(db).find('slow')).toMatchObject({ version: 2 });
    db.$client.close();
  });

  test('causes 503 when it is killed, and serves again after its restart', async () => {
    const sqld = await startSqld();
    for (const url of [sqld.url, `ws://127.0.0.1:${sqld.port}`]) {
      await migrate(sqld.url);
      const db = await openServiceDatabase({ url, timeoutMs: 1000 });
      const testApp = await createTestApp({ db });
      const save = () => testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'killed', body: { careCosts: 5 } });
      expect((await save()).status).toBe(200);
      await sqld.kill();
      expect((await save()).status).toBe(503);
      expect((await testApp.call('GET', '/health/ready')).status).toBe(503);
      expect((await testApp.call('GET', '/health/live')).status).toBe(200);
      await sqld.start();
      expect((await save()).status).toBe(200);
      db.$client.close();
    }
  });
});
