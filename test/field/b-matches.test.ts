import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { Catalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { UserBody } from '../../src/modules/users/model';
import { createTestApp, type TestApp } from '../support/app';

const paths = { matches: '/v2/private/engine/matches', user: '/v2/private/user' } as const;

/** Stores a catalogue of products with their points; those in `disqualified` are never eligible. */
async function useProducts(
  testApp: TestApp,
  points: Readonly<Record<string, number>>,
  disqualified: readonly string[] = [],
) {
  const products = Object.entries(points).map(([productName, each], index) => ({
    ...{ id: index + 1, productName, productWrapper: 'W', productIcon: '/icons/hybrid.svg' },
    disqualifiers: disqualified.includes(productName) ? ['always'] : ['never'],
    rules: [{ id: 'base', when: { all: [] }, points: each, list: 'negatives', text: 'Base', reason: 'r' }],
  }));
  const conditions = [
    { code: 'always', when: { all: [] } },
    { code: 'never', when: { any: [] } },
  ];
  const catalog = products.length === 0 ? { conditions, products: [] } : v.parse(Catalog, { conditions, products });
  const source = { source: 'imported', contentHash: JSON.stringify(points), now: new Date(0) } as const;
  await createCatalogStore(testApp.db).add(catalog, source);
}

async function matchesOf(testApp: TestApp, query = '') {
  const response = await testApp.call('POST', `${paths.matches}${query}`, { as: 'ada' });
  expect(response.status).toBe(200);
  return v.parse(UserBody, response.body).user.insurance.matches;
}

describe('the best match', () => {
  const cases: readonly {
    name: string;
    points: Record<string, number>;
    disqualified?: readonly string[];
    best: object | null;
    remaining: readonly object[];
  }[] = [
    {
      name: 'picks the highest score when no product is eligible',
      points: { A: 1, B: 3, C: 2 },
      disqualified: ['A', 'B', 'C'],
      best: { productName: 'B', isEligible: false, score: -0.01 },
      remaining: [
        { productName: 'C', isEligible: false },
        { productName: 'A', isEligible: false },
      ],
    },
    {
      name: 'prefers an eligible product below zero to a disqualified one',
      points: { A: -50, B: 100 },
      disqualified: ['B'],
      best: { productName: 'A', isEligible: true, score: -50 },
      remaining: [{ productName: 'B', isEligible: false }],
    },
    {
      name: 'can be disqualified when there is no other product',
      points: { A: 0 },
      disqualified: ['A'],
      best: { productName: 'A', isEligible: false, score: -0.01 },
      remaining: [],
    },
    {
      name: 'picks the first of the catalogue among equal disqualified scores',
      points: { A: 5, B: 5 },
      disqualified: ['A', 'B'],
      best: { productName: 'A', isEligible: false },
      remaining: [{ productName: 'B', isEligible: false }],
    },
    { name: 'stays null for a catalogue without products', points: {}, best: null, remaining: [] },
  ];
  test.each(cases)('B7 $name', async ({ points, disqualified, best, remaining }) => {
    const testApp = await createTestApp();
    await useProducts(testApp, points, disqualified);
    const matches = await matchesOf(testApp);
    if (best === null) expect(matches?.bestMatch).toBeNull();
    else expect(matches?.bestMatch).toMatchObject(best);
    expect(matches?.remainingMatches).toMatchObject([...remaining]);
    expect(matches?.bestMatch ?? {}).not.toHaveProperty('negatives');
    for (const each of matches?.remainingMatches ?? []) expect(each).toHaveProperty('negatives');
    const explained = await matchesOf(testApp, '?explain=true');
    expect(explained?.bestMatch?.id).toBe(matches?.bestMatch?.id);
  });

  test('B7 has the highest score when every product of the shipped catalogue is disqualified', async () => {
    const testApp = await createTestApp();
    const profile = {
      dateOfBirth: '1906-03-11',
      seriousIllness: true,
      inCare: true,
      heightCm: 150,
      weightKg: 120,
      tobacco: true,
    };
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: profile });
    const matches = await matchesOf(testApp);
    expect(matches?.bestMatch).toBeObject();
    for (const { score } of matches?.remainingMatches ?? [])
      expect(score).toBeLessThanOrEqual(matches?.bestMatch?.score ?? 0);
  });
});

describe('matches that an earlier version stored', () => {
  const earlier = {
    matches: {
      bestMatch: null,
      remainingMatches: [
        {
          ...{ id: 1, productName: 'A', productWrapper: 'W', productIcon: 'http://localhost/icons/hybrid.svg' },
          ...{ disqualifiers: ['always'], score: -0.01, highlights: [], objectives: [], negatives: ['Base'] },
        },
      ],
    },
  };
  const store = async (testApp: TestApp) => {
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { firstName: 'Ada' } });
    const args = [JSON.stringify(earlier)];
    await testApp.db.$client.execute({
      sql: "UPDATE users SET insurance = ?, version = version + 1 WHERE id = 'ada'",
      args,
    });
  };

  test('B7 remain readable', async () => {
    const testApp = await createTestApp();
    await store(testApp);
    const { user } = v.parse(UserBody, (await testApp.call('GET', paths.user, { as: 'ada' })).body);
    expect(user.insurance).toEqual(earlier);
  });

  test('B7 disappear with the next match', async () => {
    const testApp = await createTestApp();
    await store(testApp);
    await useProducts(testApp, { A: 0 }, ['A']);
    const matches = await matchesOf(testApp);
    expect(matches).toMatchObject({ bestMatch: { productName: 'A', isEligible: false }, remainingMatches: [] });
  });
});
