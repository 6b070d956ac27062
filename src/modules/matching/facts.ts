import { ageOn, type CalendarDate, parseCalendarDate } from '../../shared/calendar';
import { stateCodes } from '../../shared/states';
import {
  billsAndDebts,
  careFacilityTypes,
  facilityLocationPriorities,
  familyHistories,
  financialPriorities,
  insuranceCovers,
  livingStatuses,
  propertyStatuses,
  relationshipStatuses,
  type SharedQuestion,
  typesWithFacility,
} from '../answers/model';
import type { AnswerSection, Answers, NewestAnswers } from '../answers/sections';
import { genders } from '../users/model';

/** A quotient of whole numbers, which is compared without a rounded division. */
export interface Ratio {
  readonly numerator: number;
  readonly denominator: number;
}

export type FactValue = number | Ratio | string | boolean | readonly string[];

/** Determines the operators of a fact. */
type FactKind = 'number' | 'ratio' | 'text' | 'flag' | 'list';

type Sections = { [Section in AnswerSection]: NonNullable<Answers[Section]> };

/** Answers to the shared questions. */
type SharedAnswers = Pick<Sections['lifetimeCare'], SharedQuestion>;

interface FactDefinition {
  readonly kind: FactKind;
  /** The possible answers, if they are a closed set. */
  readonly values?: readonly string[];
  readonly read: (answers: Sections & { shared: SharedAnswers }, today: CalendarDate) => FactValue | undefined;
}

/**
 * The facts that rules can read, by the path of the answer in the user object. `read` returns undefined for a question
 * without an answer, which is unknown and neither 0 nor false. An empty list is known. A shared question has one value
 * under both names.
 */
export const factDefinitions = {
  age: {
    kind: 'number',
    read: ({ profile }, today) => {
      const birthDate = parseCalendarDate(profile.dateOfBirth ?? '');
      return birthDate === undefined ? undefined : ageOn(birthDate, today);
    },
  },
  bmi: { kind: 'ratio', read: ({ profile }) => bodyMassIndex(profile.weightKg, profile.heightCm) },
  gender: { kind: 'text', values: genders, read: ({ profile }) => profile.gender },
  state: { kind: 'text', values: stateCodes, read: ({ profile }) => profile.state },
  seriousIllness: { kind: 'flag', read: ({ profile }) => profile.seriousIllness },
  inCare: { kind: 'flag', read: ({ profile }) => profile.inCare },
  tobacco: { kind: 'flag', read: ({ profile }) => profile.tobacco },

  'ltc.lifetimeCare.relationshipStatus': {
    kind: 'list',
    values: relationshipStatuses,
    read: ({ ltcLifetimeCare }) => ltcLifetimeCare.relationshipStatus,
  },
  'ltc.lifetimeCare.propertyStatus': {
    kind: 'list',
    values: propertyStatuses,
    read: ({ ltcLifetimeCare }) => ltcLifetimeCare.propertyStatus,
  },
  'ltc.lifetimeCare.insuranceCover': {
    kind: 'list',
    values: insuranceCovers,
    read: ({ ltcLifetimeCare }) => ltcLifetimeCare.insuranceCover,
  },
  'ltc.lifetimeCare.careCosts': { kind: 'number', read: ({ ltcLifetimeCare }) => ltcLifetimeCare.careCosts },
  'ltc.lifetimeCare.careSafety': { kind: 'number', read: ({ shared }) => shared.careSafety },
  'ltc.lifetimeCare.policyValue': { kind: 'number', read: ({ ltcLifetimeCare }) => ltcLifetimeCare.policyValue },
  'ltc.lifetimeCare.careFacilityType': {
    kind: 'text',
    values: careFacilityTypes,
    read: ({ shared }) => shared.careFacilityType,
  },
  'ltc.lifetimeCare.facilityLocationPriority': {
    kind: 'text',
    values: facilityLocationPriorities,
    read: ({ shared }) => shared.facilityLocationPriority,
  },
  'ltc.lifetimeCare.leaveFinancialLegacy': {
    kind: 'list',
    read: ({ ltcLifetimeCare }) => ltcLifetimeCare.leaveFinancialLegacy?.selections?.map(({ title }) => title),
  },

  'lifeInsurance.billsAndDebt': {
    kind: 'list',
    values: billsAndDebts,
    read: ({ lifeInsurance }) => lifeInsurance.billsAndDebt,
  },
  'lifeInsurance.financialPriorities': {
    kind: 'list',
    values: financialPriorities,
    read: ({ lifeInsurance }) => lifeInsurance.financialPriorities,
  },
  'lifeInsurance.livingStatus': {
    kind: 'text',
    values: livingStatuses,
    read: ({ lifeInsurance }) => lifeInsurance.livingStatus,
  },
  'lifeInsurance.policySupport': { kind: 'list', read: ({ lifeInsurance }) => titles(lifeInsurance.policySupport) },

  'lifetimeCare.careFacilityType': {
    kind: 'text',
    values: careFacilityTypes,
    read: ({ shared }) => shared.careFacilityType,
  },
  'lifetimeCare.facilityLocationPriority': {
    kind: 'text',
    values: facilityLocationPriorities,
    read: ({ shared }) => shared.facilityLocationPriority,
  },
  'lifetimeCare.careSafety': { kind: 'number', read: ({ shared }) => shared.careSafety },
  'lifetimeCare.familyHistory': {
    kind: 'list',
    values: familyHistories,
    read: ({ lifetimeCare }) => lifetimeCare.familyHistory,
  },
  'lifetimeCare.hobbies': { kind: 'list', read: ({ lifetimeCare }) => titles(lifetimeCare.hobbies) },
} as const satisfies Record<string, FactDefinition>;

export type FactName = keyof typeof factDefinitions;

/** Facts of a user; unknown facts are absent. */
export type Facts = ReadonlyMap<FactName, FactValue>;

/** The facts of a user on a day; without answers there are none. */
export function deriveFacts(answers: Answers | undefined, today: CalendarDate): Facts {
  const sections: Sections = {
    profile: answers?.profile ?? {},
    ltcLifetimeCare: answers?.ltcLifetimeCare ?? {},
    lifeInsurance: answers?.lifeInsurance ?? {},
    lifetimeCare: answers?.lifetimeCare ?? {},
  };
  const shared = sharedAnswers(sections, answers?.newestAnswers ?? {});
  const facts = new Map<FactName, FactValue>();
  for (const [name, { read }] of definitions) {
    const value = read({ ...sections, shared }, today);
    if (value !== undefined) facts.set(name, value);
  }
  return facts;
}

/** Whether the forms ask for a fact. They ask for the location of a facility only if the type of care has one. */
export function isAsked(fact: FactName, facts: Facts): boolean {
  if (!fact.endsWith('.facilityLocationPriority')) return true;
  const careFacilityType = facts.get('lifetimeCare.careFacilityType');
  return typeof careFacilityType !== 'string' || typesWithFacility.has(careFacilityType);
}

/**
 * The newest answer to each shared question: from the section that answered it last, otherwise from the deep dive, which
 * follows the long-term-care flow. A cleared newest answer makes the question unanswered; an older answer does not
 * replace it. The location of a facility counts only if the newest type of care has one.
 */
function sharedAnswers(sections: Sections, newest: NewestAnswers): SharedAnswers {
  const sharing: Readonly<Record<'ltcLifetimeCare' | 'lifetimeCare', SharedAnswers>> = sections;
  const pick = <Question extends SharedQuestion>(question: Question): SharedAnswers[Question] => {
    const section = newest[question];
    return section === undefined
      ? (sharing.lifetimeCare[question] ?? sharing.ltcLifetimeCare[question])
      : sharing[section][question];
  };
  const careFacilityType = pick('careFacilityType');
  return {
    careFacilityType,
    facilityLocationPriority: typesWithFacility.has(careFacilityType ?? '')
      ? pick('facilityLocationPriority')
      : undefined,
    careSafety: pick('careSafety'),
  };
}

/**
 * Body mass index in kg/m², from kilograms and centimetres with at most two decimals each, as whole numbers:
 * (100·kg · 10⁶) / (100·cm)².
 */
function bodyMassIndex(weightKg: number | undefined, heightCm: number | undefined): Ratio | undefined {
  if (weightKg === undefined || heightCm === undefined || heightCm <= 0) return undefined;
  const weightHundredths = Math.round(weightKg * 100);
  const heightHundredths = Math.round(heightCm * 100);
  return { numerator: weightHundredths * 1_000_000, denominator: heightHundredths * heightHundredths };
}

function titles(
  lists:
    | { selections?: { title: string }[] | undefined; customSelections?: { title: string }[] | undefined }
    | undefined,
): string[] | undefined {
  if (lists?.selections === undefined && lists?.customSelections === undefined) return undefined;
  return [...(lists.selections ?? []), ...(lists.customSelections ?? [])].map(({ title }) => title);
}

export const factNames = Object.keys(factDefinitions).filter(isFactName);

const definitions: readonly [FactName, FactDefinition][] = factNames.map((name) => [name, factDefinitions[name]]);

function isFactName(name: string): name is FactName {
  return Object.hasOwn(factDefinitions, name);
}
