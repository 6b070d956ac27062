import { describe, expect, test } from 'bun:test';
import { applicant, createTestApp, startSandbox, type TestApp, type TestResponse } from '../support/app';
import { privateRoutes, saveRoutes } from '../support/contract';
import { amount } from '../support/resources';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const matches = '/v2/private/engine/matches';
const ltcCoverage = '/v2/private/ltc/totalCoverage';
const sandbox = await startSandbox();
const tagOf = ({ headers }: TestResponse) => headers.get('etag') ?? '';

/** Checks that none of the tags matches in a read or a save. */
async function expectNoMatch({ call }: TestApp, as: string, tags: readonly string[]) {
  const before = await call('GET', user, { as });
  const list = tags.join(', ');
  expect((await call('GET', user, { as, headers: { 'if-none-match': list } })).status).toBe(200);
  for (const path of [profile, matches, ltcCoverage]) {
    const body = path === profile ? { firstName: 'Overwritten' } : path === matches ? undefined : applicant;
    const response = await call('POST', path, { as, headers: { 'if-match': list }, ...(body && { body }) });
    expect([path, response.status]).toEqual([path, 412]);
  }
  expect((await call('GET', user, { as })).text).toBe(before.text);
}

describe('B2 an entity tag', () => {
  test.each([
    { mode: 'with the clock running', isFrozen: false },
    { mode: 'with a clock that is frozen, as in --demo --now', isFrozen: true },
  ])('B2 belongs to one record and version among users created in parallel, $mode', async ({ isFrozen }) => {
    const count = amount({ long: 10_000, short: 1_000 });
    const testApp = await createTestApp(isFrozen ? {} : { clock: () => new Date() });
    const tags: string[] = [];
    while (tags.length < count) {
      const together = Array.from({ length: 500 }, async (_, index) =>
        tagOf(await testApp.call('POST', profile, { as: `person-${tags.length + index}`, body: { firstName: 'Ada' } })),
      );
      tags.push(...(await Promise.all(together)));
    }
    expect(new Set(tags).size).toBe(count);
    const [own, ...others] = tags;
    await expectNoMatch(testApp, 'person-0', others);
    expect((await testApp.call('GET', user, { as: 'person-0', headers: { 'if-none-match': own ?? '' } })).status).toBe(
      304,
    );
  });

  test('B2 an ETag of an erased record does not match the record that is created again in the same instant', async () => {
    const testApp = await createTestApp();
    const { call, db } = testApp;
    const tags: string[] = [];
    for (let life = 0; life < 5; life += 1) {
      tags.push(tagOf(await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } })));
      tags.push(tagOf(await call('POST', profile, { as: 'ada', body: { firstName: 'Augusta' } })));
      if (life < 4) await db.$client.execute("DELETE FROM users WHERE id = 'ada'");
    }
    expect(new Set(tags).size).toBe(10);
    await expectNoMatch(testApp, 'ada', tags.slice(0, -1));
  });

  test('B2 an ETag of another database with the same history does not match', async () => {
    const [one, other] = await Promise.all([createTestApp(), createTestApp()]);
    const tags = await Promise.all(
      [one, other].map(async ({ call }) =>
        tagOf(await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } })),
      ),
    );
    await expectNoMatch(other, 'ada', tags.slice(0, 1));
  });

  test('B2 an ETag does not match when a restored backup repeats the version', async () => {
    const testApp = await createTestApp();
    const { call, db } = testApp;
    await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } });
    await db.$client.execute('CREATE TABLE backup AS SELECT * FROM users');
    const lost = tagOf(await call('POST', profile, { as: 'ada', body: { firstName: 'Lost' } }));
    await db.$client.batch(
      ['DELETE FROM users', 'INSERT INTO users SELECT * FROM backup', 'DROP TABLE backup'],
      'write',
    );
    const kept = tagOf(await call('POST', profile, { as: 'ada', body: { firstName: 'Kept' } }));
    expect(kept).not.toBe(lost);
    await expectNoMatch(testApp, 'ada', [lost]);
  });

  test('B2 an ETag changes with every kind of change and with no other request', async () => {
    const testApp = await createTestApp({ carrier: sandbox.carrier() });
    const { call, db } = testApp;
    const moves: [path: string, body: unknown][] = [
      [profile, { firstName: 'Ada' }],
      ['/v2/private/ltc/lifetimeCare', { careCosts: 1 }],
      [matches, undefined],
      [ltcCoverage, applicant],
      [profile, { firstName: null }],
    ];
    const tags: string[] = [];
    for (const [path, body] of moves) {
      const send = () => call('POST', path, { as: 'ada', ...(body === undefined ? {} : { body }) });
      const tag = tagOf(await send());
      expect([path, tags.includes(tag)]).toEqual([path, false]);
      expect([path, tagOf(await send())]).toEqual([path, tag]);
      tags.push(tag);
    }
    await db.$client.execute("UPDATE users SET counselor_id = NULL WHERE id = 'ada'");
    expect(tagOf(await call('GET', user, { as: 'ada' }))).toBe(tags.at(-1) ?? '');
  });

  test('B2 an ETag changes with the version that an older build writes beside this one', async () => {
    const testApp = await createTestApp();
    const { call, db } = testApp;
    await db.$client.execute(
      "INSERT INTO users (id, version, created_at, updated_at) VALUES ('old', 1, 5, 5), ('b', 1, 5, 5)",
    );
    const first = tagOf(await call('GET', user, { as: 'old' }));
    expect(first).not.toBe(tagOf(await call('GET', user, { as: 'b' })));
    await db.$client.execute("UPDATE users SET profile = '{}', version = version + 1 WHERE id = 'old'");
    await expectNoMatch(testApp, 'old', [first]);
  });

  test.each(privateRoutes)('B2 a private response varies by Authorization: $method $path', async (route) => {
    const { call } = await createTestApp();
    for (const options of [{}, { as: 'ada', roles: ['salesManager'] }, { as: 'ada', body: '{' }]) {
      const { headers } = await call(
        route.method,
        route.path,
        route.method === 'GET' ? { ...options, body: undefined } : options,
      );
      expect((headers.get('vary') ?? '').split(', ')).toContain('Authorization');
    }
  });

  test('B2 a public response does not vary by Authorization', async () => {
    const { call } = await createTestApp();
    for (const path of ['/health/live', '/icons/term-life.svg', '/problems/forbidden'])
      expect((await call('GET', path)).headers.get('vary') ?? '').not.toContain('Authorization');
  });
});

describe('B4 the ETag of the stored record', () => {
  const cases: { name: string; path: string; body?: unknown; status: number }[] = [
    ...saveRoutes.map(({ path }) => ({ name: 'a save', path, body: {}, status: 200 })),
    { name: 'matches', path: matches, status: 200 },
    { name: 'explained matches', path: `${matches}?explain=true`, status: 200 },
    { name: 'an accepted application', path: ltcCoverage, body: applicant, status: 200 },
    ...[
      { lastName: 'Declined', status: 422 },
      { lastName: 'Notfiled', status: 422 },
      { lastName: 'Broken', status: 503 },
      { lastName: 'Garbled', status: 502 },
      { lastName: 'Slow', status: 504 },
    ].flatMap(({ lastName, status }) =>
      ['ltc', 'life'].map((flow) => ({
        name: `an application of ${lastName}`,
        path: `/v2/private/${flow}/totalCoverage`,
        body: { ...applicant, lastName },
        status,
      })),
    ),
  ];

  test.each(cases)(
    'B4 comes with the response to $name at $path, and the next save with it is stored',
    async ({ path, body, status }) => {
      const { call } = await createTestApp({ carrier: sandbox.carrier({ attempts: 1, timeoutMs: 100 }) });
      const before = tagOf(await call('POST', profile, { as: 'ada', body: { heightCm: 160 } }));
      const moved = await call('POST', path, {
        as: 'ada',
        headers: { 'if-match': before },
        ...(body === undefined ? {} : { body }),
      });
      expect(moved.status).toBe(status);
      expect(tagOf(moved)).toBe(tagOf(await call('GET', user, { as: 'ada' })));
      const next = await call('POST', profile, {
        as: 'ada',
        headers: { 'if-match': tagOf(moved) },
        body: { heightCm: 170 },
      });
      expect(next.status).toBe(200);
    },
  );

  test.each([
    ...saveRoutes.map(({ path }) => ({ path, body: {} })),
    { path: matches, body: undefined },
    { path: `${matches}?explain=true`, body: undefined },
    { path: ltcCoverage, body: applicant },
    { path: '/v2/private/life/totalCoverage', body: applicant },
  ])('B4 comes with a 412 of $path, and none where there is no record', async ({ path, body }) => {
    const { call } = await createTestApp();
    const send = (as: string, tag: string) =>
      call('POST', path, { as, headers: { 'if-match': tag }, ...(body === undefined ? {} : { body }) });
    const missing = await send('absent', '"stale"');
    expect([missing.status, missing.headers.get('etag')]).toEqual([412, null]);
    await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } });
    const refused = await send('ada', '"stale"');
    expect(refused.status).toBe(412);
    expect(tagOf(refused)).toBe(tagOf(await call('GET', user, { as: 'ada' })));
    expect((await send('ada', tagOf(refused))).status).not.toBe(412);
  });
});
