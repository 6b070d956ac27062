import { type SQL, sql } from 'drizzle-orm';
import { users } from '../../db/schema';
import type { AnswerSection } from './answers';

/** An RFC 7396 merge patch: a key that is absent or undefined stays as it is, null clears it, a list is replaced. */
export type MergePatch = Readonly<Record<string, unknown>>;

interface Merge {
  /** The patch as JSON. */
  readonly patch?: SQL;
  /** Whether the patch clears one of a pair of lists alone. */
  readonly clears: boolean;
  /** Save only the fields that hold no answer. */
  readonly onlyEmpty?: boolean;
}

/** The members that hold two lists of selections, by their section. */
const listPairs: Readonly<Partial<Record<AnswerSection, string>>> = {
  lifeInsurance: 'policySupport',
  lifetimeCare: 'hobbies',
};

/** Whether the patch clears one of a pair of lists alone. */
export function clearsOneList(section: AnswerSection, patch: MergePatch): boolean {
  const pair = patch[listPairs[section] ?? ''];
  return typeof pair === 'object' && pair !== null && Object.values(pair).includes(null);
}

/**
 * A section with a patch merged into it. On an insert `json_patch` must run too: a plain value would keep the nulls that
 * a patch drops. A section that holds no answer any more is NULL.
 */
export function mergedSection(
  section: AnswerSection,
  stored: SQL,
  { patch = sql`${sql.placeholder('patch')}`, clears, onlyEmpty = false }: Merge,
): SQL {
  let merged = sql`json_patch(${stored}, ${patch})`;
  // What is stored goes over the patch again, and not the patch under it, so that the members keep their order.
  if (onlyEmpty) merged = sql`json_patch(${merged}, ${stored})`;
  if (listPairs[section] === undefined) return sql`nullif(${merged}, '{}')`;
  return sql`nullif((SELECT ${withBothLists(section, sql`json`, clears)} FROM (SELECT ${merged} AS json)), '{}')`;
}

/** Whether `merged` differs from what is stored. `json_patch` gives the same text for the same content. */
export function isChangedBy(section: AnswerSection, merged: SQL): SQL {
  return sql`(coalesce(${merged}, '{}') IS NOT coalesce(${answeredSection(section)}, '{}'))`;
}

/** A section as it is answered; NULL, or `{}` in old rows, where it holds nothing. */
export function answeredSection(section: AnswerSection): SQL {
  return withBothLists(section, sql`${users[section]}`, false);
}

/**
 * A section whose pair of lists is whole, as JSON: earlier versions stored one list without the other, or neither. In a
 * text of JSON a quotation mark is escaped, so these keys are found nowhere else. With `clears`, a pair is removed that
 * has only a list without items left. The lists have one order, so that clearing an empty list changes nothing.
 */
function withBothLists(section: AnswerSection, json: SQL, clears: boolean): SQL {
  const pair = listPairs[section];
  if (pair === undefined) return json;
  const emptied = clears ? `'{}', '{"selections":[]}', '{"customSelections":[]}'` : `'{}'`;
  const list = (name: string) =>
    sql`${sql.raw(`'${name}'`)}, json(coalesce(json_extract(${json}, ${sql.raw(`'$.${pair}.${name}'`)}), '[]'))`;
  return sql`CASE WHEN instr(${json}, ${sql.raw(`'"${pair}":'`)}) = 0
      OR (instr(${json}, '"selections":') > 0 AND instr(${json}, '"customSelections":') > 0) THEN ${json}
    WHEN json_extract(${json}, ${sql.raw(`'$.${pair}'`)}) IN (${sql.raw(emptied)})
    THEN json_remove(${json}, ${sql.raw(`'$.${pair}'`)})
    ELSE json_set(${json}, ${sql.raw(`'$.${pair}'`)}, json_object(${list('selections')}, ${list('customSelections')})) END`;
}
