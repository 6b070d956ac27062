import * as v from 'valibot';
import { Count, list, text } from './fields';

/**
 * What the sections of answers share. Requests and stored records have one list of values each; when a value is
 * retired, split the list: the stored one keeps it, since every record ever written must remain readable.
 */
export const careFacilityTypes = ['inHome', 'independentLiving', 'assistedLiving', 'nursingHome', 'notSure'] as const;
export const facilityLocationPriorities = ['nearfamily', 'affordable', 'premiumFacility', 'noPreference'] as const;

/** The questions that the long-term-care flow and the lifetime-care deep dive both ask, under one name. */
export const sharedQuestions = ['careFacilityType', 'facilityLocationPriority', 'careSafety'] as const;
export type SharedQuestion = (typeof sharedQuestions)[number];

/** The types of care at which the forms go on to ask for `facilityLocationPriority`: care at home has no facility. */
export const typesWithFacility: ReadonlySet<string> = new Set(careFacilityTypes.filter((type) => type !== 'inHome'));

const title = text(200);

/** An option of a reference list as it was chosen. */
export const SelectionItem = v.strictObject({ id: Count, title });
/** Something the person typed in. */
export const CustomSelection = v.strictObject({ title });
/** Either: one with an `id` is an option of a list, one without was typed in. */
const AnySelection = v.strictObject({ id: v.optional(Count), title });
type AnySelection = v.InferOutput<typeof AnySelection>;

/** Both lists in one array, as the contract's parameter tables name it. */
export const AnySelections = v.nullish(
  v.pipe(
    list(AnySelection),
    v.description('Both lists in one: items with an `id` are selections, the others custom selections'),
  ),
);

/** The two lists as fields of their own, as the contract's examples send them. */
export function selectionListFields(storedAs: string) {
  return {
    selections: v.nullish(v.pipe(list(SelectionItem), v.description(`Stored as ${storedAs}.selections`))),
    customSelections: v.nullish(v.pipe(list(CustomSelection), v.description(`Stored as ${storedAs}.customSelections`))),
  };
}

/** Selections as they were stored, without today's bounds. */
export const StoredSelection = v.object({ id: v.number(), title: v.string() });
const StoredCustomSelection = v.object({ title: v.string() });
export const StoredSelectionLists = v.object({
  selections: v.optional(v.array(StoredSelection)),
  customSelections: v.optional(v.array(StoredCustomSelection)),
});

type SelectionLists = {
  selections?: v.InferOutput<typeof SelectionItem>[] | null | undefined;
  customSelections?: v.InferOutput<typeof CustomSelection>[] | null | undefined;
};

/**
 * The merge patch for a pair of selection lists that may come as one array, as two fields, or as both. The array
 * (or null) sets both lists; an explicit field wins for its own list. Undefined when nothing was sent.
 */
export function selectionListsPatch(
  together: readonly AnySelection[] | null | undefined,
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

function splitSelections(together: readonly AnySelection[] | null | undefined): SelectionLists {
  if (together === undefined) return {};
  if (together === null) return { selections: null, customSelections: null };
  return {
    selections: together.flatMap(({ id, title }) => (id === undefined ? [] : [{ id, title }])),
    customSelections: together.flatMap(({ id, title }) => (id === undefined ? [{ title }] : [])),
  };
}
