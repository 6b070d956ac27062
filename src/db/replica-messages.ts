import { statSync } from 'node:fs';
import * as v from 'valibot';

/** What the process that syncs a replica is told when it starts. */
export const SyncSettings = v.object({
  path: v.string(),
  syncUrl: v.string(),
  authToken: v.optional(v.string()),
  encryptionKey: v.optional(v.string()),
  intervalMs: v.number(),
});
export type SyncSettings = v.InferOutput<typeof SyncSettings>;

/** Why a replica is not brought up to date; 'rebuilt' says that its file could not be continued. */
const replicaFaults = [
  'primary-unreachable',
  'refused',
  'held-by-another-process',
  'rebuilt',
  'not-a-replica',
  'not-encrypted',
  'stalled',
  'process-ended',
  'unknown',
] as const;

/** The report of each try. */
export const SyncReport = v.object({
  kind: v.picklist(['synced', 'failed']),
  reason: v.optional(v.picklist(replicaFaults)),
});
export type SyncReport = v.InferOutput<typeof SyncReport>;

/**
 * The file that says that a replica has been whole once, and by its time when it was synced last. Until then it holds a
 * part of what the primary has, and a reader that opens it too early leaves behind what the driver refuses as a replica
 * for good.
 */
export function syncedMark(path: string): string {
  return `${path}-synced`;
}

/** Which file has a name now; undefined for none. */
export function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}
