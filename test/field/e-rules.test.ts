import { beforeEach, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import fc from 'fast-check';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { auditEvents } from '../../src/db/schema/people';
import { careFacilityTypes, facilityLocationPriorities, sharedQuestions } from '../../src/modules/answers/model';
import { parseAnswers } from '../../src/modules/answers/sections';
import type { Condition } from '../../src/modules/matching/catalog-model';
import { Catalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { deriveFacts } from '../../src/modules/matching/facts';
import { PreviewBody } from '../../src/modules/matching/routes';
import { UserBody } from '../../src/modules/users/model';
import { createUserStore } from '../../src/modules/users/store';
import { applicant, createTestApp, startSandbox, type TestApp } from '../support/app';
import { earlierMigrations } from '../support/database';
import { temporaryFolder } from '../support/resources';

const paths = {
  profile: '/v2/private/user/profile',
  ltc: '/v2/private/ltc/lifetimeCare',
  deepDive: '/v2/private/deepDives/lifetimeCare',
  coverage: '/v2/private/ltc/totalCoverage',
  life: '/v2/private/life/totalCoverage',
} as const;
type Step = readonly [path: keyof typeof paths, body: object];

const spouse = {
  firstName: 'William',
  lastName: 'King',
  dateOfBirth: '1951-02-21',
  gender: 'Male',
  state: 'MD',
  email: 'william@example.com',
} as const;
const declined = { ...spouse, lastName: 'Declined' };
const broken = { ...spouse, lastName: 'Broken' };

let testApp: TestApp;
beforeEach(async () => {
  const sandbox = await startSandbox();
  testApp = await createTestApp({ carrier: sandbox.carrier() });
});

const send = ([path, body]: Step, headers = {}) => testApp.call('POST', paths[path], { as: 'ada', body, headers });

async function userAfter(steps: readonly Step[]) {
  for (const step of steps) await send(step);
  return v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body).user;
}

describe('an application and the profile', () => {
  const own = { ...applicant, email: 'own@example.com' };
  const cases: readonly { name: string; steps: readonly Step[]; profile: object }[] = [
    {
      name: 'keeps every answer when a spouse applies',
      steps: [
        ['profile', own],
        ['coverage', spouse],
      ],
      profile: own,
    },
    {
      name: 'keeps every answer when the carrier declines',
      steps: [
        ['profile', own],
        ['coverage', declined],
      ],
      profile: own,
    },
    {
      name: 'keeps every answer when the carrier fails',
      steps: [
        ['profile', own],
        ['life', broken],
      ],
      profile: own,
    },
    { name: 'fills an empty profile', steps: [['coverage', applicant]], profile: applicant },
    { name: 'fills an empty profile when the carrier declines', steps: [['coverage', declined]], profile: declined },
    { name: 'fills an empty profile when the carrier fails', steps: [['coverage', broken]], profile: broken },
    {
      name: 'fills only the fields without an answer',
      steps: [
        ['profile', { firstName: 'Augusta', heightCm: 165, tobacco: false }],
        ['coverage', applicant],
      ],
      profile: { heightCm: 165, tobacco: false, ...applicant, firstName: 'Augusta' },
    },
    {
      name: 'fills a field that was cleared',
      steps: [
        ['profile', own],
        ['profile', { email: null, state: null }],
        ['coverage', spouse],
      ],
      profile: { ...own, email: spouse.email, state: spouse.state },
    },
    {
      name: 'keeps the first identity when a second application corrects it',
      steps: [
        ['coverage', { ...applicant, lastName: 'Byrom' }],
        ['coverage', applicant],
      ],
      profile: { ...applicant, lastName: 'Byrom' },
    },
    {
      name: 'keeps a correction that the profile saved after an earlier application',
      steps: [
        ['coverage', { ...applicant, lastName: 'Byrom' }],
        ['profile', { lastName: 'Byron' }],
        ['coverage', spouse],
      ],
      profile: applicant,
    },
  ];
  test.each(cases)('E1 an application $name', async ({ steps, profile }) => {
    expect((await userAfter(steps)).profile).toEqual(profile);
  });

  test('E1 matches the user, not the spouse, after an application for the spouse', async () => {
    const before = await userAfter([['profile', { ...own, seriousIllness: false }]]);
    const match = async () =>
      v.parse(UserBody, (await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' })).body);
    const matched = await match();
    await send(['coverage', { ...spouse, dateOfBirth: '1938-02-21' }]);
    expect((await match()).user.insurance).toEqual(matched.user.insurance);
    expect(before.profile?.dateOfBirth).toBe('1981-03-10');
  });

  test('E1 changes neither the version nor the audit log of a complete profile', async () => {
    await userAfter([
      ['profile', { heightCm: 165, email: own.email }],
      ['profile', own],
      ['coverage', applicant],
    ]);
    const events = () =>
      testApp.db.select({ section: auditEvents.section, action: auditEvents.action }).from(auditEvents);
    const before = await events();
    expect(before.filter(({ section }) => section === 'profile')).toHaveLength(2);
    const first = await send(['coverage', applicant]);
    const again = await send(['coverage', applicant]);
    expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    expect(await events()).toEqual(before);
  });

  test('E1 fills the profile with If-Match, and nothing when it is stale', async () => {
    const saved = await send(['profile', { firstName: 'Augusta' }]);
    const tag = saved.headers.get('etag') ?? '';
    await send(['profile', { heightCm: 165 }]);
    expect((await send(['coverage', spouse], { 'if-match': tag })).status).toBe(412);
    expect((await userAfter([])).profile).toEqual({ firstName: 'Augusta', heightCm: 165 });
    const current = (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).headers.get('etag') ?? '';
    expect((await send(['coverage', spouse], { 'if-match': current })).status).toBe(200);
    expect((await userAfter([])).profile).toEqual({ ...spouse, firstName: 'Augusta', heightCm: 165 });
  });
});

/** A product whose texts show which conditions hold. */
function catalogOf(conditions: Readonly<Record<string, Condition>>) {
  return v.parse(Catalog, {
    conditions: [],
    products: [
      {
        ...{ id: 1, productName: 'P', productWrapper: 'W', productIcon: '/icons/hybrid.svg', disqualifiers: [] },
        rules: Object.entries(conditions).map(([id, when]) => ({
          id,
          when,
          points: 1,
          list: 'highlights',
          text: id,
          reason: 'r',
        })),
      },
    ],
  });
}
const either = (question: string, operation: object): Condition =>
  v.parse(
    v.custom<Condition>(() => true),
    {
      any: [
        { fact: `ltc.lifetimeCare.${question}`, ...operation },
        { fact: `lifetimeCare.${question}`, ...operation },
      ],
    },
  );
const conditions = {
  home: either('careFacilityType', { is: 'inHome' }),
  nursing: either('careFacilityType', { is: 'nursingHome' }),
  assisted: either('careFacilityType', { is: 'assistedLiving' }),
  premium: either('facilityLocationPriority', { is: 'premiumFacility' }),
  affordable: either('facilityLocationPriority', { is: 'affordable' }),
  safe: either('careSafety', { atLeast: 4 }),
  unsafe: either('careSafety', { below: 4 }),
};

describe('a question that two flows ask', () => {
  const home = { careFacilityType: 'inHome' };
  const nursing = { careFacilityType: 'nursingHome' };
  const assisted = { careFacilityType: 'assistedLiving' };
  const premium = { facilityLocationPriority: 'premiumFacility' };
  const affordable = { facilityLocationPriority: 'affordable' };
  const cases: readonly { name: string; steps: readonly Step[]; met: readonly string[] }[] = [
    {
      name: 'counts by the deep dive when that came last',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
      ],
      met: ['nursing'],
    },
    {
      name: 'counts by the long-term-care flow when that came last',
      steps: [
        ['deepDive', nursing],
        ['ltc', home],
      ],
      met: ['home'],
    },
    {
      name: 'counts by a repeat of an older answer',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['ltc', home],
      ],
      met: ['home'],
    },
    {
      name: 'keeps its newest answer when a save answers another question of the section',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['ltc', { careCosts: 1 }],
      ],
      met: ['nursing'],
    },
    {
      name: 'stays unknown when the newest answer is cleared',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['deepDive', { careFacilityType: null }],
      ],
      met: [],
    },
    {
      name: 'stays unknown when the newest answer is cleared and another question is saved',
      steps: [
        ['deepDive', { ...nursing, careSafety: 5 }],
        ['ltc', { ...home, careSafety: 1 }],
        ['ltc', { careFacilityType: null, careSafety: null }],
        ['deepDive', affordable],
      ],
      met: [],
    },
    {
      name: 'counts again when the other flow repeats its answer after the newest was cleared',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['deepDive', { careFacilityType: null }],
        ['ltc', home],
      ],
      met: ['home'],
    },
    {
      name: 'keeps its newest answer when an older one is cleared',
      steps: [
        ['ltc', { ...home, careSafety: 5 }],
        ['deepDive', { ...nursing, careSafety: 1 }],
        ['ltc', { careFacilityType: null, careSafety: null }],
      ],
      met: ['nursing', 'unsafe'],
    },
    {
      name: 'keeps an answer when the other flow sends null for it and never answered it',
      steps: [
        ['ltc', { careSafety: 5 }],
        ['deepDive', { ...nursing, careSafety: null }],
      ],
      met: ['nursing', 'safe'],
    },
    {
      name: 'hides the location when the newest one is cleared',
      steps: [
        ['ltc', { ...nursing, ...premium }],
        ['deepDive', affordable],
        ['deepDive', { facilityLocationPriority: null }],
      ],
      met: ['nursing'],
    },
    {
      name: 'stays unknown when both answers are cleared',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['deepDive', { careFacilityType: null }],
        ['ltc', { careFacilityType: null }],
      ],
      met: [],
    },
    {
      name: 'counts careSafety by its newest answer',
      steps: [
        ['ltc', { careSafety: 5 }],
        ['deepDive', { careSafety: 1 }],
      ],
      met: ['unsafe'],
    },
    {
      name: 'counts careSafety of 0',
      steps: [
        ['deepDive', { careSafety: 5 }],
        ['ltc', { careSafety: 0 }],
      ],
      met: ['unsafe'],
    },
    { name: 'hides the location of a facility with inHome', steps: [['ltc', { ...home, ...premium }]], met: ['home'] },
    { name: 'hides the location without a type of care', steps: [['deepDive', premium]], met: [] },
    {
      name: 'hides the location in one section when the newest type of care is inHome in the other',
      steps: [
        ['deepDive', { ...nursing, ...premium }],
        ['ltc', home],
      ],
      met: ['home'],
    },
    {
      name: 'counts a location by the newest type of care, whichever section has it',
      steps: [
        ['ltc', home],
        ['deepDive', nursing],
        ['ltc', premium],
      ],
      met: ['nursing', 'premium'],
    },
    {
      name: 'counts a location again when its type of care comes back',
      steps: [
        ['ltc', { ...nursing, ...premium }],
        ['ltc', home],
        ['ltc', assisted],
      ],
      met: ['assisted', 'premium'],
    },
    {
      name: 'counts the newest location and no older one when a type of care with a facility comes back',
      steps: [
        ['ltc', { ...assisted, ...premium }],
        ['deepDive', { ...home, ...affordable }],
        ['ltc', nursing],
      ],
      met: ['nursing', 'affordable'],
    },
    {
      name: 'counts the location of a section that leaves the type of care to the other',
      steps: [
        ['deepDive', nursing],
        ['ltc', affordable],
      ],
      met: ['nursing', 'affordable'],
    },
  ];
  test.each(cases)('E2 a shared question $name', async ({ steps, met }) => {
    await createCatalogStore(testApp.db).add(catalogOf(conditions), {
      source: 'imported',
      contentHash: 'e2',
      now: new Date(0),
    });
    for (const step of steps) expect((await send(step)).status).toBe(200);
    const { user } = v.parse(UserBody, (await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' })).body);
    expect(user.insurance.matches?.bestMatch?.highlights).toEqual([...met]);
  });

  test('E2 changes the version when an older answer is repeated, and not when the newest is', async () => {
    const tags = [];
    for (const step of [
      ['ltc', home],
      ['ltc', home],
      ['deepDive', nursing],
      ['ltc', home],
      ['ltc', home],
    ] as const) {
      tags.push((await send(step)).headers.get('etag'));
    }
    expect(tags[1]).toBe(tags[0] ?? '');
    expect(tags[3]).not.toBe(tags[2] ?? '');
    expect(tags[4]).toBe(tags[3] ?? '');
  });

  test('E2 treats a preview as the newest answers, and stores none of them', async () => {
    await createCatalogStore(testApp.db).add(catalogOf(conditions), {
      source: 'imported',
      contentHash: 'e2',
      now: new Date(0),
    });
    const metIn = async (body: object) => {
      const response = await testApp.call('POST', '/v2/private/engine/preview', { as: 'ada', body });
      return v.parse(PreviewBody, response.body).data.matches.bestMatch?.highlights;
    };
    await userAfter([
      ['ltc', { ...nursing, ...premium }],
      ['deepDive', assisted],
    ]);
    expect(await metIn({})).toEqual(['assisted', 'premium']);
    expect(await metIn({ ltc: home })).toEqual(['home']);
    expect(await metIn({ ltc: nursing })).toEqual(['nursing', 'premium']);
    expect(await metIn({ ltc: home, lifetimeCare: nursing })).toEqual(['nursing', 'premium']);
    expect(await metIn({})).toEqual(['assisted', 'premium']);
  });

  test('E2 lists a question as unanswered unless it is answered or does not apply', async () => {
    await createCatalogStore(testApp.db).add(catalogOf(conditions), {
      source: 'imported',
      contentHash: 'e2',
      now: new Date(0),
    });
    const unanswered = async () => {
      const response = await testApp.call('POST', '/v2/private/engine/preview', { as: 'ada', body: {} });
      const { bestMatch } = v.parse(PreviewBody, response.body).data.matches;
      return bestMatch?.explanation?.unanswered.map((fact) => fact.split('.').at(-1));
    };
    const [type, location, safety] = sharedQuestions;
    const both = (...names: string[]) => names.sort();
    expect((await unanswered())?.sort()).toEqual(both(type, type, location, location, safety, safety));
    await send(['ltc', home]);
    expect((await unanswered())?.sort()).toEqual(both(safety, safety));
    await send(['deepDive', { ...nursing, careSafety: 2 }]);
    expect((await unanswered())?.sort()).toEqual(both(location, location));
  });

  test('E2 gives at most one value, in any order of saves', () => {
    const type = fc.constantFrom(...careFacilityTypes);
    const location = fc.constantFrom(...facilityLocationPriorities);
    const section = fc.record(
      { careFacilityType: type, facilityLocationPriority: location, careSafety: fc.integer({ min: 0, max: 9 }) },
      { requiredKeys: [] },
    );
    const newest = fc.option(fc.constantFrom('ltcLifetimeCare' as const, 'lifetimeCare' as const), { nil: undefined });
    const answers = fc.record({
      profile: fc.constant(null),
      lifeInsurance: fc.constant(null),
      ltcLifetimeCare: fc.option(section),
      lifetimeCare: fc.option(section),
      newestAnswers: fc.record({ careFacilityType: newest, facilityLocationPriority: newest, careSafety: newest }),
    });
    fc.assert(
      fc.property(answers, (generated) => {
        const facts = deriveFacts(generated, '2026-03-10');
        for (const question of sharedQuestions) {
          const value = facts.get(`lifetimeCare.${question}`);
          expect(facts.get(`ltc.lifetimeCare.${question}`)).toEqual(value);
          const { [question]: section } = generated.newestAnswers;
          const given: unknown[] = [generated.ltcLifetimeCare?.[question], generated.lifetimeCare?.[question]];
          if (value !== undefined) expect(given).toContain(value);
          if (section !== undefined && generated[section]?.[question] === undefined) expect(value).toBeUndefined();
          else if (question !== 'facilityLocationPriority')
            expect(section === undefined ? given : [generated[section]?.[question]]).not.toContain(expect.anything());
        }
        const careFacilityType = facts.get('lifetimeCare.careFacilityType');
        if (careFacilityType === undefined || careFacilityType === 'inHome')
          expect(facts.has('lifetimeCare.facilityLocationPriority')).toBeFalse();
      }),
      { numRuns: 1000 },
    );
  });

  test('E2 uses the section of the last audit event in records of an earlier build', async () => {
    const url = `file:${join(temporaryFolder(), 'planning.db')}`;
    const db = await openDatabase({ url, timeoutMs: 10_000 });
    await migrateDatabase(db, await earlierMigrations(9));
    const ids = ['deep dive last', 'flow last', 'no events', 'flow only', 'neither', 'one question each'];
    const [ltc, deepDive] = ['{"careFacilityType":"inHome"}', '{"careFacilityType":"nursingHome"}'];
    const insert = (id: string, first: string, second: string | null, order: readonly string[]) => [
      `INSERT INTO users (id, version, created_at, updated_at) VALUES ('${id}', 1, 1, 1)`,
      ...order.map(
        (column) => `UPDATE users SET ${column} = '${column === 'lifetime_care' ? second : first}' WHERE id = '${id}'`,
      ),
    ];
    const { rows: audits } = await db.$client.execute(`SELECT name, sql FROM sqlite_schema
      WHERE name IN ('users_ltc_lifetime_care_audited', 'users_lifetime_care_audited')`);
    const statements = [
      ...insert('deep dive last', ltc, deepDive, ['ltc_lifetime_care', 'lifetime_care']),
      ...insert('flow last', ltc, deepDive, ['lifetime_care', 'ltc_lifetime_care']),
      ...insert('one question each', ltc, '{"careSafety":1}', ['ltc_lifetime_care', 'lifetime_care']),
      ...audits.map(({ name }) => `DROP TRIGGER ${name}`),
      ...insert('no events', ltc, deepDive, ['ltc_lifetime_care', 'lifetime_care']),
      ...insert('flow only', ltc, null, ['ltc_lifetime_care']),
      ...insert('neither', ltc, null, []),
      ...audits.map(({ sql }) => String(sql)),
    ];
    for (const statement of statements) await db.$client.execute(statement);
    await migrateDatabase(db);
    const store = createUserStore(db);
    const types = await Promise.all(
      ids.map(async (id) => {
        const read = await store.findAnswers(id);
        return deriveFacts(read && parseAnswers(read), '2026-03-10').get('lifetimeCare.careFacilityType');
      }),
    );
    db.$client.close();
    expect(types).toEqual(['nursingHome', 'inHome', 'nursingHome', 'inHome', undefined, 'inHome']);
  });
});
