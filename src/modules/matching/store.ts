import { asc, desc, eq, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { catalogVersions, conditions, productDisqualifiers, productRules, products } from '../../db/schema';
import type { Catalog } from './catalog-model';
import { penaltyOf, type StoredCatalog } from './match';

export type CatalogSource = 'shipped' | 'imported';

export interface CatalogVersion {
  readonly id: number;
  readonly contentHash: string;
  readonly source: CatalogSource;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

export function createCatalogStore(db: Database) {
  return {
    /** The version in force; undefined before any catalogue was stored. */
    async findLatestVersion(): Promise<CatalogVersion | undefined> {
      const [row] = await db.select().from(catalogVersions).orderBy(desc(catalogVersions.id)).limit(1);
      return row;
    },

    async listVersions(): Promise<CatalogVersion[]> {
      return db.select().from(catalogVersions).orderBy(asc(catalogVersions.id));
    },

    /** One version whole, inactive products included; undefined when there is none of that number. */
    async find(version: number): Promise<StoredCatalog | undefined> {
      const [row] = await db.select().from(catalogVersions).where(eq(catalogVersions.id, version));
      if (row === undefined) return undefined;
      const [conditionRows, productRows, ruleRows, codeRows] = await Promise.all([
        db.select().from(conditions).where(eq(conditions.catalogVersion, version)).orderBy(asc(conditions.position)),
        db.select().from(products).where(eq(products.catalogVersion, version)).orderBy(asc(products.position)),
        db
          .select()
          .from(productRules)
          .where(eq(productRules.catalogVersion, version))
          .orderBy(asc(productRules.position)),
        db
          .select()
          .from(productDisqualifiers)
          .where(eq(productDisqualifiers.catalogVersion, version))
          .orderBy(asc(productDisqualifiers.position)),
      ]);
      const rulesByProduct = Map.groupBy(ruleRows, ({ productId }) => productId);
      const codesByProduct = Map.groupBy(codeRows, ({ productId }) => productId);
      return {
        version,
        penaltyHundredths: row.penaltyHundredths,
        conditions: conditionRows,
        products: productRows.map((product) => ({
          ...product,
          disqualifiers: (codesByProduct.get(product.id) ?? []).map(({ code }) => code),
          rules: rulesByProduct.get(product.id) ?? [],
        })),
      };
    },

    /** Stores a catalogue as the newest version, whole or not at all, and gives its number. */
    async add(catalog: Catalog, by: { source: CatalogSource; contentHash: string; now: Date }): Promise<number> {
      const stored = catalog.products.map((product, position) => ({
        ...product,
        position,
        rules: product.rules.map((rule) => ({ ...rule, pointsHundredths: Math.round(rule.points * 100) })),
      }));
      const latest = sql`(SELECT max(id) FROM catalog_versions)`;
      const rows = (values: object[]) => sql`json_each(${JSON.stringify(values)})`;
      const active = stored.filter(({ active }) => active);
      const [inserted] = await writeBatch(db, [
        db
          .insert(catalogVersions)
          .values({
            contentHash: by.contentHash,
            source: by.source,
            penaltyHundredths: penaltyOf(active),
            createdAt: by.now.getTime(),
          })
          .returning({ id: catalogVersions.id }),
        db
          .insert(conditions)
          .select(sql`SELECT ${latest}, key, value ->> 'code', value -> 'when' FROM ${rows(catalog.conditions)}`),
        db.insert(products).select(
          sql`SELECT ${latest}, key, value ->> 'id', value ->> 'productName', value ->> 'productWrapper',
            value ->> 'productIcon', value ->> 'active'
            FROM ${rows(stored.map(({ rules: _, ...product }) => product))}`,
        ),
        db.insert(productRules).select(
          sql`SELECT ${latest}, value ->> 'productId', key, value ->> 'id', value -> 'when',
            value ->> 'pointsHundredths', value ->> 'list', value ->> 'text', value ->> 'reason'
            FROM ${rows(stored.flatMap(({ id: productId, rules }) => rules.map((rule) => ({ ...rule, productId }))))}`,
        ),
        db.insert(productDisqualifiers).select(
          sql`SELECT ${latest}, value ->> 'productId', key, value ->> 'code'
            FROM ${rows(stored.flatMap(({ id: productId, disqualifiers }) => disqualifiers.map((code) => ({ productId, code }))))}`,
        ),
      ]);
      return Number(inserted?.[0]?.id);
    },
  };
}

export type CatalogStore = ReturnType<typeof createCatalogStore>;
