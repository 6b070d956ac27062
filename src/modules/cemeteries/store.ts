import { createHash } from 'node:crypto';
import { and, asc, desc, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { acquireLease, member, UnmetConditionError, type UpsertCounts, upsertRows } from '../../db/queries';
import type { CemeteryRow } from '../../db/schema/lists';
import { cemeteries, rowCounts } from '../../db/schema/lists';
import { leases } from '../../db/schema/people';
import { jitteredPause, lazy } from '../../shared/async';
import { type CemeteryQuery, type CemeteryRecord, isInOrder, keyOf, type PlacedName, placeNames } from './model';

const contentColumns = ['externalId', 'name', 'orderKey', 'street', 'city', 'state', 'zip'] as const;

const orderLease = 'cemetery-order';
const maxAttempts = 50;
const maxBackoffMs = 200;

export function createCemeteryStore(db: Database) {
  const count = db.select({ count: rowCounts.rowCount }).from(rowCounts).where(eq(rowCounts.tableName, 'cemeteries'));
  const preparedCount = lazy(() => count.prepare());

  const preparePage = (direction: typeof asc) => {
    const byName = [direction(cemeteries.orderKey), direction(cemeteries.id)];
    // Skips rows before the page in the index only, which takes half as long as in the table.
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
  const pages = { asc: lazy(() => preparePage(asc)), desc: lazy(() => preparePage(desc)) };

  // A key lies between those of its neighbours, so a writer must read all names. It takes the lease before it reads them.
  // Each write checks that the lease is still held, because another writer may take it at any time.
  const holder = crypto.randomUUID();
  let order: readonly PlacedName[] | undefined;
  const isOrderOurs = sql`EXISTS (SELECT 1 FROM ${leases} WHERE ${and(eq(leases.name, orderLease), eq(leases.holder, holder))})`;

  /** Takes the lease, repairs the order if needed, and reads the names in order. */
  const takeOrder = async (): Promise<readonly PlacedName[]> => {
    await acquireLease(db, orderLease, holder, 0);
    const rows = await db
      .select({ id: cemeteries.id, name: cemeteries.name, key: cemeteries.orderKey })
      .from(cemeteries)
      .orderBy(cemeteries.orderKey);
    if (isInOrder(rows)) return rows.filter(({ key }, index) => rows[index - 1]?.key !== key);
    const placed = placeNames(
      [],
      rows.map(({ name }) => name),
    );
    const keys = JSON.stringify(Object.fromEntries(rows.map(({ id, name }) => [id, keyOf(placed, name)])));
    await db.run(sql`UPDATE ${cemeteries} SET sort_name = placed.value FROM json_each(${keys}) AS placed
      WHERE ${cemeteries.id} = placed.key AND ${cemeteries.orderKey} IS NOT placed.value AND ${isOrderOurs}`);
    return placed;
  };

  return {
    /** One page, and the number of all cemeteries. */
    async listPage({ page, limit, sort }: CemeteryQuery): Promise<{ rows: CemeteryRow[]; count: number }> {
      const offset = Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);
      const found = await pages[sort]().execute({ limit, offset });
      const [counted] = found.length > 0 ? found : await preparedCount().execute();
      if (counted?.count == null) throw new Error('The row count of the cemeteries is missing');
      return { rows: found.map(({ row }) => row), count: counted.count };
    },

    /** Adds or changes the records. Unchanged records, and with `keepsStored` all stored ones, are not written. */
    async upsert(
      records: readonly CemeteryRecord[],
      { createdBy, now, keepsStored = false }: { createdBy: string; now: Date; keepsStored?: boolean },
    ): Promise<UpsertCounts> {
      for (let attempt = 1; ; attempt += 1) {
        const placed = placeNames(
          order ?? (await takeOrder()),
          records.map(({ name }) => name),
        );
        try {
          const counts = await upsertRows(db, {
            table: cemeteries,
            key: 'externalId',
            content: Object.fromEntries(contentColumns.map((column) => [column, member(column)])),
            origin: { id: member('id'), createdBy: sql`${createdBy}` },
            records: records.map((record) => ({
              ...record,
              id: cemeteryId(record.externalId),
              orderKey: keyOf(placed, record.name),
            })),
            keepsStored,
            onlyIf: isOrderOurs,
            now,
          });
          order = placed;
          return counts;
        } catch (error) {
          if (!(error instanceof UnmetConditionError) || attempt === maxAttempts) throw error;
          order = undefined;
          await jitteredPause(0, maxBackoffMs);
        }
      }
    },

    /** Repairs the order of rows that an earlier build or a runtime with another collation stored. */
    async repairOrder(): Promise<void> {
      order = await takeOrder();
    },
  };
}

export type CemeteryStore = ReturnType<typeof createCemeteryStore>;

/** 24 hex digits. The same external id has the same id in every database. */
function cemeteryId(externalId: string): string {
  return createHash('sha256').update(externalId).digest('hex').slice(0, 24);
}
