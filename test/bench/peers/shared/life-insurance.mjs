export const financialPriorities = /** @type {const} */ ([
  'payingFuneral',
  'unpaidBills',
  'payingEstateTaxes',
  'leavingForKids',
  'donation',
]);
export const livingStatuses = /** @type {const} */ (['stayHome', 'upgrade', 'downsize', 'rent']);
export const billsAndDebts = /** @type {const} */ (['medical', 'mortgage', 'cc', 'auto', 'other']);

/** The maximum number of items of any list. */
export const maxItems = 100;
/** The maximum length of a title in UTF-16 units. */
export const maxTitleLength = 200;

/**
 * @typedef {{ id?: number | undefined, title: string }} Selection
 * @typedef {{ selections?: Selection[] | null | undefined, customSelections?: Selection[] | null | undefined }} Lists
 * @typedef {{ policySupport?: Selection[] | null | undefined } & Lists & Record<string, unknown>} LifeInsuranceAnswers
 */

/**
 * The merge patch of validated answers. `policySupport`, as an array or null, sets both lists; a list of its own wins.
 *
 * @param {LifeInsuranceAnswers} sent
 */
export function toLifeInsurancePatch({ policySupport, selections, customSelections, ...answers }) {
  const lists = {
    ...splitSelections(policySupport),
    ...(selections === undefined ? {} : { selections }),
    ...(customSelections === undefined ? {} : { customSelections }),
  };
  return { ...answers, ...(Object.keys(lists).length === 0 ? {} : { policySupport: emptied(lists) ? null : lists }) };
}

/**
 * @param {Selection[] | null | undefined} together
 * @returns {Lists}
 */
function splitSelections(together) {
  if (together === undefined) return {};
  if (together === null) return { selections: null, customSelections: null };
  return {
    selections: together.filter(({ id }) => id !== undefined),
    customSelections: together.filter(({ id }) => id === undefined),
  };
}

/** @param {Lists} lists */
function emptied({ selections, customSelections }) {
  return selections === null && customSelections === null;
}

/**
 * Whether the patch clears one of the two lists, after which `policySupport` may be empty.
 *
 * @param {ReturnType<typeof toLifeInsurancePatch>} patch
 */
export function mayEmptyPolicySupport({ policySupport }) {
  return policySupport?.selections === null || policySupport?.customSelections === null;
}
