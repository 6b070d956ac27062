import type { AppDeps } from '../../deps';
import { entityTag, isAtLeast } from './entity-tag';
import { type AnsweredRecord, createUserStore } from './store';
import { writtenVersions } from './written-versions';

type ReadRecord = (userId: string, knownTags: readonly string[]) => Promise<AnsweredRecord | undefined>;

/**
 * Reads a record from the replica, if it is as new there as what this process has written and as the entity tags that
 * the caller knows, else from the primary. So is a record that the replica does not have.
 */
export function createReadRecord({ db, replica }: Pick<AppDeps, 'db' | 'replica'>): ReadRecord {
  const primary = createUserStore(db);
  if (replica === undefined) return (userId) => primary.find(userId);
  const near = createUserStore(replica);
  const versions = writtenVersions(db);

  return async (userId, knownTags) => {
    const written = versions.get(userId);
    const known = knownTags.flatMap((tag) => entityTag.parse(tag) ?? []);
    const needed = written === undefined ? known : [written, ...known];
    const found = await near.find(userId).catch(() => undefined);
    if (found !== undefined && needed.every((version) => isAtLeast(found, version))) return found;
    const record = await primary.find(userId);
    // Erased by another process, or made again by one whose clock is behind: what was written here is gone.
    const isGone = written !== undefined && (record === undefined || !isAtLeast(record, written));
    if (isGone && versions.get(userId) === written) versions.delete(userId);
    return record;
  };
}
