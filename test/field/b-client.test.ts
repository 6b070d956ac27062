import { describe, expect, test } from 'bun:test';
import { CallFailure, createClient, dataOf } from '../../src/client';
import { problemKinds } from '../../src/shared/problems';
import { appClient, createTestApp, testToken } from '../support/app';
import { until } from '../support/resources';

const testApp = await createTestApp();
const clientFor = appClient(testApp);

describe('B4 a failure', () => {
  test('has the etag of the response if there is one', async () => {
    const slug = 'precondition-failed';
    const { status, code, title } = problemKinds[slug];
    const body = { type: `/problems/${slug}`, status, code, title, detail: 'x', instance: '/' };
    const headers = { 'content-type': 'application/problem+json', etag: '"2-2"' };
    const client = createClient({
      baseUrl: 'http://localhost',
      token: 'token',
      fetch: async () => Response.json(body, { status, headers }),
    });
    const failed = await client.saveProfile({}, { ifMatch: '"1-1"' });
    expect([failed.error?.slug, failed.etag]).toEqual([slug, '"2-2"']);
    const thrown = await dataOf(client.saveProfile({}, { ifMatch: '"1-1"' })).catch((error: unknown) => error);
    expect(thrown instanceof CallFailure && [thrown.name, thrown.etag]).toEqual(['CallFailure', '"2-2"']);
    expect((await (await clientFor('none')).client.getUser()).etag).toBeUndefined();
  });
});

describe('B10 a refused token', () => {
  /** A session with an expired token; the test resolves each refresh. */
  async function session(id: string) {
    const expired = await testToken({ id, now: new Date(testApp.now.getTime() - 86_400_000) });
    const fresh = await testToken({ id, now: testApp.now });
    const asked: boolean[] = [];
    const refreshes: PromiseWithResolvers<string>[] = [];
    const begun = Promise.withResolvers<void>();
    let current = expired;
    const token = ({ isRefused }: { isRefused: boolean }) => {
      asked.push(isRefused);
      if (!isRefused) return current;
      const refresh = Promise.withResolvers<string>();
      refreshes.push(refresh);
      begun.resolve();
      return refresh.promise.then((token) => {
        current = token;
        return token;
      });
    };
    return { token, fresh, expired, asked, refreshes, begun: begun.promise };
  }
  const refused = (asked: readonly boolean[]) => asked.filter((isRefused) => isRefused).length;

  test('causes one refresh for five parallel calls', async () => {
    const { token, fresh, asked, refreshes, begun } = await session('five');
    const { client, sent, responseCount } = await clientFor('five', { token });
    const calls = Array.from({ length: 5 }, () => client.saveProfile({ firstName: 'Ada' }));
    await begun;
    await until(() => responseCount() === 5);
    refreshes[0]?.resolve(fresh);
    for (const { error } of await Promise.all(calls)) expect(error).toBeUndefined();
    expect(refused(asked)).toBe(1);
    expect(sent.length).toBe(10);
  });

  test('causes no second refresh when another call has replaced it', async () => {
    const { token, fresh, asked, refreshes, begun } = await session('late');
    const held = Promise.withResolvers<void>();
    let count = 0;
    const client = createClient({
      baseUrl: 'http://localhost',
      token,
      attempts: 1,
      async fetch(url, init) {
        count += 1;
        const isFirst = count === 1;
        const response = await testApp.app.handle(new Request(url, init));
        if (isFirst) await held.promise;
        return response;
      },
    });
    const late = client.saveProfile({ firstName: 'Ada' });
    await until(() => count === 1);
    const other = client.saveProfile({ firstName: 'Ada' });
    await begun;
    refreshes[0]?.resolve(fresh);
    expect((await other).error).toBeUndefined();
    held.resolve();
    expect((await late).error).toBeUndefined();
    expect(asked).toEqual([false, false, true]);
  });

  test('fails all waiting calls when its refresh fails, and the next call retries', async () => {
    const { token, fresh, asked, refreshes, begun } = await session('failing');
    const { client, responseCount } = await clientFor('failing', { token });
    const calls = Array.from({ length: 3 }, () => client.saveProfile({}));
    await begun;
    await until(() => responseCount() === 3);
    const cause = new Error('signed out');
    refreshes[0]?.reject(cause);
    for (const { error } of await Promise.all(calls)) expect(error).toEqual({ slug: 'token-unavailable', cause });
    const next = client.saveProfile({ firstName: 'Ada' });
    await until(() => refreshes.length === 2);
    refreshes[1]?.resolve(fresh);
    expect((await next).error).toBeUndefined();
    expect(refused(asked)).toBe(2);
  });

  test('completes its refresh for the other calls when one caller aborts', async () => {
    const { token, fresh, asked, refreshes, begun } = await session('aborting');
    const { client, responseCount } = await clientFor('aborting', { token });
    const controller = new AbortController();
    const first = client.saveProfile({}, { signal: controller.signal });
    await begun;
    const others = [client.saveProfile({ firstName: 'Ada' }), client.saveProfile({ firstName: 'Ada' })];
    await until(() => responseCount() === 3);
    controller.abort();
    expect((await first).error?.slug).toBe('aborted');
    refreshes[0]?.resolve(fresh);
    for (const { error } of await Promise.all(others)) expect(error).toBeUndefined();
    expect(refused(asked)).toBe(1);
  });

  test('gets a new refresh after the time limit when its refresh never ends', async () => {
    const { token, fresh, refreshes } = await session('hanging');
    const { client } = await clientFor('hanging', { token, timeoutMs: 1_000 });
    expect((await client.saveProfile({})).error?.slug).toBe('timed-out');
    const next = client.saveProfile({ firstName: 'Ada' }, { timeoutMs: 5000 });
    await until(() => refreshes.length === 2);
    refreshes[1]?.resolve(fresh);
    expect((await next).error).toBeUndefined();
  });

  test('fails the call without a second refresh when the new token is refused too', async () => {
    const { token, expired, asked, refreshes, begun } = await session('twice');
    const { client, sent } = await clientFor('twice', { token });
    const call = client.saveProfile({});
    await begun;
    refreshes[0]?.resolve(expired);
    expect((await call).error?.slug).toBe('unauthenticated');
    expect([refused(asked), sent.length]).toEqual([1, 2]);
  });
});
