import { describe, expect, spyOn, test } from 'bun:test';
import { SQLiteAsyncDialect } from 'drizzle-orm/sqlite-core';
import { createTestApp } from '../support/app';
import { temporaryDatabase } from '../support/database';

describe('statements of the app', () => {
  test('get built on the first request, not at start', async () => {
    // Creates the template database.
    await temporaryDatabase();
    const built = spyOn(SQLiteAsyncDialect.prototype, 'sqlToQuery');
    const testApp = await createTestApp();
    expect(built).toHaveBeenCalledTimes(0);
    await testApp.call('GET', '/v2/private/user', { as: 'first' });
    expect(built).toHaveBeenCalledTimes(1);
    await testApp.call('GET', '/v2/private/user', { as: 'second' });
    expect(built).toHaveBeenCalledTimes(1);
    built.mockRestore();
  });
});
