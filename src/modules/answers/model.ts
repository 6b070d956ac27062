import * as v from 'valibot';
import { Amount, Count, fields, list, listOr, oneOrMany, text } from '../../shared/fields';

/**
 * Requests and stored records share the lists of values. When a value is retired, split its list: the stored list keeps
 * the value, because every stored record must stay readable.
 */
export const careFacilityTypes = ['inHome', 'independentLiving', 'assistedLiving', 'nursingHome', 'notSure'] as const;
export const facilityLocationPriorities = ['nearfamily', 'affordable', 'premiumFacility', 'noPreference'] as const;

/** Questions of both the long-term-care flow and the lifetime-care deep dive. */
export const sharedQuestions = ['careFacilityType', 'facilityLocationPriority', 'careSafety'] as const;
export type SharedQuestion = (typeof sharedQuestions)[number];

const sharedDescription =
  'The long-term-care step and the lifetime-care deep dive both ask this question; matching uses the newest answer. If ' +
  'the newest answer is cleared, the question is unanswered until either endpoint answers it again';

/** The fields of the shared questions in requests. */
const sharedFields = {
  careFacilityType: v.nullish(v.pipe(v.picklist(careFacilityTypes), v.description(sharedDescription))),
  facilityLocationPriority: v.nullish(v.pipe(v.picklist(facilityLocationPriorities), v.description(sharedDescription))),
  careSafety: v.nullish(v.pipe(Amount, v.description(`Rounded to two decimals. ${sharedDescription}`))),
} as const satisfies Record<SharedQuestion, v.GenericSchema>;

/** Types of care for which the forms ask `facilityLocationPriority`. Care at home has no facility. */
export const typesWithFacility: ReadonlySet<string> = new Set(careFacilityTypes.filter((type) => type !== 'inHome'));

const title = text(200);

/** A chosen option of a reference list. */
export const SelectionItem = fields({ id: Count, title });
/** An option that the person typed in. */
export const CustomSelection = fields({ title });
/** With `id` a chosen option of a list, without it one that the person typed in. */
const AnySelection = fields({ id: v.optional(Count), title });

const Selections = v.pipe(
  list(SelectionItem),
  v.description('At most 100 as sent; items with the same `id` and `title` are stored once'),
);
const CustomSelections = v.pipe(
  list(CustomSelection),
  v.description('At most 100 as sent; items with the same `title` are stored once'),
);

/** Both lists as one array, as in the contract's parameter tables, or as the stored object. */
const AnySelections = v.nullish(
  v.pipe(
    listOr(
      list(AnySelection),
      fields({ selections: v.nullish(Selections), customSelections: v.nullish(CustomSelections) }),
      (value) => typeof value === 'object' && !Array.isArray(value),
    ),
    v.description(
      'Both lists in one array: items with an `id` are selections, the others custom selections. Or an object with the ' +
        'two lists, as stored: a list that is left out does not change',
    ),
  ),
);
type AnySelections = v.InferOutput<typeof AnySelections>;

/** The two lists as separate fields, as in the contract's examples. */
function selectionListFields(storedAs: string) {
  const at = (name: string) => `Stored as ${storedAs}.${name}; takes precedence over the list in ${storedAs}`;
  return {
    selections: v.nullish(v.pipe(Selections, v.description(at('selections')))),
    customSelections: v.nullish(v.pipe(CustomSelections, v.description(at('customSelections')))),
  };
}

/** Stored selections. The bounds of requests do not apply. */
const StoredSelection = v.object({ id: v.number(), title: v.string() });
const StoredCustomSelection = v.object({ title: v.string() });
/** An earlier version that still runs during an upgrade may store one list; the next save adds the other. */
const StoredSelectionLists = v.pipe(
  v.object({
    selections: v.optional(v.array(StoredSelection)),
    customSelections: v.optional(v.array(StoredCustomSelection)),
  }),
  v.description('Both lists, unless an earlier version of the service saved the section last'),
);

type SelectionLists = {
  selections?: v.InferOutput<typeof SelectionItem>[] | null | undefined;
  customSelections?: v.InferOutput<typeof CustomSelection>[] | null | undefined;
};

/**
 * Returns the merge patch of a pair of selection lists; undefined if neither was sent. An array or null sets both lists.
 * A separate field takes precedence for its list.
 */
function selectionListsPatch(
  together: AnySelections,
  { selections, customSelections }: SelectionLists,
): SelectionLists | null | undefined {
  const patch: SelectionLists = {
    ...splitSelections(together),
    ...(selections === undefined ? {} : { selections }),
    ...(customSelections === undefined ? {} : { customSelections }),
  };
  if (Object.keys(patch).length === 0) return undefined;
  return patch.selections === null && patch.customSelections === null ? null : patch;
}

function splitSelections(together: AnySelections): SelectionLists {
  if (together === undefined) return {};
  if (together === null) return { selections: null, customSelections: null };
  if (!Array.isArray(together)) return together;
  return {
    selections: together.flatMap(({ id, title }) => (id === undefined ? [] : [{ id, title }])),
    customSelections: together.flatMap(({ id, title }) => (id === undefined ? [{ title }] : [])),
  };
}

export const relationshipStatuses = ['married', 'divorced', 'dating', 'flySolo'] as const;
export const propertyStatuses = ['ownOutRight', 'ownedByBank', 'iRent'] as const;
export const insuranceCovers = [
  'payingFuneral',
  'unpaidBills',
  'replaceMyIncome',
  'leavingForFamily',
  'donation',
] as const;

/** A request of the lifetime-care step of the long-term-care flow. */
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

/** `user.ltc.lifetimeCare`. Bounds of requests do not apply: every stored value stays readable. */
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

export function toLtcLifetimeCarePatch({ leaveFinancialLegacy, ...sent }: LtcLifetimeCareAnswers) {
  const { selections = leaveFinancialLegacy === null ? null : leaveFinancialLegacy?.selections, ...answers } = sent;
  if (selections === undefined) return answers;
  return { ...answers, leaveFinancialLegacy: selections === null ? null : { selections } };
}

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

/** A request of the life-insurance deep dive. */
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

/** `user.lifeInsurance`. Bounds of requests do not apply: every stored value stays readable. */
export const LifeInsurance = v.object({
  billsAndDebt: v.optional(v.array(v.picklist(billsAndDebts))),
  financialPriorities: v.optional(v.array(v.picklist(financialPriorities))),
  livingStatus: v.optional(v.picklist(livingStatuses)),
  policySupport: v.optional(StoredSelectionLists),
});
export type LifeInsurance = v.InferOutput<typeof LifeInsurance>;

export function toLifeInsurancePatch(sent: LifeInsuranceAnswers) {
  const { policySupport, selections, customSelections, ...answers } = sent;
  return { ...answers, policySupport: selectionListsPatch(policySupport, { selections, customSelections }) };
}

/** A request of the lifetime-care deep dive. */
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

/** `user.lifetimeCare`. Bounds of requests do not apply: every stored value stays readable. */
export const LifetimeCare = v.object({
  careFacilityType: v.optional(v.picklist(careFacilityTypes)),
  careSafety: v.optional(v.number()),
  facilityLocationPriority: v.optional(v.picklist(facilityLocationPriorities)),
  familyHistory: v.optional(v.array(v.picklist(familyHistories))),
  hobbies: v.optional(StoredSelectionLists),
});
export type LifetimeCare = v.InferOutput<typeof LifetimeCare>;

export function toLifetimeCarePatch(sent: LifetimeCareAnswers) {
  const { hobbies, selections, customSelections, ...answers } = sent;
  return { ...answers, hobbies: selectionListsPatch(hobbies, { selections, customSelections }) };
}
