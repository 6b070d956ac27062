import * as v from 'valibot';
import { Amount, Count, fields, list, listOr, text } from './fields';

/**
 * What the sections of answers share. Requests and stored records have one list of values each; when a value is
 * retired, split the list: the stored one keeps it, since every record ever written must remain readable.
 */
export const careFacilityTypes = ['inHome', 'independentLiving', 'assistedLiving', 'nursingHome', 'notSure'] as const;
export const facilityLocationPriorities = ['nearfamily', 'affordable', 'premiumFacility', 'noPreference'] as const;

/** Questions that the long-term-care flow and the lifetime-care deep dive share. */
export const sharedQuestions = ['careFacilityType', 'facilityLocationPriority', 'careSafety'] as const;
export type SharedQuestion = (typeof sharedQuestions)[number];

const sharedDescription =
  'The long-term-care step and the lifetime-care deep dive both ask this question; matching uses the newest answer. If ' +
  'the newest answer is cleared, the question is unanswered until either endpoint answers it again';

/** Fields of the shared questions, as requests hold them. */
export const sharedFields = {
  careFacilityType: v.nullish(v.pipe(v.picklist(careFacilityTypes), v.description(sharedDescription))),
  facilityLocationPriority: v.nullish(v.pipe(v.picklist(facilityLocationPriorities), v.description(sharedDescription))),
  careSafety: v.nullish(v.pipe(Amount, v.description(`Rounded to two decimals. ${sharedDescription}`))),
} as const satisfies Record<SharedQuestion, v.GenericSchema>;

/** Types of care for which the forms ask `facilityLocationPriority`. Care at home has no facility. */
export const typesWithFacility: ReadonlySet<string> = new Set(careFacilityTypes.filter((type) => type !== 'inHome'));

const title = text(200);

/** An option of a reference list as it was chosen. */
export const SelectionItem = fields({ id: Count, title });
/** Something the person typed in. */
export const CustomSelection = fields({ title });
/** Either: one with an `id` is an option of a list, one without was typed in. */
const AnySelection = fields({ id: v.optional(Count), title });

export const Selections = v.pipe(
  list(SelectionItem),
  v.description('At most 100 as sent; items with the same `id` and `title` are stored once'),
);
const CustomSelections = v.pipe(
  list(CustomSelection),
  v.description('At most 100 as sent; items with the same `title` are stored once'),
);

/** Both lists in one array, as in the contract's parameter tables, or in the stored form. */
export const AnySelections = v.nullish(
  v.pipe(
    listOr(
      list(AnySelection),
      fields({ selections: v.nullish(Selections), customSelections: v.nullish(CustomSelections) }),
      (value) => typeof value === 'object' && !Array.isArray(value),
    ),
    v.description(
      'Both lists in one: items with an `id` are selections, the others custom selections. Or an object with the two ' +
        'lists, as stored: a list that is left out does not change',
    ),
  ),
);
type AnySelections = v.InferOutput<typeof AnySelections>;

/** The two lists as fields of their own, as the contract's examples send them. */
export function selectionListFields(storedAs: string) {
  const at = (name: string) => `Stored as ${storedAs}.${name}; takes precedence over the list in ${storedAs}`;
  return {
    selections: v.nullish(v.pipe(Selections, v.description(at('selections')))),
    customSelections: v.nullish(v.pipe(CustomSelections, v.description(at('customSelections')))),
  };
}

/** Selections as they were stored, without today's bounds. */
export const StoredSelection = v.object({ id: v.number(), title: v.string() });
const StoredCustomSelection = v.object({ title: v.string() });
/** An earlier version that still runs during an upgrade may store one list; the next save adds the other. */
export const StoredSelectionLists = v.pipe(
  v.object({
    selections: v.optional(v.array(StoredSelection)),
    customSelections: v.optional(v.array(StoredCustomSelection)),
  }),
  v.description('Holds both lists, unless an earlier version of the service saved the section last'),
);

type SelectionLists = {
  selections?: v.InferOutput<typeof SelectionItem>[] | null | undefined;
  customSelections?: v.InferOutput<typeof CustomSelection>[] | null | undefined;
};

/**
 * Returns the merge patch for a pair of selection lists, sent as one array, as an object, as two fields, or as fields beside
 * either. The array (or null) sets both lists; an explicit field wins for its own list. Undefined if nothing was sent.
 */
export function selectionListsPatch(
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
