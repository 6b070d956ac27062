import { createHash } from 'node:crypto';
import { asc, desc, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { cemeteries } from '../../db/schema';
import type { CemeteryRow } from '../../db/schema/cemeteries';
import { member, type UpsertCounts, upsertRows } from '../../db/upsert';
import type { CemeteryQuery, CemeteryRecord } from './model';

const contentColumns = ['externalId', 'name', 'sortName', 'street', 'city', 'state', 'zip'] as const;

export function createCemeteryStore(db: Database) {
  return {
    /** One page, and how many cemeteries there are in all. */
    async listPage({ page, limit, sort }: CemeteryQuery): Promise<{ rows: CemeteryRow[]; count: number }> {
      const direction = sort === 'asc' ? asc : desc;
      const found = await db
        .select({ row: cemeteries, count: sql<number>`(SELECT count(*) FROM cemeteries)` })
        .from(cemeteries)
        .orderBy(direction(cemeteries.sortName), direction(cemeteries.id))
        .limit(limit)
        .offset(Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER));
      return { rows: found.map(({ row }) => row), count: found[0]?.count ?? (await db.$count(cemeteries)) };
    },

    /** Adds or changes the records; one that is the same already is left alone, and with `keepsStored` every one. */
    upsert: (
      records: readonly CemeteryRecord[],
      { createdBy, now, keepsStored = false }: { createdBy: string; now: Date; keepsStored?: boolean },
    ): Promise<UpsertCounts> =>
      upsertRows(db, {
        table: cemeteries,
        key: 'externalId',
        content: Object.fromEntries(contentColumns.map((column) => [column, member(column)])),
        origin: { id: member('id'), createdBy: sql`${createdBy}` },
        records: records.map((record) => ({
          ...record,
          id: cemeteryId(record.externalId),
          sortName: record.name.toLowerCase(),
        })),
        keepsStored,
        now,
      }),
  };
}

/** 24 hex digits that are the same for the same source on every database. */
function cemeteryId(externalId: string): string {
  return createHash('sha256').update(externalId).digest('hex').slice(0, 24);
}
