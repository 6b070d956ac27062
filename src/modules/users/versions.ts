import { LRUCache } from 'lru-cache';
import type { AppError } from '../../errors';
import { preconditionFailed } from '../../http/response';

/** One version of a user's record. */
export interface RecordVersion {
  /** Epoch milliseconds. */
  readonly createdAt: number;
  readonly version: number;
  /** Random, and different for each version. */
  readonly revision: string;
}

/**
 * The strong entity tag of a user's record, `"createdAt-version-revision"`. The revision makes it unique among all
 * records, erased records and restored databases. The other two order the versions of one record, for a replica.
 */
export const entityTag = {
  format: ({ createdAt, version, revision }: RecordVersion): string => `"${createdAt}-${version}-${revision}"`,
  parse(tag: string): RecordVersion | undefined {
    const found = /^"(0|-?[1-9]\d{0,14})-([1-9]\d{0,14})-([0-9a-f]{16})"$/.exec(tag);
    const [, createdAt, version, revision] = found ?? [];
    if (revision === undefined) return undefined;
    return { createdAt: Number(createdAt), version: Number(version), revision };
  },
};

/**
 * Whether a record is known to be as new as another version of it. A record that was erased and created again is newer.
 * Two revisions of one version, as after a restored backup, have no order.
 */
function isAtLeast(record: RecordVersion, { createdAt, version, revision }: RecordVersion): boolean {
  if (record.createdAt !== createdAt) return record.createdAt > createdAt;
  return record.version > version || (record.version === version && record.revision === revision);
}

/** @param record the current record, if it exists */
export function staleRecord(record: RecordVersion | undefined): AppError {
  return preconditionFailed(record && entityTag.format(record));
}

/** Upper bound of tracked users; by the time one is evicted the replica has caught up. */
const maxUsers = 100_000;

/** The newest version of each user's record that this process has written, for read-your-writes with a replica. */
export function createLastWrites() {
  const versions = new LRUCache<string, RecordVersion>({ max: maxUsers });
  return {
    add({ id, createdAt, version, revision }: RecordVersion & { readonly id: string }): void {
      const known = versions.get(id);
      const added = { createdAt, version, revision };
      if (known === undefined || !isAtLeast(known, added)) versions.set(id, added);
    },
    find: (userId: string): RecordVersion | undefined => versions.get(userId),
    remove(userId: string, version: RecordVersion): void {
      if (versions.get(userId) === version) versions.delete(userId);
    },
  };
}
export type LastWrites = ReturnType<typeof createLastWrites>;

type FindRecord<Stored> = (userId: string) => Promise<Stored | undefined>;
export type ReadRecord<Stored> = (userId: string, knownTags: readonly string[]) => Promise<Stored | undefined>;

/**
 * Read-your-writes: reads a record from the replica if it is there and as new as the version that this process has
 * written and as the entity tags that the client knows, otherwise from the primary.
 */
export function createReadRecord<Stored extends RecordVersion>(
  findInPrimary: FindRecord<Stored>,
  findInReplica: FindRecord<Stored>,
  lastWrites: LastWrites,
): ReadRecord<Stored> {
  return async (userId, knownTags) => {
    const own = lastWrites.find(userId);
    const known = knownTags.flatMap((tag) => entityTag.parse(tag) ?? []);
    const needed = own === undefined ? known : [own, ...known];
    const found = await findInReplica(userId).catch(() => undefined);
    if (found !== undefined && needed.every((version) => isAtLeast(found, version))) return found;
    const record = await findInPrimary(userId);
    // Another process has erased the record, or has created it again with a clock that is behind.
    const isGone = own !== undefined && (record === undefined || !isAtLeast(record, own));
    if (isGone) lastWrites.remove(userId, own);
    return record;
  };
}
