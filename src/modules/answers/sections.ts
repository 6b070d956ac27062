import * as v from 'valibot';
import { Profile } from '../users/model';
import { LifeInsurance, LifetimeCare, LtcLifetimeCare, type SharedQuestion, sharedQuestions } from './model';

/** The sections that people answer: each is one column, and merges on its own. */
export type AnswerSection = 'profile' | 'ltcLifetimeCare' | 'lifeInsurance' | 'lifetimeCare';

/** The answers of a record; null for a section that holds none. */
export type Answers = {
  readonly [Section in AnswerSection]: v.InferOutput<(typeof answerSections)[Section]> | null;
} & { readonly newestAnswers?: NewestAnswers };

/** The section that answered each shared question last. */
export type NewestAnswers = Readonly<Partial<Record<SharedQuestion, SharingSection | undefined>>>;
type SharingSection = (typeof sharingSections)[number];
const sharingSections = ['ltcLifetimeCare', 'lifetimeCare'] as const satisfies AnswerSection[];
const Newest = v.fallback(v.optional(v.picklist(sharingSections)), undefined);
const NewestAnswers = v.object({ careFacilityType: Newest, facilityLocationPriority: Newest, careSafety: Newest });

const answerSections = {
  profile: Profile,
  ltcLifetimeCare: LtcLifetimeCare,
  lifeInsurance: LifeInsurance,
  lifetimeCare: LifetimeCare,
} as const satisfies Record<AnswerSection, v.GenericSchema>;

/** The answers that are stored in a record as JSON. */
export function parseAnswers(stored: Readonly<Record<AnswerSection | 'newestAnswers', string | null>>): Answers {
  const parse = <Section extends AnswerSection>(section: Section) => {
    const json = stored[section];
    return json === null ? null : v.parse(answerSections[section], JSON.parse(json));
  };
  return {
    profile: parse('profile'),
    ltcLifetimeCare: parse('ltcLifetimeCare'),
    lifeInsurance: parse('lifeInsurance'),
    lifetimeCare: parse('lifetimeCare'),
    newestAnswers: v.parse(NewestAnswers, JSON.parse(stored.newestAnswers ?? '{}')),
  };
}

/** Whether a section asks questions that another section asks too. */
export function sharesQuestions(section: AnswerSection): section is SharingSection {
  return sharingSections.some((each) => each === section);
}

/** The shared questions that a patch of a section answers; to clear an answer is not to answer. */
export function newestAnswersOf(section: AnswerSection, patch: Readonly<Record<string, unknown>>): NewestAnswers {
  if (!sharesQuestions(section)) return {};
  const answered = sharedQuestions.filter((question) => patch[question] !== undefined && patch[question] !== null);
  return Object.fromEntries(answered.map((question) => [question, section]));
}
