import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import fc from 'fast-check';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { careFacilityTypes, facilityLocationPriorities, sharedQuestions } from '../../../src/modules/answers/model';
import { parseAnswers } from '../../../src/modules/answers/sections';
import { type Comparison, compileCondition } from '../../../src/modules/matching/catalog-model';
import { deriveFacts, type FactName, type Facts } from '../../../src/modules/matching/facts';
import { compileCatalog, match } from '../../../src/modules/matching/match';
import { createUserStore } from '../../../src/modules/users/store';
import { earlierMigrations, temporaryDatabase } from '../../support/database';
import { temporaryFolder } from '../../support/resources';

const today = '2026-03-10';
const unanswered = { profile: null, ltcLifetimeCare: null, lifeInsurance: null, lifetimeCare: null };

describe('deriveFacts', () => {
  test('returns no facts without a record', () => {
    expect(deriveFacts(undefined, today).size).toBe(0);
  });

  test('distinguishes an empty list from a missing answer', () => {
    const answers = { ...unanswered, ltcLifetimeCare: { insuranceCover: [] }, lifeInsurance: {} };
    expect(deriveFacts(answers, today)).toEqual(new Map([['ltc.lifetimeCare.insuranceCover', []]]));
  });

  const obese: Comparison = { fact: 'bmi', atLeast: 30 };
  const isObese = (profile: { heightCm?: number; weightKg?: number }) =>
    compileCondition(obese).holds(deriveFacts({ ...unanswered, profile }, today));

  // 86.7 / 1.7² is 29.999999999999996 as a division of doubles.
  test.each([
    [100, 29.95, false],
    [100, 29.99, false],
    [100, 30, true],
    [100, 30.05, true],
    [110, 36.3, true],
    [110, 36.29, false],
    [170, 86.7, true],
    [170, 86.69, false],
    [170.01, 86.7, false],
    [220, 145.2, true],
    [220, 145.19, false],
    [230, 158.7, true],
    [230, 158.69, false],
  ])('compares the body mass index of %d cm and %d kg with 30 without rounding', (heightCm, weightKg, expected) => {
    expect(isObese({ heightCm, weightKg })).toBe(expected);
  });

  test('leaves the body mass index unknown without a weight or a height', () => {
    expect([isObese({ heightCm: 170 }), isObese({ weightKg: 200 }), isObese({})]).toEqual(Array(3).fill(undefined));
  });
});

interface Save {
  readonly section: 'ltcLifetimeCare' | 'lifetimeCare';
  readonly patch: object;
}
const ltc = (patch: object): Save => ({ section: 'ltcLifetimeCare', patch });
const dive = (patch: object): Save => ({ section: 'lifetimeCare', patch });
const [type, location, safety] = sharedQuestions;
const home = { careFacilityType: 'inHome' };
const nursing = { careFacilityType: 'nursingHome' };
const assisted = { careFacilityType: 'assistedLiving' };
const noType = { careFacilityType: null };
const premium = { facilityLocationPriority: 'premiumFacility' };
const affordable = { facilityLocationPriority: 'affordable' };
const noLocation = { facilityLocationPriority: null };
const safe = { careSafety: 5 };
const unsafe = { careSafety: 1 };
const noSafety = { careSafety: null };

const sharedFacts = (facts: Facts) =>
  Object.fromEntries(
    sharedQuestions.flatMap((question) => {
      const value = facts.get(`lifetimeCare.${question}`);
      return value === undefined ? [] : [[question, value]];
    }),
  );

describe('a question of two flows', async () => {
  const store = createUserStore((await temporaryDatabase()).db);
  const save = async (userId: string, { section, patch }: Save) =>
    store.saveSection({ userId, section, patch: { ...patch }, requestId: null, now: new Date(0) });
  const factsOf = async (userId: string) => {
    const read = await store.findAnswers(userId);
    return deriveFacts(read && parseAnswers(read), today);
  };

  test.each<[name: string, saves: Save[], facts: object]>([
    ['counts by the deep dive when that came last', [ltc(home), dive(nursing)], nursing],
    ['counts by the long-term-care flow when that came last', [dive(nursing), ltc(home)], home],
    ['counts by a repeat of an older answer', [ltc(home), dive(nursing), ltc(home)], home],
    ['ignores a save of another question', [ltc(home), dive(nursing), ltc({ careCosts: 1 })], nursing],
    ['is unknown when the newest answer is cleared', [ltc(home), dive(nursing), dive(noType)], {}],
    [
      'stays unknown when the newest answer is cleared and another question is saved',
      [dive({ ...nursing, ...safe }), ltc({ ...home, ...unsafe }), ltc({ ...noType, ...noSafety }), dive(affordable)],
      {},
    ],
    ['counts again when the other flow repeats it', [ltc(home), dive(nursing), dive(noType), ltc(home)], home],
    [
      'keeps its newest answer when an older one is cleared',
      [ltc({ ...home, ...safe }), dive({ ...nursing, ...unsafe }), ltc({ ...noType, ...noSafety })],
      { ...nursing, ...unsafe },
    ],
    [
      'ignores null of a flow without an answer',
      [ltc(safe), dive({ ...nursing, ...noSafety })],
      { ...nursing, ...safe },
    ],
    ['is unknown when both answers are cleared', [ltc(home), dive(nursing), dive(noType), ltc(noType)], {}],
    ['counts careSafety by its newest answer', [ltc(safe), dive(unsafe)], unsafe],
    ['counts careSafety of 0', [dive(safe), ltc({ careSafety: 0 })], { careSafety: 0 }],
    [
      'has no location when the newest is cleared',
      [ltc({ ...nursing, ...premium }), dive(affordable), dive(noLocation)],
      nursing,
    ],
    ['has no location with inHome', [ltc({ ...home, ...premium })], home],
    ['has no location without a type of care', [dive(premium)], {}],
    ['has no location when inHome is newer in the other section', [dive({ ...nursing, ...premium }), ltc(home)], home],
    [
      'has the location of the section with the older type of care',
      [ltc(home), dive(nursing), ltc(premium)],
      { ...nursing, ...premium },
    ],
    [
      'has the location again when its type of care comes back',
      [ltc({ ...nursing, ...premium }), ltc(home), ltc(assisted)],
      { ...assisted, ...premium },
    ],
    [
      'has the newest location when a type of care with a facility comes back',
      [ltc({ ...assisted, ...premium }), dive({ ...home, ...affordable }), ltc(nursing)],
      { ...nursing, ...affordable },
    ],
    [
      'has the location of a section without a type of care',
      [dive(nursing), ltc(affordable)],
      { ...nursing, ...affordable },
    ],
  ])('%s', async (userId, saves, expected) => {
    for (const each of saves) await save(userId, each);
    expect(sharedFacts(await factsOf(userId))).toEqual({ ...expected });
  });

  test('changes the version when an older answer is repeated, and not when the newest is', async () => {
    const versions = [];
    for (const each of [ltc(home), ltc(home), dive(nursing), ltc(home), ltc(home)]) {
      versions.push((await save('versions', each))?.version);
    }
    expect(versions).toEqual([1, 1, 2, 3, 3]);
  });

  test('counts by the patches of a preview, which stores none of them', async () => {
    const previewed = async (patches: Parameters<typeof store.mergeAnswers>[1]) =>
      sharedFacts(deriveFacts(await store.mergeAnswers('preview', patches), today));
    await save('preview', ltc({ ...nursing, ...premium }));
    await save('preview', dive(assisted));
    expect(await previewed({})).toEqual({ ...assisted, ...premium });
    expect(await previewed({ ltcLifetimeCare: home })).toEqual(home);
    expect(await previewed({ ltcLifetimeCare: nursing })).toEqual({ ...nursing, ...premium });
    expect(await previewed({ ltcLifetimeCare: home, lifetimeCare: nursing })).toEqual({ ...nursing, ...premium });
    expect(await previewed({})).toEqual({ ...assisted, ...premium });
  });

  test('is listed as unanswered unless it is answered or does not apply', async () => {
    const rules = sharedQuestions
      .flatMap((question): FactName[] => [`ltc.lifetimeCare.${question}`, `lifetimeCare.${question}`])
      .map((fact) => ({ id: fact, when: { fact, is: '' }, pointsHundredths: 1, text: '', reason: '' }));
    const product = {
      ...{ id: 1, position: 0, productName: '', productWrapper: '', productIcon: '', isActive: true },
      disqualifiers: [],
      rules: rules.map((rule) => ({ ...rule, textList: 'highlights' as const })),
    };
    const catalog = compileCatalog({ version: 1, penaltyHundredths: 1, conditions: [], products: [product] });
    const listed = async () => {
      const { bestMatch } = match(await factsOf('unanswered'), catalog, true);
      return bestMatch?.explanation?.unanswered.map((fact) => fact.split('.').at(-1) ?? '').sort();
    };
    expect(await listed()).toEqual([type, type, safety, safety, location, location]);
    await save('unanswered', ltc(home));
    expect(await listed()).toEqual([safety, safety]);
    await save('unanswered', dive({ ...nursing, careSafety: 2 }));
    expect(await listed()).toEqual([location, location]);
  });

  test('has at most one value, in any order of saves', () => {
    const section = fc.record(
      {
        careFacilityType: fc.constantFrom(...careFacilityTypes),
        facilityLocationPriority: fc.constantFrom(...facilityLocationPriorities),
        careSafety: fc.integer({ min: 0, max: 9 }),
      },
      { requiredKeys: [] },
    );
    const newest = fc.option(fc.constantFrom('ltcLifetimeCare' as const, 'lifetimeCare' as const), { nil: undefined });
    const answers = fc.record({
      ...{ profile: fc.constant(null), lifeInsurance: fc.constant(null) },
      ...{ ltcLifetimeCare: fc.option(section), lifetimeCare: fc.option(section) },
      newestAnswers: fc.record({ careFacilityType: newest, facilityLocationPriority: newest, careSafety: newest }),
    });
    fc.assert(
      fc.property(answers, (generated) => {
        const facts = deriveFacts(generated, today);
        for (const question of sharedQuestions) {
          const value = facts.get(`lifetimeCare.${question}`);
          expect(facts.get(`ltc.lifetimeCare.${question}`)).toEqual(value);
          const { [question]: newestSection } = generated.newestAnswers;
          const given: unknown[] = [generated.lifetimeCare?.[question], generated.ltcLifetimeCare?.[question]];
          const counted: unknown[] = newestSection === undefined ? given : [generated[newestSection]?.[question]];
          if (value !== undefined) expect(counted).toContainEqual(value);
          else if (question !== location) expect(counted.every((each) => each === undefined)).toBeTrue();
        }
        const careFacilityType = facts.get(`lifetimeCare.${type}`);
        if (careFacilityType === undefined || careFacilityType === 'inHome')
          expect(facts.has(`lifetimeCare.${location}`)).toBeFalse();
      }),
      { numRuns: 500 },
    );
  });

  test('counts by the last audit event in a record of an earlier build', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });
    await migrateDatabase(db, await earlierMigrations(9));
    const [flow, deepDive] = [JSON.stringify(home), JSON.stringify(nursing)];
    const insert = (id: string, columns: readonly (readonly [column: string, json: string])[]) => [
      `INSERT INTO users (id, version, created_at, updated_at) VALUES ('${id}', 1, 1, 1)`,
      ...columns.map(([column, json]) => `UPDATE users SET ${column} = '${json}' WHERE id = '${id}'`),
    ];
    const [early, late] = [['ltc_lifetime_care', flow] as const, ['lifetime_care', deepDive] as const];
    const { rows: audits } = await db.$client.execute(`SELECT name, sql FROM sqlite_schema
      WHERE name IN ('users_ltc_lifetime_care_audited', 'users_lifetime_care_audited')`);
    for (const statement of [
      ...insert('deep dive last', [early, late]),
      ...insert('flow last', [late, early]),
      ...insert('one question each', [early, ['lifetime_care', '{"careSafety":1}']]),
      ...audits.map(({ name }) => `DROP TRIGGER ${name}`),
      ...insert('no events', [early, late]),
      ...insert('flow only', [early]),
      ...insert('neither', []),
      ...audits.map(({ sql }) => String(sql)),
    ]) {
      await db.$client.execute(statement);
    }
    await migrateDatabase(db);
    const migrated = createUserStore(db);
    const typeOf = async (id: string) => {
      const read = await migrated.findAnswers(id);
      return deriveFacts(read && parseAnswers(read), today).get('lifetimeCare.careFacilityType');
    };
    const ids = ['deep dive last', 'flow last', 'one question each', 'no events', 'flow only', 'neither'];
    const types = ['nursingHome', 'inHome', 'inHome', 'nursingHome', 'inHome', undefined];
    expect(await Promise.all(ids.map(typeOf))).toEqual(types);
    db.$client.close();
  });
});
