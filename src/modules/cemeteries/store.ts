import { createHash } from 'node:crypto';
import { asc, desc, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { onFirstUse } from '../../db/first-use';
import { cemeteries, rowCounts } from '../../db/schema';
import type { CemeteryRow } from '../../db/schema/cemeteries';
import { member, type UpsertCounts, upsertRows } from '../../db/upsert';
import type { CemeteryQuery, CemeteryRecord } from './model';

const contentColumns = ['externalId', 'name', 'sortName', 'street', 'city', 'state', 'zip'] as const;

export function createCemeteryStore(db: Database) {
  const count = db.select({ count: rowCounts.rowCount }).from(rowCounts).where(eq(rowCounts.tableName, 'cemeteries'));
  const preparedCount = onFirstUse(() => count.prepare());

  const preparePage = (direction: typeof asc) => {
    const byName = [direction(cemeteries.sortName), direction(cemeteries.id)];
    // What comes before the page is passed over in the index alone, which takes half as long as in the table.
    const ids = db
      .select({ id: cemeteries.id })
      .from(cemeteries)
      .orderBy(...byName)
      .limit(sql.placeholder('limit'))
      .offset(sql.placeholder('offset'));
    return db
      .select({ row: cemeteries, count: sql<number | null>`${count}` })
      .from(cemeteries)
      .where(inArray(cemeteries.id, ids))
      .orderBy(...byName)
      .prepare();
  };
  const pages = { asc: onFirstUse(() => preparePage(asc)), desc: onFirstUse(() => preparePage(desc)) };

  return {
    /** One page, and how many cemeteries there are in all. */
    async listPage({ page, limit, sort }: CemeteryQuery): Promise<{ rows: CemeteryRow[]; count: number }> {
      const offset = Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);
      const found = await pages[sort]().execute({ limit, offset });
      const [counted] = found.length > 0 ? found : await preparedCount().execute();
      if (counted?.count == null) throw new Error('The count of the cemeteries is gone');
      return { rows: found.map(({ row }) => row), count: counted.count };
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
