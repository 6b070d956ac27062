import * as v from 'valibot';
import {
  AnySelections,
  careFacilityTypes,
  facilityLocationPriorities,
  StoredSelectionLists,
  selectionListFields,
  selectionListsPatch,
  sharedFields,
} from '../../answers';
import { fields, list } from '../../fields';

export const financialPriorities = [
  'payingFuneral',
  'unpaidBills',
  'payingEstateTaxes',
  'leavingForKids',
  'donation',
] as const;
export const livingStatuses = ['stayHome', 'upgrade', 'downsize', 'rent'] as const;
export const billsAndDebts = ['medical', 'mortgage', 'cc', 'auto', 'other'] as const;
export const familyHistories = ['stroke', 'cancer', 'dementia', 'parkinson', 'osteoarthritis'] as const;

/** The life-insurance deep dive, as a frontend sends it. */
export const LifeInsuranceAnswers = fields({
  policySupport: AnySelections,
  ...selectionListFields('policySupport'),
  financialPriorities: v.nullish(list(v.picklist(financialPriorities))),
  livingStatus: v.nullish(v.picklist(livingStatuses)),
  billsAndDebt: v.nullish(list(v.picklist(billsAndDebts))),
});
export type LifeInsuranceAnswers = v.InferOutput<typeof LifeInsuranceAnswers>;

export const lifeInsuranceExamples = {
  'two lists': {
    selections: [{ id: 1, title: 'My spouse' }],
    customSelections: [{ title: 'My niece' }],
    financialPriorities: ['payingFuneral', 'leavingForKids'],
    livingStatus: 'stayHome',
    billsAndDebt: ['mortgage', 'cc'],
  },
  'one array': {
    policySupport: [{ id: 1, title: 'My spouse' }, { title: 'My niece' }],
    financialPriorities: ['unpaidBills', 'payingEstateTaxes', 'donation'],
    livingStatus: 'downsize',
    billsAndDebt: ['medical', 'auto', 'other'],
  },
} satisfies Record<string, v.InferInput<typeof LifeInsuranceAnswers>>;

/** `user.lifeInsurance`. Bounds of requests do not apply: whatever was stored stays readable. */
export const LifeInsurance = v.object({
  billsAndDebt: v.optional(v.array(v.picklist(billsAndDebts))),
  financialPriorities: v.optional(v.array(v.picklist(financialPriorities))),
  livingStatus: v.optional(v.picklist(livingStatuses)),
  policySupport: v.optional(StoredSelectionLists),
});
export type LifeInsurance = v.InferOutput<typeof LifeInsurance>;

/** The merge patch that these answers make. */
export function toLifeInsurancePatch(sent: LifeInsuranceAnswers) {
  const { policySupport, selections, customSelections, ...answers } = sent;
  return { ...answers, policySupport: selectionListsPatch(policySupport, { selections, customSelections }) };
}

/** The lifetime-care deep dive, as a frontend sends it. */
export const LifetimeCareAnswers = fields({
  hobbies: AnySelections,
  ...selectionListFields('hobbies'),
  careFacilityType: sharedFields.careFacilityType,
  facilityLocationPriority: sharedFields.facilityLocationPriority,
  familyHistory: v.nullish(list(v.picklist(familyHistories))),
  careSafety: sharedFields.careSafety,
});
export type LifetimeCareAnswers = v.InferOutput<typeof LifetimeCareAnswers>;

export const lifetimeCareExamples = {
  'two lists': {
    selections: [{ id: 0, title: 'Gardening' }],
    customSelections: [{ title: 'Restoring radios' }],
    careFacilityType: 'assistedLiving',
    facilityLocationPriority: 'affordable',
    familyHistory: ['stroke', 'dementia'],
    careSafety: 3,
  },
  'one array': {
    hobbies: [{ id: 0, title: 'Gardening' }, { title: 'Restoring radios' }],
    careFacilityType: 'independentLiving',
    facilityLocationPriority: 'premiumFacility',
    familyHistory: ['cancer', 'parkinson', 'osteoarthritis'],
  },
} satisfies Record<string, v.InferInput<typeof LifetimeCareAnswers>>;

/** `user.lifetimeCare`. Bounds of requests do not apply: whatever was stored stays readable. */
export const LifetimeCare = v.object({
  careFacilityType: v.optional(v.picklist(careFacilityTypes)),
  careSafety: v.optional(v.number()),
  facilityLocationPriority: v.optional(v.picklist(facilityLocationPriorities)),
  familyHistory: v.optional(v.array(v.picklist(familyHistories))),
  hobbies: v.optional(StoredSelectionLists),
});
export type LifetimeCare = v.InferOutput<typeof LifetimeCare>;

/** The merge patch that these answers make. */
export function toLifetimeCarePatch(sent: LifetimeCareAnswers) {
  const { hobbies, selections, customSelections, ...answers } = sent;
  return { ...answers, hobbies: selectionListsPatch(hobbies, { selections, customSelections }) };
}
