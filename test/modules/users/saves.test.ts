import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import { users } from '../../../src/db/schema/people';
import {
  lifeInsuranceExamples,
  lifetimeCareExamples,
  ltcLifetimeCareExamples,
} from '../../../src/modules/answers/model';
import { profileExamples, UserBody } from '../../../src/modules/users/model';
import { type CallOptions, createTestApp } from '../../support/app';
import { saveRoutes } from '../../support/contract';

const testApp = await createTestApp();
const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const lifetimeCare = '/v2/private/deepDives/lifetimeCare';
const profile = '/v2/private/user/profile';

async function save(path: string, as: string, body: unknown, options: CallOptions = {}) {
  const response = await testApp.call('POST', path, { as, body, ...options });
  if (response.status !== 200) throw new Error(`${path} returned ${response.status}: ${response.text}`);
  return { ...response, user: v.parse(UserBody, response.body).user };
}

const storedRow = async (id: string) => (await testApp.db.select().from(users).where(eq(users.id, id)))[0];

describe('save route', () => {
  test.each(saveRoutes)('POST $path creates the record from {} and returns the whole user', async ({ path }) => {
    const as = `empty ${path}`;
    const { body, headers } = await save(path, as, {});
    const at = testApp.now.toISOString();
    const empty = { profile: {}, insurance: {}, ltc: {}, purchase: {}, lifeInsurance: {}, lifetimeCare: {} };
    expect(body).toEqual({ user: { id: as, createdAt: at, updatedAt: at, ...empty } });
    expect(headers.get('cache-control')).toBe('private, no-store');
    expect(headers.get('content-type')).toStartWith('application/json');
    expect((await save(path, as, {})).headers.get('etag')).toBe(headers.get('etag'));
  });

  test.each([
    ...Object.entries(ltcLifetimeCareExamples).map(([name, body]) => ({ path: ltc, name, body })),
    ...Object.entries(lifeInsuranceExamples).map(([name, body]) => ({ path: lifeInsurance, name, body })),
    ...Object.entries(lifetimeCareExamples).map(([name, body]) => ({ path: lifetimeCare, name, body })),
    ...Object.entries(profileExamples).map(([name, body]) => ({ path: profile, name, body })),
  ])('POST $path accepts the documented example "$name"', async ({ path, name, body }) => {
    const saved = await save(path, `example ${path} ${name}`, body);
    const again = await save(path, `example ${path} ${name}`, body);
    expect(again.body).toEqual(saved.body);
    expect(again.headers.get('etag')).toBe(saved.headers.get('etag'));
  });

  test('changes only its own section, although the flows share field names', async () => {
    await save(ltc, 'sections', { careFacilityType: 'inHome', careSafety: 1 });
    await save(lifetimeCare, 'sections', { careFacilityType: 'nursingHome', careSafety: 2 });
    await save(lifeInsurance, 'sections', { livingStatus: 'rent' });
    const { user } = await save(profile, 'sections', { firstName: 'Ada' });
    expect(user).toMatchObject({
      profile: { firstName: 'Ada' },
      ltc: { lifetimeCare: { careFacilityType: 'inHome', careSafety: 1 } },
      lifeInsurance: { livingStatus: 'rent' },
      lifetimeCare: { careFacilityType: 'nursingHome', careSafety: 2 },
    });
  });

  test('keeps absent fields, removes null fields and replaces whole lists', async () => {
    await save(lifeInsurance, 'merge', { livingStatus: 'rent', billsAndDebt: ['medical', 'cc'] });
    const { user } = await save(lifeInsurance, 'merge', { livingStatus: null, billsAndDebt: ['auto'] });
    expect(user.lifeInsurance).toEqual({ billsAndDebt: ['auto'] });
    const emptied = await save(lifeInsurance, 'merge', { billsAndDebt: [] });
    expect(emptied.user.lifeInsurance).toEqual({ billsAndDebt: [] });
  });

  test('stores no section when all fields are null and the record has no answers', async () => {
    const { user } = await save(ltc, 'nulls', { careCosts: null, relationshipStatus: null });
    expect(user.ltc).toEqual({});
    expect(await storedRow('nulls')).toMatchObject({ ltcLifetimeCare: null, version: 1 });
  });

  test('omits the section when the last answer is removed', async () => {
    await save(ltc, 'cleared', { careCosts: 1 });
    expect((await save(ltc, 'cleared', { careCosts: null })).user.ltc).toEqual({});
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

  test('keeps the answers of two users separate', async () => {
    await save(ltc, 'one', { careCosts: 1 });
    await save(ltc, 'other', { careCosts: 2 });
    expect((await save(ltc, 'one', {})).user.ltc).toEqual({ lifetimeCare: { careCosts: 1 } });
  });

  test('keeps text and list order unchanged', async () => {
    const customSelections = ['two  spaces', 'Ünïcödé 🎻', 'O\'Brien "quoted" \\ {}', '<b>$1</b>'].map((title) => ({
      title,
    }));
    const { user } = await save(lifeInsurance, 'text', { customSelections });
    expect(user.lifeInsurance?.policySupport?.customSelections).toEqual(customSelections);
  });

  test.each(['sub', 'id', 'userId', 'version', 'createdAt', 'role', 'insurance', 'purchase', 'user'])(
    'returns 422 when the body has %s',
    async (field) => {
      const response = await testApp.call('POST', profile, { as: 'mass', body: { firstName: 'x', [field]: 'x' } });
      expect(response.status).toBe(422);
      expect(await storedRow('mass')).toBeUndefined();
    },
  );

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
});

describe('selections of a deep dive', () => {
  interface SelectionCase {
    name: string;
    body: { together?: unknown; selections?: unknown; customSelections?: unknown };
    stored: object | undefined;
  }
  const cases: SelectionCase[] = [
    {
      name: 'two fields',
      body: { selections: [{ id: 3, title: 'c' }], customSelections: [{ title: 'own' }] },
      stored: { selections: [{ id: 3, title: 'c' }], customSelections: [{ title: 'own' }] },
    },
    {
      name: 'one array, split by the id',
      body: { together: [{ title: 'own' }, { id: 1, title: 'a' }, { id: 0, title: 'b' }] },
      stored: {
        selections: [
          { id: 1, title: 'a' },
          { id: 0, title: 'b' },
        ],
        customSelections: [{ title: 'own' }],
      },
    },
    {
      name: 'one array without custom items, which empties that list',
      body: { together: [{ id: 1, title: 'a' }] },
      stored: { selections: [{ id: 1, title: 'a' }], customSelections: [] },
    },
    {
      name: 'array and field, where the field wins for its list',
      body: { together: [{ id: 1, title: 'a' }, { title: 'b' }], customSelections: [{ title: 'c' }] },
      stored: { selections: [{ id: 1, title: 'a' }], customSelections: [{ title: 'c' }] },
    },
    {
      name: 'null and a field, which clears the other list',
      body: { together: null, selections: [{ id: 1, title: 'a' }] },
      stored: { selections: [{ id: 1, title: 'a' }], customSelections: [] },
    },
    { name: 'null, which clears both', body: { together: null }, stored: undefined },
    {
      name: 'one field, which keeps the other list',
      body: { selections: [] },
      stored: { selections: [], customSelections: [{ title: 'before' }] },
    },
  ];

  test.each(cases)(
    'accept $name',
    async ({
      name,
      body: { together, ...body },
      stored,
    }: (typeof cases)[number] & { body: { together?: unknown } }) => {
      const before = { selections: [{ id: 9, title: 'before' }], customSelections: [{ title: 'before' }] };
      for (const [path, field] of [
        [lifeInsurance, 'policySupport'],
        [lifetimeCare, 'hobbies'],
      ] as const) {
        await save(path, `selections ${name}`, before);
        const sent = together === undefined ? body : { ...body, [field]: together };
        const { user } = await save(path, `selections ${name}`, sent);
        const lists = field === 'hobbies' ? user.lifetimeCare?.hobbies : user.lifeInsurance?.policySupport;
        expect<object | undefined>(lists).toEqual(stored);
      }
    },
  );

  test('become leaveFinancialLegacy in the long-term-care step', async () => {
    const selections = [{ id: 4, title: 'A house' }];
    expect((await save(ltc, 'legacy', { selections })).user.ltc.lifetimeCare).toEqual({
      leaveFinancialLegacy: { selections },
    });
    expect((await save(ltc, 'legacy', { selections: null })).user.ltc).toEqual({});
  });
});

describe(`POST ${ltc}`, () => {
  test('accepts one string for a list and returns a list', async () => {
    const { user } = await save(ltc, 'strings', { relationshipStatus: 'flySolo', propertyStatus: 'iRent' });
    expect(user.ltc.lifetimeCare).toEqual({ relationshipStatus: ['flySolo'], propertyStatus: ['iRent'] });
  });

  test('stores careCosts and careSafety under their own names', async () => {
    const { user } = await save(ltc, 'names', { careCosts: 10.25, careSafety: 3 });
    expect(user.ltc.lifetimeCare).toEqual({ careCosts: 10.25, careSafety: 3 });
  });
});

describe('If-Match of a save', () => {
  const headers = (tag: string) => ({ headers: { 'if-match': tag } });

  test('returns 412 and saves nothing when the tag is stale', async () => {
    const tag = (await save(ltc, 'matched', { careCosts: 1 })).headers.get('etag') ?? '';
    const saved = await save(ltc, 'matched', { careCosts: 2 }, headers(tag));
    expect(saved.headers.get('etag')).not.toBe(tag);
    const stale = await testApp.call('POST', ltc, { as: 'matched', body: { careCosts: 3 }, ...headers(tag) });
    expect(stale.status).toBe(412);
    expect(stale.body).toMatchObject({ type: '/problems/precondition-failed', code: 242 });
    expect((await save(ltc, 'matched', {})).user.ltc.lifetimeCare?.careCosts).toBe(2);
  });

  test.each(['*', '"1-1"', 'W/"1-1"', '"x"', '', 'garbage', '"1-1", "2-2"'])(
    'returns 412 for %p when no record exists',
    async (tag) => {
      const response = await testApp.call('POST', ltc, { as: 'unmade', body: { careCosts: 1 }, ...headers(tag) });
      expect(response.status).toBe(412);
      expect(await storedRow('unmade')).toBeUndefined();
    },
  );

  test('returns 412, not an error, for more tags than SQL has variables', async () => {
    const tags = Array(3000).fill('"1-1"').join(', ');
    expect((await testApp.call('POST', ltc, { as: 'listed', body: {}, ...headers(tags) })).status).toBe(412);
  });

  test('matches a list of tags and *', async () => {
    const tag = (await save(ltc, 'listed', { careCosts: 1 })).headers.get('etag') ?? '';
    expect((await save(ltc, 'listed', {}, headers(`"1-1", ${tag}`))).status).toBe(200);
    expect((await save(ltc, 'listed', {}, headers('*'))).status).toBe(200);
  });

  test.each(['x*', '*x', '/* */', '"1-1"*', '**'])('returns 412 for %p, which is not `*`', async (tag) => {
    await save(ltc, 'starred', { careCosts: 1 });
    const response = await testApp.call('POST', ltc, { as: 'starred', body: { careCosts: 2 }, ...headers(tag) });
    expect(response.status).toBe(412);
  });

  test('lets one of four parallel saves with the same tag succeed', async () => {
    const tag = (await save(ltc, 'race', { careCosts: 0 })).headers.get('etag') ?? '';
    const responses = await Promise.all(
      [1, 2, 3, 4].map((careCosts) => testApp.call('POST', ltc, { as: 'race', body: { careCosts }, ...headers(tag) })),
    );
    expect(responses.map(({ status }) => status).sort()).toEqual([200, 412, 412, 412]);
  });
});

describe('GET /v2/private/user', () => {
  const path = '/v2/private/user';

  test('returns 404 before the first save and the body of the save after it', async () => {
    const missing = await testApp.call('GET', path, { as: 'reader' });
    expect(missing.status).toBe(404);
    expect(missing.body).toMatchObject({ type: '/problems/user-not-found', code: 232 });
    const saved = await save(ltc, 'reader', { careCosts: 1 });
    const read = await testApp.call('GET', path, { as: 'reader' });
    expect(read.body).toEqual(saved.body);
    expect(read.headers.get('etag')).toBe(saved.headers.get('etag'));
    expect(read.headers.get('cache-control')).toBe('private, no-store');
  });

  test('returns 304 without a body while the ETag is current', async () => {
    const tag = (await save(ltc, 'conditional', { careCosts: 1 })).headers.get('etag') ?? '';
    for (const sent of [tag, `W/${tag}`, `"x", ${tag}`, '*']) {
      const response = await testApp.call('GET', path, { as: 'conditional', headers: { 'if-none-match': sent } });
      expect(response.status).toBe(304);
      expect(response.text).toBe('');
      expect(response.headers.get('etag')).toBe(tag);
    }
    await save(ltc, 'conditional', { careCosts: 2 });
    expect((await testApp.call('GET', path, { as: 'conditional', headers: { 'if-none-match': tag } })).status).toBe(
      200,
    );
  });

  test('returns a new ETag for a record that was erased and created again', async () => {
    const tag = (await save(ltc, 'erased', { careCosts: 1 })).headers.get('etag');
    await testApp.db.delete(users).where(eq(users.id, 'erased'));
    testApp.now = new Date(testApp.now.getTime() + 1);
    expect((await save(ltc, 'erased', { careCosts: 1 })).headers.get('etag')).not.toBe(tag);
  });
});
