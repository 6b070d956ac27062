import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import { users } from '../../db/schema';
import { randomRevision } from '../../db/schema/users';
import type { RequestId } from '../audit/store';
import type { AnswerSection } from './answers';

/** An RFC 7396 merge patch: a key that is absent or undefined stays as it is, null clears it, a list is replaced. */
export type MergePatch = Readonly<Record<string, unknown>>;

/** A clock that was set back must not make a record look older than it was, or than its own beginning. */
export function laterThanStored(now: SQL): SQL {
  return sql`max(${users.updatedAt}, ${now})`;
}

/** What a save changes in a record that exists, when its section becomes `merged`. */
export function changesOf(section: AnswerSection, merged: SQL) {
  const storedNewest = sql`coalesce(${users.newestAnswers}, '{}')`;
  const newest = sql`json_patch(${storedNewest}, ${sql.placeholder('newest')})`;
  const isChanged = sql`(${merged} IS NOT ${users[section]} OR ${newest} <> ${storedNewest})`;
  return {
    [section]: merged,
    newestAnswers: newest,
    ...movedBy(isChanged, sql`${sql.placeholder('now')}`),
    ...changedBy(isChanged),
  };
}

/** The next version of a record, if it changes. */
export function movedBy(isChanged: SQL, now: SQL) {
  return {
    version: sql`${users.version} + ${isChanged}`,
    revision: sql`CASE WHEN ${isChanged} THEN ${randomRevision} ELSE ${users.revision} END`,
    updatedAt: sql`CASE WHEN ${isChanged} THEN ${laterThanStored(now)} ELSE ${users.updatedAt} END`,
  };
}

/** What the database writes into the audit trail, if the record changes. */
export function changedBy(
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

/** What an upsert merges into, read before it, so that `json_patch` runs once and not for every column that moves with it. */
export function storedSection(section: AnswerSection): SQL {
  return sql`coalesce((SELECT ${users[section]} FROM ${users} WHERE ${users.id} = ${sql.placeholder('userId')}), '{}')`;
}

/**
 * `json_patch` gives the same text for the same content, so it also tells whether anything changed. On an insert
 * it must run too: a plain value would keep the nulls that a patch drops. What holds no answer any more is absent:
 * NULL for the section, and no empty object inside it.
 */
export function mergedSection(section: SQL, mayEmpty: readonly string[], onlyEmpty: boolean): SQL {
  let merged = sql`json_patch(${section}, ${sql.placeholder('patch')})`;
  // What is stored goes over the patch again, and not the patch under it, so that the members keep their order.
  if (onlyEmpty) merged = sql`json_patch(${merged}, ${section})`;
  for (const key of mayEmpty) {
    const path = `$.${key}`;
    merged = sql`CASE WHEN json_extract(${merged}, ${path}) = '{}' THEN json_remove(${merged}, ${path}) ELSE ${merged} END`;
  }
  return sql`nullif(${merged}, '{}')`;
}

/** The members of a section that are objects themselves and of which the patch clears a part. */
export function keysThatMayEmpty(patch: MergePatch): string[] {
  return Object.keys(patch).filter((key) => {
    const value = patch[key];
    return typeof value === 'object' && value !== null && Object.values(value).includes(null);
  });
}
