import { LRUCache } from 'lru-cache';
import type { Database } from '../../db/client';
import { isAtLeast, type RecordVersion } from './entity-tag';

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
