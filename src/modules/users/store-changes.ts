import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import { users } from '../../db/schema';
import { randomRevision } from '../../db/schema/users';
import type { RequestId } from '../audit/store';
import type { AnswerSection } from './answers';
import { answeredSection, isChangedBy } from './store-section';

/** A clock that was set back must not make a record look older than it was, or than its own beginning. */
export function laterThanStored(now: SQL): SQL {
  return sql`max(${users.updatedAt}, ${now})`;
}

/** What a save changes in a record that exists, when its section becomes `merged`. */
export function changesOf(section: AnswerSection, merged: SQL) {
  const storedNewest = sql`coalesce(${users.newestAnswers}, '{}')`;
  const newest = sql`json_patch(${storedNewest}, ${sql.placeholder('newest')})`;
  const isSectionChanged = isChangedBy(section, merged);
  const isChanged = sql`(${isSectionChanged} OR ${newest} <> ${storedNewest})`;
  return {
    [section]: sql`CASE WHEN ${isSectionChanged} THEN ${merged} ELSE ${users[section]} END`,
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
  return sql`coalesce((SELECT ${answeredSection(section)} FROM ${users} WHERE ${users.id} = ${sql.placeholder('userId')}), '{}')`;
}
