import * as v from 'valibot';
import { LifeInsurance, LifetimeCare } from '../deep-dives/model';
import { LtcLifetimeCare } from '../ltc/model';
import { Profile } from './model';

/** The sections that people answer: each is one column, and merges on its own. */
export type AnswerSection = 'profile' | 'ltcLifetimeCare' | 'lifeInsurance' | 'lifetimeCare';

/** The answers of a record; null for a section that holds none. */
export type Answers = { readonly [Section in AnswerSection]: v.InferOutput<(typeof answerSections)[Section]> | null };

const answerSections = {
  profile: Profile,
  ltcLifetimeCare: LtcLifetimeCare,
  lifeInsurance: LifeInsurance,
  lifetimeCare: LifetimeCare,
} as const satisfies Record<AnswerSection, v.GenericSchema>;

/** The answers that are stored in a record as JSON. */
export function parseAnswers(stored: Readonly<Record<AnswerSection, string | null>>): Answers {
  const parse = <Section extends AnswerSection>(section: Section) => {
    const json = stored[section];
    return json === null ? null : v.parse(answerSections[section], JSON.parse(json));
  };
  return {
    profile: parse('profile'),
    ltcLifetimeCare: parse('ltcLifetimeCare'),
    lifeInsurance: parse('lifeInsurance'),
    lifetimeCare: parse('lifetimeCare'),
  };
}
