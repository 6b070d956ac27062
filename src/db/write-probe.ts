import { sql } from 'drizzle-orm';
import type { Database } from './client';
import { beforeDeadline } from './deadline';
import { findDatabaseError } from './errors';

const probedEveryMs = 2_000;
/** How long whoever watches waits; a probe that is under way goes on. */
const patienceMs = 250;

/**
 * Tells why nothing can be written right now, by the code of the failure; undefined when it can. It writes, since a full
 * or read-only disk shows in no other way: one row, every few seconds at most, however many ask.
 */
export function createWriteProbe(db: Database): () => Promise<string | undefined> {
  let probing: Promise<string | undefined> | undefined;
  let probedAtMs = Number.NEGATIVE_INFINITY;

  const probe = async () => {
    try {
      await db.run(sql`INSERT INTO leases (name, holder, expires_at) VALUES ('write-probe', '', unixepoch())
        ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at`);
      return undefined;
    } catch (error) {
      return codeOf(error);
    }
  };
  return () => {
    if (probing === undefined || performance.now() - probedAtMs >= probedEveryMs) {
      probedAtMs = performance.now();
      probing = probe();
    }
    return beforeDeadline(probing, patienceMs).catch(codeOf);
  };
}

function codeOf(error: unknown): string {
  return findDatabaseError(error)?.code ?? 'UNKNOWN';
}
