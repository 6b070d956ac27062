import { describe, expect, test } from 'bun:test';
import type { Comparison, Condition } from '../../../src/modules/matching/catalog-model';
import { compileCondition } from '../../../src/modules/matching/catalog-model';
import type { FactName, Facts, FactValue } from '../../../src/modules/matching/facts';
import { deriveFacts } from '../../../src/modules/matching/facts';

const facts = (entries: readonly (readonly [FactName, FactValue])[]): Facts => new Map(entries);
const holds = (condition: Condition, known: Facts) => compileCondition(condition).holds(known);

const yes: Comparison = { fact: 'tobacco', is: true };
const no: Comparison = { fact: 'tobacco', is: false };
const open: Comparison = { fact: 'inCare', is: true };
const smoker = facts([['tobacco', true]]);

describe('compileCondition', () => {
  test.each<[name: string, condition: Condition, expected: boolean | undefined]>([
    ['all of nothing', { all: [] }, true],
    ['any of nothing', { any: [] }, false],
    ['true and true', { all: [yes, yes] }, true],
    ['true and false', { all: [yes, no] }, false],
    ['true and unknown', { all: [yes, open] }, undefined],
    ['false and unknown', { all: [no, open] }, false],
    ['unknown and false', { all: [open, no] }, false],
    ['true or unknown', { any: [yes, open] }, true],
    ['unknown or true', { any: [open, yes] }, true],
    ['false or unknown', { any: [no, open] }, undefined],
    ['false or false', { any: [no, no] }, false],
    ['not true', { not: yes }, false],
    ['not unknown', { not: open }, undefined],
    ['not (unknown and false)', { not: { all: [open, no] } }, true],
  ])('uses three-valued logic: %s', (_, condition, expected) => {
    expect(holds(condition, smoker)).toBe(expected);
  });

  test('lists every fact it reads once', () => {
    const { reads } = compileCondition({ all: [yes, { any: [no, open] }, { not: { fact: 'age', atLeast: 5 } }] });
    expect([...reads].sort()).toEqual(['age', 'inCare', 'tobacco']);
  });

  test.each<[comparison: Comparison, value: FactValue, expected: boolean]>([
    [{ fact: 'age', atLeast: 65 }, 64, false],
    [{ fact: 'age', atLeast: 65 }, 65, true],
    [{ fact: 'age', atMost: 65 }, 65, true],
    [{ fact: 'age', atMost: 65 }, 66, false],
    [{ fact: 'age', above: 65 }, 65, false],
    [{ fact: 'age', above: 65 }, 66, true],
    [{ fact: 'age', below: 65 }, 65, false],
    [{ fact: 'age', below: 65 }, 64, true],
    [{ fact: 'age', atLeast: 0 }, 0, true],
    [{ fact: 'gender', is: 'Male' }, 'Male', true],
    [{ fact: 'gender', is: 'Male' }, 'Female', false],
    [{ fact: 'tobacco', is: false }, false, true],
    [{ fact: 'tobacco', is: false }, true, false],
    [{ fact: 'state', isOneOf: ['NY', 'CA'] }, 'CA', true],
    [{ fact: 'state', isOneOf: ['NY', 'CA'] }, 'VA', false],
    [{ fact: 'lifeInsurance.billsAndDebt', includes: 'cc' }, ['auto', 'cc'], true],
    [{ fact: 'lifeInsurance.billsAndDebt', includes: 'cc' }, [], false],
    [{ fact: 'lifeInsurance.billsAndDebt', includesAnyOf: ['cc', 'other'] }, ['other'], true],
    [{ fact: 'lifeInsurance.billsAndDebt', includesAnyOf: ['cc', 'other'] }, ['auto'], false],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: true }, [], true],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: true }, ['cc'], false],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: false }, ['cc'], true],
  ])('compares %j with %j as %p', (comparison, value, expected) => {
    expect(holds(comparison, facts([[comparison.fact, value]]))).toBe(expected);
    expect(holds(comparison, facts([]))).toBeUndefined();
  });
});

describe('body mass index', () => {
  const bmi = (profile: { heightCm?: number; weightKg?: number }) =>
    deriveFacts({ profile, ltcLifetimeCare: null, lifeInsurance: null, lifetimeCare: null }, '2026-03-10');
  const obese: Comparison = { fact: 'bmi', atLeast: 30 };

  test.each([
    ['29.95', 100, 29.95, false],
    ['29.99', 100, 29.99, false],
    ['30', 100, 30, true],
    ['30 where a division says 29.999999999999996', 170, 86.7, true],
    ['30.05', 100, 30.05, true],
    ['just below 30 by a hundredth of a kilogram', 170, 86.69, false],
    ['just below 30 by a hundredth of a centimetre', 170.01, 86.7, false],
  ])('compares %s without rounding', (_, heightCm, weightKg, expected) => {
    expect(holds(obese, bmi({ heightCm, weightKg }))).toBe(expected);
  });

  test('stays unknown without a weight or a height', () => {
    expect(holds(obese, bmi({ heightCm: 170 }))).toBeUndefined();
    expect(holds(obese, bmi({ weightKg: 200 }))).toBeUndefined();
    expect(holds({ not: obese }, bmi({}))).toBeUndefined();
  });
});

describe('deriveFacts', () => {
  test('returns no facts without a record', () => {
    expect(deriveFacts(undefined, '2026-03-10').size).toBe(0);
  });

  test('distinguishes an empty list from a missing answer', () => {
    const answers = { profile: null, ltcLifetimeCare: { insuranceCover: [] }, lifeInsurance: {}, lifetimeCare: null };
    const known = deriveFacts(answers, '2026-03-10');
    expect(known.get('ltc.lifetimeCare.insuranceCover')).toEqual([]);
    expect(known.has('lifeInsurance.billsAndDebt')).toBeFalse();
  });
});
