import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import type { Database } from '../../../src/db/client';
import { referenceLists, referenceOptions } from '../../../src/db/schema/lists';
import { createReferenceStore, HealthAndCareBody } from '../../../src/modules/reference/store';
import { createTestApp, type TestApp } from '../../support/app';
import { temporaryDatabase } from '../../support/database';

const path = '/v2/private/healthAndCare/';
const testApp = await createTestApp();

async function lists({ call }: Pick<TestApp, 'call'>, headers: Record<string, string> = {}) {
  const response = await call('GET', path, { as: 'reader', headers });
  return { ...response, parsed: response.status === 200 ? v.parse(HealthAndCareBody, response.body) : undefined };
}

describe('GET /v2/private/healthAndCare/', () => {
  test('returns the envelope with every list and the chat widget’s values', async () => {
    const { parsed, headers } = await lists(testApp);
    expect(headers.get('etag')).toMatch(/^"[\w-]+"$/);
    expect((await lists(testApp, { 'if-none-match': '"other"' })).status).toBe(200);
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

  test('returns changed rows with a new ETag after one minute', async () => {
    const before = await lists(testApp);
    // The first options become the last rows of the table.
    const [...first] = await testApp.db.delete(referenceOptions).where(eq(referenceOptions.id, 0)).returning();
    await testApp.db.insert(referenceOptions).values(first.map((option) => ({ ...option, title: 'Changed' })));
    testApp.now = new Date(testApp.now.getTime() + 59_000);
    expect((await lists(testApp)).text).toBe(before.text);
    testApp.now = new Date(testApp.now.getTime() + 1_001);
    const after = await lists(testApp);
    expect(after.parsed?.data.travel[0]).toEqual({ id: 0, title: 'Changed' });
    expect(after.headers.get('etag')).not.toBe(before.headers.get('etag'));
  });

  test('returns cached lists while the database is unavailable', async () => {
    const other = await createTestApp();
    const { text } = await lists(other);
    other.db.$client.close();
    other.now = new Date(other.now.getTime() + 120_000);
    expect(await lists(other)).toMatchObject({ status: 200, text });
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
