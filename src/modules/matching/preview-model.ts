import * as v from 'valibot';
import type { CalendarDate } from '../../calendar';
import { fields } from '../../fields';
import {
  LifeInsuranceAnswers,
  LifetimeCareAnswers,
  toLifeInsurancePatch,
  toLifetimeCarePatch,
} from '../deep-dives/model';
import { LtcLifetimeCareAnswers, toLtcLifetimeCarePatch } from '../ltc/model';
import { profileAnswers } from '../users/model';
import type { AnswerPatches } from '../users/store';
import { Matches } from './model';

/** What if: each member is the body of the endpoint that would save it. */
export function previewAnswers(today: () => CalendarDate) {
  return fields({
    profile: v.optional(profileAnswers(today)),
    ltc: v.optional(LtcLifetimeCareAnswers),
    lifeInsurance: v.optional(LifeInsuranceAnswers),
    lifetimeCare: v.optional(LifetimeCareAnswers),
  });
}
export type PreviewAnswers = v.InferOutput<ReturnType<typeof previewAnswers>>;

export const previewExamples = {
  'what if care cost more': { ltc: { careCosts: 9000 }, profile: { seriousIllness: true } },
} satisfies Record<string, v.InferInput<ReturnType<typeof previewAnswers>>>;

export const PreviewBody = v.object({ data: v.object({ matches: Matches }) });

/** The merge patches that these answers would make. */
export function toPatches({ profile, ltc, lifeInsurance, lifetimeCare }: PreviewAnswers): AnswerPatches {
  return {
    ...(profile && { profile }),
    ...(ltc && { ltcLifetimeCare: toLtcLifetimeCarePatch(ltc) }),
    ...(lifeInsurance && { lifeInsurance: toLifeInsurancePatch(lifeInsurance) }),
    ...(lifetimeCare && { lifetimeCare: toLifetimeCarePatch(lifetimeCare) }),
  };
}
