import { describe, expect, spyOn, test } from 'bun:test';
import { SQLiteAsyncDialect } from 'drizzle-orm/sqlite-core';
import { onFirstUse } from '../../src/shared/async';
import { createTestApp } from '../support/app';
import { temporaryDatabase } from '../support/database';

describe('a lazy value', () => {
  test('is created once, on the first call', () => {
    let made = 0;
    const value = onFirstUse(() => ({ number: ++made }));
    expect(made).toBe(0);
    expect(value()).toBe(value());
    expect(value()).toEqual({ number: 1 });
  });

  test('delays the statements of the app until the first request', async () => {
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
