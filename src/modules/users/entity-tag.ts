/** Which state of somebody's record it is. */
export interface RecordVersion {
  /** Epoch milliseconds. */
  readonly createdAt: number;
  readonly version: number;
}

/**
 * The strong entity tag of a user's record. It holds the time of its making beside its version, so that a record
 * that was erased and made again never repeats a tag.
 */
export const entityTag = {
  format: ({ createdAt, version }: RecordVersion): string => `"${createdAt}-${version}"`,
  parse(tag: string): RecordVersion | undefined {
    const match = /^"(\d{1,15})-(\d{1,15})"$/.exec(tag);
    return match === null ? undefined : { createdAt: Number(match[1]), version: Number(match[2]) };
  },
};

/** Whether a record is as new as another version of it; one that was erased and made again is newer. */
export function isAtLeast(record: RecordVersion, { createdAt, version }: RecordVersion): boolean {
  return record.createdAt > createdAt || (record.createdAt === createdAt && record.version >= version);
}
