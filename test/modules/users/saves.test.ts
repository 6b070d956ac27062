import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import fc from 'fast-check';
import * as v from 'valibot';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { users } from '../../../src/db/schema/people';
import { answerSections, type MergePatch } from '../../../src/modules/answers/sections';
import { UserBody } from '../../../src/modules/users/model';
import { type CallOptions, createTestApp, mergePatch, type TestApp } from '../../support/app';
import { saveRoutes } from '../../support/contract';
import { beforeStatements, earlierMigrations } from '../../support/database';
import { amount, temporaryFolder } from '../../support/resources';

type User = UserBody['user'];

const testApp = await createTestApp();
const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const lifetimeCare = '/v2/private/deepDives/lifetimeCare';
const profile = '/v2/private/user/profile';
const user = '/v2/private/user';

async function save(path: string, as: string, body: unknown, options: CallOptions = {}) {
  const response = await testApp.call('POST', path, { as, body, ...options });
  if (response.status !== 200) throw new Error(`${path} returned ${response.status}: ${response.text}`);
  return { ...response, user: v.parse(UserBody, response.body).user };
}

const storedRow = async (id: string) => (await testApp.db.select().from(users).where(eq(users.id, id)))[0];
const whileMatching = { headers: { 'if-match': '*' } };

describe('save route', () => {
  test.each(saveRoutes)('POST $path creates the record from {} and returns the whole user', async ({ path }) => {
    const as = `empty ${path}`;
    const { body, headers } = await save(path, as, {});
    const at = testApp.now.toISOString();
    const empty = { profile: {}, insurance: {}, ltc: {}, purchase: {}, lifeInsurance: {}, lifetimeCare: {} };
    expect(body).toEqual({ user: { id: as, createdAt: at, updatedAt: at, ...empty } });
    expect((await save(path, as, {})).headers.get('etag')).toBe(headers.get('etag'));
    const read = await testApp.call('GET', user, { as });
    expect(read.body).toEqual(body);
    expect(read.headers.get('etag')).toBe(headers.get('etag'));
  });

  test('changes the ETag and updatedAt only when an answer changes', async () => {
    const first = await save(ltc, 'versions', { careCosts: 1 });
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    const same = await save(ltc, 'versions', { careCosts: 1 });
    expect(same.headers.get('etag')).toBe(first.headers.get('etag'));
    expect(same.user.updatedAt).toBe(first.user.updatedAt);
    const changed = await save(ltc, 'versions', { careCosts: 2 });
    expect(changed.headers.get('etag')).not.toBe(first.headers.get('etag'));
    expect(changed.user).toMatchObject({ createdAt: first.user.createdAt, updatedAt: testApp.now.toISOString() });
  });

  test('loses no answer in 200 parallel saves by one user to different fields', async () => {
    const fields = [
      [ltc, 'careCosts'],
      [ltc, 'policyValue'],
      [ltc, 'careSafety'],
      [lifetimeCare, 'careSafety'],
      [profile, 'heightCm'],
      [profile, 'weightKg'],
    ] as const;
    const sent = Array.from({ length: 200 }, (_, index) => {
      const [path, field] = fields[index % fields.length] ?? fields[0];
      return { path, body: { [field]: 100 + index } };
    });
    await Promise.all(sent.map(({ path, body }) => save(path, 'parallel', body)));
    expect(await storedRow('parallel')).toMatchObject({ version: 200 });
    const { user } = await save(profile, 'parallel', {});
    const kept = { [ltc]: user.ltc.lifetimeCare, [lifetimeCare]: user.lifetimeCare, [profile]: user.profile };
    for (const [path, field] of fields) {
      const candidates = sent.filter((each) => each.path === path && field in each.body);
      expect(candidates.map(({ body }) => body)).toContainEqual({
        [field]: Object.entries(kept[path] ?? {}).find(([name]) => name === field)?.[1],
      });
    }
  });

  test('merges each column once, and a read calls no JSON function', async () => {
    const statements: string[] = [];
    const { call } = await createTestApp({ db: beforeStatements(testApp.db, (sql) => statements.push(sql)) });
    const calls = (sql: string, name: string) => sql.split(name).length - 1;
    for (const { path } of saveRoutes) {
      for (const options of [{}, whileMatching]) {
        statements.length = 0;
        expect((await call('POST', path, { as: 'counted', body: {}, ...options })).status).toBe(200);
        const columns = path === ltc || path === lifetimeCare ? 2 : 1;
        expect(statements.map((sql) => [path, calls(sql, 'json_patch(')])).toEqual([[path, columns]]);
      }
    }
    statements.length = 0;
    await call('GET', user, { as: 'counted' });
    expect(statements.map((sql) => calls(sql, 'json_'))).toEqual([0]);
  });
});

describe('a series of random saves', () => {
  const texts = fc.oneof(
    fc.string({ minLength: 1, maxLength: 30, unit: 'grapheme' }),
    fc.constantFrom(' e\u0301 ', '\u1e69 ', 'A\u030a', '\u2000x\u2001', 'x\n y', '\ud83d\udc69\u200d\u2695\ufe0f'),
  );
  // U+3164 is a letter that is not visible.
  const visible = /[[\p{L}\p{N}]--\p{Default_Ignorable_Code_Point}]/v;
  const title = texts.filter((text) => visible.test(text) && !text.includes('\0') && text.isWellFormed());
  const names = fc.constantFrom(' Ada ', 'Zoe\u0308', 'Jo\u200bhn', '\u200fNoa', 'O\u2019Brien', '\u0639\u200c\u0631');
  const money = fc.oneof(
    fc.double({ min: 0, max: 1e12, noNaN: true }),
    fc.constantFrom(0, 1.005, 0.1 + 0.2, 5e-324, -0, 1e12, 999999999999.99),
  );
  const id = fc.oneof(fc.nat(3), fc.maxSafeNat());
  const selections = fc.array(fc.record({ id, title }), { maxLength: 5 });
  const customSelections = fc.array(fc.record({ title }), { maxLength: 5 });
  const some = (values: Record<string, fc.Arbitrary<unknown>>) =>
    fc.record(
      Object.fromEntries(Object.entries(values).map(([name, value]) => [name, fc.option(value, { freq: 4 })])),
      { requiredKeys: [], noNullPrototype: true },
    );
  const many = (...options: string[]) => fc.array(fc.constantFrom(...options), { maxLength: 6 });
  const lists = { selections, customSelections };
  const together = fc.oneof(
    fc.array(fc.oneof(fc.record({ id, title }), fc.record({ title })), { maxLength: 5 }),
    some(lists),
  );
  const today = () => '2026-03-10';
  const { ltcLifetimeCare: flow, lifeInsurance: insurance, lifetimeCare: deepDive } = answerSections;

  /** Each section: the merge patch of a body, its member of a preview, its place in a response, its bodies. */
  const series = [
    {
      path: profile,
      toPatch: (body: unknown): MergePatch => v.parse(answerSections.profile.request(today), body),
      member: 'profile',
      read: (user: User): object => user.profile,
      bodies: some({
        firstName: names,
        lastName: names,
        dateOfBirth: fc.constantFrom('1956-12-10', '1956-12-10T23:00:00Z'),
        gender: fc.constantFrom('Male', 'female', ' MALE'),
        state: fc.constantFrom('va', 'Virginia', 'D.C.', ' puerto  rico'),
        email: fc.constantFrom('a@b.co', ' Z\u00fc\u200b@b.co'),
        heightCm: fc.double({ min: 49.996, max: 300.004, noNaN: true }),
        weightKg: fc.double({ min: 9.996, max: 700.004, noNaN: true }),
        tobacco: fc.boolean(),
      }),
    },
    {
      path: ltc,
      toPatch: (body: unknown): MergePatch => flow.toPatch(v.parse(flow.request(), body)),
      member: 'ltc',
      read: (user: User): object => user.ltc.lifetimeCare ?? {},
      bodies: some({
        relationshipStatus: fc.oneof(fc.constantFrom('married'), many('married', 'dating')),
        insuranceCover: many('payingFuneral', 'donation'),
        careFacilityType: fc.constantFrom('inHome', 'notSure'),
        careCosts: money,
        policyValue: money,
        careSafety: money,
        selections,
        leaveFinancialLegacy: some({ selections }),
      }),
    },
    {
      path: lifeInsurance,
      toPatch: (body: unknown): MergePatch => insurance.toPatch(v.parse(insurance.request(), body)),
      member: 'lifeInsurance',
      read: (user: User): object => user.lifeInsurance,
      bodies: some({ billsAndDebt: many('cc', 'auto'), policySupport: together, ...lists }),
    },
    {
      path: lifetimeCare,
      toPatch: (body: unknown): MergePatch => deepDive.toPatch(v.parse(deepDive.request(), body)),
      member: 'lifetimeCare',
      read: (user: User): object => user.lifetimeCare,
      bodies: some({ familyHistory: many('stroke', 'cancer'), hobbies: together, ...lists }),
    },
  ] as const;

  /**
   * The section after a patch: a pair of lists always has both members, and is removed when one is cleared and the other
   * is empty; empty objects are removed.
   */
  function asStored(section: unknown, patch: MergePatch): unknown {
    const members = Object.entries(Object(section)).map(([name, value]) => {
      if (name !== 'policySupport' && name !== 'hobbies') return [name, value];
      const clears = Object.values(Object(patch[name])).includes(null);
      const isOver = Object.keys(Object(value)).length < 2 && Object.values(Object(value)).flat().length === 0;
      return [name, clears && isOver ? {} : { selections: [], customSelections: [], ...Object(value) }];
    });
    return Object.fromEntries(members.filter(([, value]) => !Bun.deepEquals(value, {}, true)));
  }

  let people = 0;
  test.each(series)(
    'to $path follows RFC 7396, has a new version only for a change, and stays the same when it is sent back',
    async ({ path, toPatch, member, read, bodies }) => {
      await fc.assert(
        fc.asyncProperty(fc.array(bodies, { minLength: 1, maxLength: 6 }), fc.boolean(), async (bodies, matches) => {
          people += 1;
          const as = `series-${people}`;
          const send = (body: object, isFirst = false) =>
            save(path, as, body, matches && !isFirst ? whileMatching : {});
          let expected: unknown = {};
          let version = 1;
          let saved = await send({}, true);
          for (const body of bodies) {
            const patch = JSON.parse(JSON.stringify(toPatch(body)));
            const before = expected;
            expected = asStored(mergePatch(before, patch), patch);
            version += Bun.deepEquals(before, expected, true) ? 0 : 1;
            saved = await send(body);
            expect<unknown>(read(saved.user)).toEqual(expected);
            expect(saved.headers.get('etag')).toMatch(new RegExp(`-${version}-[0-9a-f]{16}"$`));
          }
          const section = read(saved.user);
          expect(JSON.stringify(section)).not.toMatch(/:-0[,}]/);
          const again = await send(section);
          expect([again.text, again.headers.get('etag')]).toEqual([saved.text, saved.headers.get('etag')]);
          const preview = await testApp.call('POST', '/v2/private/engine/preview', { as, body: { [member]: section } });
          expect(preview.status).toBe(200);
          expect((await testApp.call('GET', user, { as })).text).toBe(saved.text);
        }),
        { numRuns: amount({ long: 500, short: 25 }) },
      );
    },
  );
});

describe('a pair of lists', () => {
  const typed = (title: string) => ({ title });

  test('stays the same when an empty list is cleared, first or later', async () => {
    const saved = await save(lifeInsurance, 'emptied', { customSelections: [typed('x')] });
    for (const selections of [null, [], null]) {
      expect((await save(lifeInsurance, 'emptied', { selections })).text).toBe(saved.text);
    }
  });

  test('that a preview clears has the answers that a save would store', async () => {
    const preview = (body: object) => testApp.call('POST', '/v2/private/engine/preview', { as: 'previewed', body });
    await save(lifetimeCare, 'previewed', { selections: [], customSelections: [typed('x')] });
    const previewed = await preview({ lifetimeCare: { customSelections: null } });
    await save(lifetimeCare, 'previewed', { customSelections: null });
    expect((await preview({})).text).toBe(previewed.text);
  });

  /** Sections that an earlier version stored, and their form in a response. */
  const earlier: [name: string, stored: string, read: { hobbies?: object; familyHistory?: [] }][] = [
    [
      'one list',
      '{"hobbies":{"selections":[{"id":1,"title":"t"}]}}',
      { hobbies: { selections: [{ id: 1, title: 't' }], customSelections: [] } },
    ],
    [
      'the other list',
      '{"familyHistory":[],"hobbies":{"customSelections":[]}}',
      { familyHistory: [], hobbies: { selections: [], customSelections: [] } },
    ],
    ['no list', '{"familyHistory":[],"hobbies":{}}', { familyHistory: [] }],
    ['nothing', '{}', {}],
    [
      'the names in a title',
      '{"hobbies":{"customSelections":[{"title":"\\"selections\\": \\"hobbies\\":{}"}]}}',
      { hobbies: { selections: [], customSelections: [typed('"selections": "hobbies":{}')] } },
    ],
  ];
  const insertEarlier = (db: TestApp['db'], as: string, stored: string) =>
    db.$client.execute({
      sql: 'INSERT INTO users (id, lifetime_care, version, created_at, updated_at) VALUES (?, ?, 3, 0, 0)',
      args: [as, stored],
    });

  test('gets its other list from the migration, and a save of the same answers changes nothing', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });
    await migrateDatabase(db, await earlierMigrations(8));
    for (const [as, stored] of earlier) await insertEarlier(db, as, stored);
    await migrateDatabase(db);
    const { call } = await createTestApp({ db });
    for (const [as, , read] of earlier) {
      const first = await call('GET', user, { as });
      expect<object>(v.parse(UserBody, first.body).user.lifetimeCare).toEqual(read);
      for (const body of [read, {}, { hobbies: read.hobbies ?? null }]) {
        for (const options of [{}, whileMatching]) {
          const again = await call('POST', lifetimeCare, { as, body, ...options });
          expect([again.status, again.text]).toEqual([200, first.text]);
        }
      }
    }
    db.$client.close();
  });

  test.each([{}, whileMatching])(
    'gets its other list from the next save when an earlier version has stored one after the migration: %j',
    async (options) => {
      for (const [name, stored, read] of earlier) {
        const as = `${name} ${Object.keys(options).length}`;
        await insertEarlier(testApp.db, as, stored);
        expect((await testApp.call('GET', user, { as })).status).toBe(200);
        expect((await testApp.call('POST', '/v2/private/engine/matches', { as })).status).toBe(200);
        const saved = await save(lifetimeCare, as, {}, options);
        expect<object>(saved.user.lifetimeCare).toEqual(read);
        expect((await save(lifetimeCare, as, {}, options)).text).toBe(saved.text);
      }
    },
  );
});

/**
 * Rows of the first schema with every value it accepted and numbers outside today's bounds.
 * Never change the file: values that requests no longer accept must stay readable.
 */
const firstRows = await Bun.file(new URL('../../fixtures/users-0000.sql', import.meta.url)).text();
await testApp.db.$client.execute(firstRows);

describe('a record of the first schema', () => {
  test.each(['full', 'facilities', 'others', 'rest'])('reads back completely: %s', async (id) => {
    const row = await storedRow(id);
    const section = (text: string | null | undefined) => {
      if (text === null || text === undefined) return undefined;
      const { policySupport, hobbies, ...rest } = JSON.parse(text);
      // The response omits a pair of lists that has neither.
      return {
        ...rest,
        ...(policySupport?.selections && { policySupport }),
        ...(hobbies?.customSelections && { hobbies }),
      };
    };
    const response = await testApp.call('GET', user, { as: id });
    expect(response.status).toBe(200);
    const [ltc, profile] = [section(row?.ltcLifetimeCare), section(row?.profile)];
    expect(response.body).toMatchObject({
      user: {
        id,
        ...(profile && { profile }),
        ltc: ltc && { lifetimeCare: ltc },
        lifeInsurance: section(row?.lifeInsurance),
        lifetimeCare: section(row?.lifetimeCare),
      },
    });
  });

  test('keeps values outside today’s bounds after a save', async () => {
    const { body } = await testApp.call('POST', ltc, { as: 'full', body: { policyValue: 2 } });
    expect(body).toMatchObject({
      user: { ltc: { lifetimeCare: { careCosts: -1, careSafety: 1e300, policyValue: 2 } } },
    });
  });
});
