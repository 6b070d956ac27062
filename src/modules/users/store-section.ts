import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import { randomRevision, users } from '../../db/schema/people';
import { type AnswerSection, listPairOf, type MergePatch, sharesQuestions } from '../answers/sections';
import type { RequestId } from '../audit/store';

interface Merge {
  /** Whether the patch clears one of a pair of lists alone. */
  readonly clears: boolean;
  /** Save only fields without an answer. */
  readonly onlyEmpty?: boolean;
  /** The patch as JSON. */
  readonly patch?: SQL;
  readonly userId?: SQL;
}

/** Whether the patch clears one of a pair of lists alone. */
export function clearsOneList(section: AnswerSection, patch: MergePatch): boolean {
  const pair = patch[listPairOf(section) ?? ''];
  return typeof pair === 'object' && pair !== null && Object.values(pair).includes(null);
}

/**
 * A section with a patch merged into it; NULL without answers. An insert needs `json_patch` too: a plain value would keep
 * the nulls of the patch.
 */
export function mergedSection(
  section: AnswerSection,
  {
    clears,
    onlyEmpty = false,
    patch = sql`${sql.placeholder('patch')}`,
    userId = sql`${sql.placeholder('userId')}`,
  }: Merge,
): SQL {
  const stored = storedJson(section, userId);
  const patched = sql`json_patch(${stored}, ${patch})`;
  // Stored values are merged last so that the members keep their order.
  const merged = onlyEmpty ? sql`json_patch(${patched}, ${stored})` : patched;
  const pair = listPairOf(section);
  if (pair === undefined) return sql`nullif(${merged}, '{}')`;
  return sql`(SELECT nullif(${withBothLists(pair, clears)}, '{}') FROM (SELECT ${merged} AS json))`;
}

/** The section that answered each shared question last, with those of a patch (as JSON) merged in. */
export function mergedNewest(
  newest: SQL = sql`${sql.placeholder('newest')}`,
  userId: SQL = sql`${sql.placeholder('userId')}`,
): SQL {
  return sql`nullif(json_patch(${storedJson('newestAnswers', userId)}, ${newest}), '{}')`;
}

function storedJson(column: AnswerSection | 'newestAnswers', userId: SQL): SQL {
  return sql`coalesce((SELECT ${users[column]} FROM ${users} WHERE ${users.id} = ${userId}), '{}')`;
}

/**
 * The merged section `json` with both lists of a pair. An earlier version stores one list without the other; during an
 * upgrade it may still do so, and the next save adds the other. Quotation marks inside JSON strings are escaped, so
 * `instr` finds keys only. With `clears`, a pair whose last items are cleared is removed. The two lists have one order,
 * so that clearing an empty list changes nothing.
 */
function withBothLists(pair: string, clears: boolean): SQL {
  const emptied = clears ? `'{}', '{"selections":[]}', '{"customSelections":[]}'` : `'{}'`;
  const list = (name: string) => `'${name}', json(coalesce(json_extract(json, '$.${pair}.${name}'), '[]'))`;
  return sql.raw(`CASE WHEN instr(json, '"${pair}":') = 0
      OR (instr(json, '"selections":') > 0 AND instr(json, '"customSelections":') > 0) THEN json
    WHEN json_extract(json, '$.${pair}') IN (${emptied}) THEN json_remove(json, '$.${pair}')
    ELSE json_set(json, '$.${pair}', json_object(${list('selections')}, ${list('customSelections')})) END`);
}

/** The columns of a save with their merged values. */
export function savedColumns(section: AnswerSection, merge: Merge): Readonly<Record<string, SQL>> {
  const merged = { [section]: mergedSection(section, merge) };
  return sharesQuestions(section) ? { ...merged, newestAnswers: mergedNewest() } : merged;
}

/**
 * The record's id and the merged values as a table `saved` of one row. SQLite computes each value once, since the table has
 * no FROM. The update joins the id: with a parameter in its place, SQLite plans the statement at each execution.
 */
export function savedRow(section: AnswerSection, merge: Merge): SQL {
  const { [section]: merged, newestAnswers } = savedColumns(section, merge);
  const newest = newestAnswers && sql`, ${newestAnswers} AS ${nameOf('newestAnswers')}`;
  return sql`(SELECT ${sql.placeholder('userId')} AS id, ${merged} AS ${nameOf(section)}${newest}) AS saved`;
}

/**
 * The changed columns of a save to an existing record.
 *
 * @param source the table that holds the merged values
 */
export function changedColumns(section: AnswerSection, source: 'excluded' | 'saved') {
  const merged = (column: AnswerSection | 'newestAnswers') => sql`${sql.identifier(source)}.${nameOf(column)}`;
  const differs = (column: AnswerSection | 'newestAnswers') => sql`${merged(column)} IS NOT ${users[column]}`;
  const shares = sharesQuestions(section);
  const isChanged = shares ? sql`(${differs(section)} OR ${differs('newestAnswers')})` : sql`(${differs(section)})`;
  return {
    [section]: merged(section),
    ...(shares && { newestAnswers: merged('newestAnswers') }),
    ...versionColumns(isChanged, sql`${sql.placeholder('now')}`),
    ...auditColumns(isChanged),
  };
}

function nameOf(column: AnswerSection | 'newestAnswers') {
  return sql.identifier(users[column].name);
}

/** `updatedAt` never decreases, also when the clock was set back. */
export function laterThanStored(now: SQL): SQL {
  return sql`max(${users.updatedAt}, ${now})`;
}

/** The columns of the next version, if the record changes. */
export function versionColumns(isChanged: SQL, now: SQL) {
  return {
    version: sql`${users.version} + ${isChanged}`,
    revision: sql`CASE WHEN ${isChanged} THEN ${randomRevision} ELSE ${users.revision} END`,
    updatedAt: sql`CASE WHEN ${isChanged} THEN ${laterThanStored(now)} ELSE ${users.updatedAt} END`,
  };
}

/** The columns from which the triggers of the table write the audit event, if the record changes. */
export function auditColumns(
  isChanged: SQL,
  requestId: RequestId | Placeholder = sql.placeholder('requestId'),
  now: number | Placeholder = sql.placeholder('now'),
) {
  return {
    requestId: sql`${requestId}`,
    requestVersion: sql`${users.version} + ${isChanged}`,
    requestedAt: sql`${now}`,
  };
}
