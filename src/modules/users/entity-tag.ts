import type { AppError } from '../../errors';
import { preconditionFailed } from '../../http/entity-tag';

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
