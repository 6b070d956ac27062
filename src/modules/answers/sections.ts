import * as v from 'valibot';
import type { CalendarDate } from '../../shared/calendar';
import { Profile, profileAnswers, profileExamples } from '../users/model';
import {
  LifeInsurance,
  LifeInsuranceAnswers,
  LifetimeCare,
  LifetimeCareAnswers,
  LtcLifetimeCare,
  LtcLifetimeCareAnswers,
  lifeInsuranceExamples,
  lifetimeCareExamples,
  ltcLifetimeCareExamples,
  type SharedQuestion,
  sharedQuestions,
  toLifeInsurancePatch,
  toLifetimeCarePatch,
  toLtcLifetimeCarePatch,
} from './model';

/** The sections of answers. Each is one column of `users`, and merges by itself. */
export type AnswerSection = 'profile' | 'ltcLifetimeCare' | 'lifeInsurance' | 'lifetimeCare';

/** An RFC 7396 merge patch: a key that is absent or undefined stays as it is, null clears it, a list is replaced. */
export type MergePatch = Readonly<Record<string, unknown>>;

interface SectionDefinition {
  readonly section: AnswerSection;
  /** The schema of a request; ages and past dates depend on the day. */
  readonly request: (today: () => CalendarDate) => v.GenericSchema;
  readonly stored: v.GenericSchema;
  /** Returns the merge patch of a request. */
  readonly toPatch: (answers: never) => MergePatch;
  readonly examples: Readonly<Record<string, object>>;
  readonly listPair?: string;
}

/** One row for each section: its column, its schemas, the merge patch of a request, and the documented examples. */
export const answerSections = {
  profile: {
    section: 'profile',
    request: profileAnswers,
    stored: Profile,
    toPatch: (answers: v.InferOutput<ReturnType<typeof profileAnswers>>): MergePatch => answers,
    examples: profileExamples,
  },
  ltcLifetimeCare: {
    section: 'ltcLifetimeCare',
    request: () => LtcLifetimeCareAnswers,
    stored: LtcLifetimeCare,
    toPatch: toLtcLifetimeCarePatch,
    examples: ltcLifetimeCareExamples,
  },
  lifeInsurance: {
    section: 'lifeInsurance',
    request: () => LifeInsuranceAnswers,
    stored: LifeInsurance,
    toPatch: toLifeInsurancePatch,
    examples: lifeInsuranceExamples,
    listPair: 'policySupport',
  },
  lifetimeCare: {
    section: 'lifetimeCare',
    request: () => LifetimeCareAnswers,
    stored: LifetimeCare,
    toPatch: toLifetimeCarePatch,
    examples: lifetimeCareExamples,
    listPair: 'hobbies',
  },
} as const satisfies Record<AnswerSection, SectionDefinition>;

/** The member of a section that holds a pair of selection lists, if it has one. */
export function listPairOf(section: AnswerSection): string | undefined {
  const { listPair }: SectionDefinition = answerSections[section];
  return listPair;
}

/** The answers of a record; null for a section without answers. */
export type Answers = {
  readonly [Section in AnswerSection]: v.InferOutput<(typeof answerSections)[Section]['stored']> | null;
} & { readonly newestAnswers?: NewestAnswers };

/** The section that answered each shared question last. */
export type NewestAnswers = Readonly<Partial<Record<SharedQuestion, SharingSection | undefined>>>;
type SharingSection = (typeof sharingSections)[number];
const sharingSections = ['ltcLifetimeCare', 'lifetimeCare'] as const satisfies AnswerSection[];
const Newest = v.fallback(v.optional(v.picklist(sharingSections)), undefined);
const NewestAnswers = v.object({ careFacilityType: Newest, facilityLocationPriority: Newest, careSafety: Newest });

/** Parses the JSON columns of a record. */
export function parseAnswers(stored: Readonly<Record<AnswerSection | 'newestAnswers', string | null>>): Answers {
  const parse = <Schema extends v.GenericSchema>(schema: Schema, json: string | null) =>
    json === null ? null : v.parse(schema, JSON.parse(json));
  return {
    profile: parse(Profile, stored.profile),
    ltcLifetimeCare: parse(LtcLifetimeCare, stored.ltcLifetimeCare),
    lifeInsurance: parse(LifeInsurance, stored.lifeInsurance),
    lifetimeCare: parse(LifetimeCare, stored.lifetimeCare),
    newestAnswers: v.parse(NewestAnswers, JSON.parse(stored.newestAnswers ?? '{}')),
  };
}

/** Whether another section asks questions of this section too. */
export function sharesQuestions(section: AnswerSection): section is SharingSection {
  return sharingSections.some((each) => each === section);
}

/** The shared questions that a patch answers. A cleared answer is not an answer. */
export function newestAnswersOf(section: AnswerSection, patch: MergePatch): NewestAnswers {
  if (!sharesQuestions(section)) return {};
  const answered = sharedQuestions.filter((question) => patch[question] !== undefined && patch[question] !== null);
  return Object.fromEntries(answered.map((question) => [question, section]));
}
