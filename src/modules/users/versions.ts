import { LRUCache } from 'lru-cache';
import type { Database } from '../../db/client';
import type { AppError } from '../../errors';
import { preconditionFailed } from '../../http/response';

/** One version of a user's record. */
export interface RecordVersion {
  /** Epoch milliseconds. */
  readonly createdAt: number;
  readonly version: number;
  /** Random, and another one for each version. */
  readonly revision: string;
}

/**
 * The strong entity tag of a user's record, `"createdAt-version-revision"`. The revision makes it unique among all
 * records, erased records and restored databases. The other two order the versions of one record, for a replica.
 */
export const entityTag = {
  format: ({ createdAt, version, revision }: RecordVersion): string => `"${createdAt}-${version}-${revision}"`,
  parse(tag: string): RecordVersion | undefined {
    const [, createdAt, version, revision] = /^"(0|-?[1-9]\d{0,14})-([1-9]\d{0,14})-([0-9a-f]{16})"$/.exec(tag) ?? [];
    if (createdAt === undefined || version === undefined || revision === undefined) return undefined;
    return { createdAt: Number(createdAt), version: Number(version), revision };
  },
};

/**
 * Whether a record is known to be as new as another version of it. A record that was erased and created again is newer;
 * two revisions of one version, as after a restored backup, have no order.
 */
export function isAtLeast(record: RecordVersion, { createdAt, version, revision }: RecordVersion): boolean {
  if (record.createdAt !== createdAt) return record.createdAt > createdAt;
  return record.version > version || (record.version === version && record.revision === revision);
}

/** @param record as it is now, if there is one */
export function staleRecord(record: RecordVersion | undefined): AppError {
  return preconditionFailed(record && entityTag.format(record));
}

/** A replica has what was written before so many other people were, or is not one to read from. */
const maxPeople = 100_000;

/** By the primary that they were written to, so that no store forgets to tell. */
const written = new WeakMap<Database, LRUCache<string, RecordVersion>>();

/** Notes that this process has written a version of a record. */
export function noteWritten(db: Database, record: { readonly id: string } & RecordVersion): void {
  const { id, createdAt, version, revision } = record;
  const versions = written.get(db);
  const known = versions?.get(id);
  if (known === undefined || !isAtLeast(known, record)) versions?.set(id, { createdAt, version, revision });
}

/** The newest versions that this process has written, by person; begins to keep them. */
export function writtenVersions(db: Database): LRUCache<string, RecordVersion> {
  const kept = written.get(db) ?? new LRUCache<string, RecordVersion>({ max: maxPeople });
  written.set(db, kept);
  return kept;
}
