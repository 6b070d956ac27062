import * as v from 'valibot';
import {
  careFacilityTypes,
  facilityLocationPriorities,
  Selections,
  StoredSelection,
  sharedFields,
} from '../../answers';
import { Amount, fields, list, oneOrMany } from '../../fields';

export const relationshipStatuses = ['married', 'divorced', 'dating', 'flySolo'] as const;
export const propertyStatuses = ['ownOutRight', 'ownedByBank', 'iRent'] as const;
export const insuranceCovers = [
  'payingFuneral',
  'unpaidBills',
  'replaceMyIncome',
  'leavingForFamily',
  'donation',
] as const;

/** The lifetime-care step of the long-term-care flow, as a frontend sends it. */
export const LtcLifetimeCareAnswers = fields({
  careFacilityType: sharedFields.careFacilityType,
  facilityLocationPriority: sharedFields.facilityLocationPriority,
  relationshipStatus: v.nullish(oneOrMany(relationshipStatuses)),
  propertyStatus: v.nullish(oneOrMany(propertyStatuses)),
  careSafety: sharedFields.careSafety,
  careCosts: v.nullish(Amount),
  policyValue: v.nullish(
    v.pipe(Amount, v.description('The amount that the person sets aside; rounded to two decimals')),
  ),
  insuranceCover: v.nullish(list(v.picklist(insuranceCovers))),
  selections: v.nullish(
    v.pipe(
      Selections,
      v.description(
        'The legacy that the person wants to leave; takes precedence over the list in leaveFinancialLegacy',
      ),
    ),
  ),
  leaveFinancialLegacy: v.nullish(
    v.pipe(fields({ selections: v.nullish(Selections) }), v.description('The stored form')),
  ),
});
export type LtcLifetimeCareAnswers = v.InferOutput<typeof LtcLifetimeCareAnswers>;

export const ltcLifetimeCareExamples = {
  'single strings': {
    careFacilityType: 'inHome',
    facilityLocationPriority: 'nearfamily',
    relationshipStatus: 'married',
    propertyStatus: 'ownOutRight',
    careCosts: 4500,
    policyValue: 250000,
    insuranceCover: ['payingFuneral', 'leavingForFamily'],
    selections: [{ id: 0, title: 'An inheritance for my family' }],
  },
  arrays: {
    careFacilityType: 'notSure',
    facilityLocationPriority: 'noPreference',
    relationshipStatus: ['divorced', 'dating'],
    propertyStatus: ['iRent'],
    careSafety: 3,
    policyValue: 0,
    insuranceCover: ['unpaidBills', 'replaceMyIncome', 'donation'],
    selections: [],
  },
} satisfies Record<string, v.InferInput<typeof LtcLifetimeCareAnswers>>;

/** `user.ltc.lifetimeCare`. Bounds of requests do not apply: whatever was stored stays readable. */
export const LtcLifetimeCare = v.object({
  leaveFinancialLegacy: v.optional(v.object({ selections: v.optional(v.array(StoredSelection)) })),
  relationshipStatus: v.optional(v.array(v.picklist(relationshipStatuses))),
  propertyStatus: v.optional(v.array(v.picklist(propertyStatuses))),
  insuranceCover: v.optional(v.array(v.picklist(insuranceCovers))),
  careSafety: v.optional(v.number()),
  careCosts: v.optional(v.number()),
  careFacilityType: v.optional(v.picklist(careFacilityTypes)),
  facilityLocationPriority: v.optional(v.picklist(facilityLocationPriorities)),
  policyValue: v.optional(v.number()),
});
export type LtcLifetimeCare = v.InferOutput<typeof LtcLifetimeCare>;

/** The merge patch that these answers make. */
export function toLtcLifetimeCarePatch({ leaveFinancialLegacy, ...sent }: LtcLifetimeCareAnswers) {
  const { selections = leaveFinancialLegacy === null ? null : leaveFinancialLegacy?.selections, ...answers } = sent;
  if (selections === undefined) return answers;
  return { ...answers, leaveFinancialLegacy: selections === null ? null : { selections } };
}
