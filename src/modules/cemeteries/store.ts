import { createHash } from 'node:crypto';
import { asc, desc, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { cemeteries } from '../../db/schema';
import type { CemeteryRow } from '../../db/schema/cemeteries';
import type { CemeteryQuery, CemeteryRecord } from './model';

const contentColumns = ['name', 'sortName', 'street', 'city', 'state', 'zip'] as const;

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

    /**
     * Adds or changes the records in one statement, which takes them as one JSON text; a record that is the same
     * already is left alone.
     */
    async upsert(
      records: readonly CemeteryRecord[],
      by: { createdBy: string; now: Date },
    ): Promise<{ added: number; changed: number; unchanged: number }> {
      const now = by.now.getTime();
      const rows = records.map((record) => ({
        ...record,
        id: cemeteryId(record.externalId),
        sortName: record.name.toLowerCase(),
      }));
      const field = (name: keyof (typeof rows)[number]) => sql`value ->> ${sql.raw(`'${name}'`)}`;
      const stored = await db
        .insert(cemeteries)
        .select(
          sql`SELECT ${field('id')}, ${field('externalId')}, ${field('name')}, ${field('sortName')}, ${field('street')},
            ${field('city')}, ${field('state')}, ${field('zip')}, ${by.createdBy}, ${now}, ${now}, 0
            FROM json_each(${JSON.stringify(rows)}) WHERE true`,
        )
        .onConflictDoUpdate({
          target: cemeteries.externalId,
          set: {
            ...Object.fromEntries(contentColumns.map((column) => [column, excluded(column)])),
            updatedAt: now,
            version: sql`${cemeteries.version} + 1`,
          },
          setWhere: sql.join(
            contentColumns.map((column) => sql`${cemeteries[column]} <> ${excluded(column)}`),
            sql` OR `,
          ),
        })
        .returning({ version: cemeteries.version });
      const added = stored.filter(({ version }) => version === 0).length;
      const changed = stored.length - added;
      return { added, changed, unchanged: records.length - stored.length };
    },
  };
}

function excluded(column: (typeof contentColumns)[number]) {
  return sql`excluded.${sql.identifier(cemeteries[column].name)}`;
}

/** 24 hex digits that are the same for the same source on every database. */
function cemeteryId(externalId: string): string {
  return createHash('sha256').update(externalId).digest('hex').slice(0, 24);
}
