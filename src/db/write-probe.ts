import { sql } from 'drizzle-orm';
import type { Database } from './client';
import { findDatabaseError } from './errors';

const probedEveryMs = 2_000;
/** How long a caller waits for a probe before it gets the last result. */
const patienceMs = 250;

/**
 * Returns a check whether rows can be written. It resolves with the code of the failure, or undefined. It writes one row,
 * every two seconds at most, because a full or read-only disk shows in no other way.
 *
 * A probe has the time limit of the database. A caller waits for the end of the first probe only.
 */
export function createWriteProbe(db: Database): () => Promise<string | undefined> {
  let probing: Promise<string | undefined> | undefined;
  let begunAtMs = Number.NEGATIVE_INFINITY;
  let last: { readonly code: string | undefined } | undefined;

  const probe = async () => {
    const code = await write().catch((error: unknown) => findDatabaseError(error)?.code ?? 'UNKNOWN');
    last = { code };
    probing = undefined;
    return code;
  };
  const write = async () => {
    await db.run(sql`INSERT INTO leases (name, holder, expires_at) VALUES ('write-probe', '', unixepoch())
      ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at`);
    return undefined;
  };
  return async () => {
    const nowMs = performance.now();
    if (probing === undefined && nowMs - begunAtMs >= probedEveryMs) {
      begunAtMs = nowMs;
      probing = probe();
    }
    if (probing === undefined) return last?.code;
    if (last === undefined) return probing;
    return Promise.race([probing, Bun.sleep(patienceMs).then(() => last?.code)]);
  };
}
