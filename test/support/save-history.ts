import { Database as SqliteDatabase } from 'bun:sqlite';
import type { Answer } from './app';

/**
 * What a service acknowledged, to compare with the history that its database has: the last values alone do not show a
 * lost save that a later one has overwritten.
 */
export function createSaveHistory() {
  const acknowledged: { userId: string; requestId: string; version: number }[] = [];
  return {
    acknowledged,

    /** @param answer to a save that changed one section */
    note(userId: string, { headers }: Answer): void {
      const version = Number(/^"-?\d+-(\d+)-/.exec(headers.get('etag') ?? '')?.[1]);
      acknowledged.push({ userId, requestId: headers.get('x-request-id') ?? '', version });
    },

    /** What a database file is wrong in: each version has one event, and each acknowledged save is that of its version. */
    faultsOf(path: string): string[] {
      const database = new SqliteDatabase(path, { readonly: true });
      try {
        const versions = database.query<{ id: string; version: number }, []>('SELECT id, version FROM users').all();
        const events = database
          .query<{ userId: string; requestId: string }, []>(
            `SELECT user_id AS userId, request_id AS requestId FROM audit_events WHERE action = 'saved' ORDER BY id`,
          )
          .all();
        const history = Map.groupBy(events, ({ userId }) => userId);
        const gaps = versions.filter(({ id, version }) => history.get(id)?.length !== version);
        const lost = acknowledged.filter(
          ({ userId, requestId, version }) => history.get(userId)?.[version - 1]?.requestId !== requestId,
        );
        return [
          ...gaps.map(({ id, version }) => `${id} has version ${version}, and ${history.get(id)?.length} events`),
          ...lost.map(({ userId, requestId, version }) => `${requestId}, version ${version} of ${userId}, is lost`),
        ];
      } finally {
        database.close();
      }
    },
  };
}
