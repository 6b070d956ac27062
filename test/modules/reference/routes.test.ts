import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import type { Database } from '../../../src/db/client';
import { referenceLists, referenceOptions } from '../../../src/db/schema/lists';
import { createReferenceStore, HealthAndCareBody } from '../../../src/modules/reference/store';
import { createTestApp } from '../../support/app';
import { temporaryDatabase } from '../../support/database';

const path = '/v2/private/healthAndCare/';

async function lists(testApp: Awaited<ReturnType<typeof createTestApp>>, headers: Record<string, string> = {}) {
  const response = await testApp.call('GET', path, { as: 'reader', headers });
  return { ...response, parsed: response.status === 200 ? v.parse(HealthAndCareBody, response.body) : undefined };
}

describe('GET /v2/private/healthAndCare/', () => {
  test('returns the envelope with every list and the chat widget’s values', async () => {
    const { parsed } = await lists(await createTestApp());
    expect(parsed).toMatchObject({
      code: 100,
      http_code: 200,
      tokens: { 'chat-id': 'test-chat', 'chat-token': 'test-chat-token' },
    });
    const options = Object.entries(parsed?.data ?? {});
    expect(options.map(([name, list]) => [name, list.length])).toEqual([
      ['climate', 4],
      ['hobbies', 55],
      ['travel', 2],
      ['food', 53],
      ['rest', 33],
    ]);
    for (const [, list] of options) {
      expect(list.map(({ id }) => id)).toEqual(list.map((_, index) => index));
      expect(new Set(list.map(({ title }) => title.toLowerCase())).size).toBe(list.length);
      for (const { title } of list) expect(title).toMatch(/^\S(?:.*\S)?$/);
    }
  });

  test('returns a strong ETag, a private five-minute max-age, and 304 for a matching If-None-Match', async () => {
    const testApp = await createTestApp();
    const { headers } = await lists(testApp);
    expect(headers.get('etag')).toMatch(/^"[\w-]+"$/);
    expect(headers.get('cache-control')).toBe('private, max-age=300');
    expect(headers.get('vary')).toBe('Authorization');
    const again = await lists(testApp, { 'if-none-match': headers.get('etag') ?? '' });
    expect(again).toMatchObject({ status: 304, text: '' });
    expect(again.headers.get('content-type')).toBeNull();
    expect(again.headers.get('etag')).toBe(headers.get('etag'));
    expect((await lists(testApp, { 'if-none-match': '"other"' })).status).toBe(200);
  });

  test('returns changed rows with a new ETag after one minute', async () => {
    const testApp = await createTestApp();
    const before = await lists(testApp);
    await testApp.db.update(referenceOptions).set({ title: 'Changed' }).where(eq(referenceOptions.id, 0));
    testApp.now = new Date(testApp.now.getTime() + 59_000);
    expect((await lists(testApp)).text).toBe(before.text);
    testApp.now = new Date(testApp.now.getTime() + 1_001);
    const after = await lists(testApp);
    expect(after.parsed?.data.travel[0]).toEqual({ id: 0, title: 'Changed' });
    expect(after.headers.get('etag')).not.toBe(before.headers.get('etag'));
  });

  test('returns cached lists while the database is unavailable', async () => {
    const testApp = await createTestApp();
    const before = await lists(testApp);
    testApp.db.$client.close();
    testApp.now = new Date(testApp.now.getTime() + 120_000);
    const after = await lists(testApp);
    expect(after.status).toBe(200);
    expect(after.text).toBe(before.text);
  });
});

describe('reference list seed', () => {
  test.each<[name: string, loss: (db: Database) => unknown]>([
    ['nothing', () => undefined],
    [
      'a changed list',
      (db) => db.update(referenceOptions).set({ title: 'X' }).where(eq(referenceOptions.list, 'food')),
    ],
    ['deleted options', (db) => db.delete(referenceOptions).where(eq(referenceOptions.list, 'rest'))],
    ['a deleted list', (db) => db.delete(referenceLists).where(eq(referenceLists.name, 'food'))],
    [
      'a title without its last letter',
      (db) => db.update(referenceOptions).set({ title: 'Gardenin' }).where(eq(referenceOptions.title, 'Gardening')),
    ],
  ])('restores %s', async (_, loss) => {
    const { db } = await temporaryDatabase();
    const stored = async () => ({
      lists: await db.select().from(referenceLists).orderBy(referenceLists.name),
      options: await db.select().from(referenceOptions).orderBy(referenceOptions.list, referenceOptions.id),
    });
    const seeded = await stored();
    await db.$client.execute('PRAGMA foreign_keys = OFF');
    await loss(db);
    await createReferenceStore(db).seed();
    expect(await stored()).toEqual(seeded);
  });
});
