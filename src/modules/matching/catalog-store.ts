import { and, asc, desc, eq, getTableColumns, gt, lt, type SQLWrapper, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { catalogVersions, conditions, productDisqualifiers, productRules, products } from '../../db/schema/lists';
import { inSlices, nextTurn } from '../../shared/async';
import type { Catalog, CatalogProduct, Condition, TextList } from './catalog-model';
import { penaltyOf, type StoredCatalog, type StoredProduct } from './match';

type ProductRow = typeof products.$inferSelect;
type RuleRow = Omit<typeof productRules.$inferSelect, 'when' | 'textList'> & {
  readonly when: Condition;
  readonly textList: TextList;
};
type CodeRow = typeof productDisqualifiers.$inferSelect;

/** A stored condition was validated by the import. */
const storedCondition = (column: SQLWrapper) =>
  sql<Condition>`${column}`.mapWith((text: string): Condition => JSON.parse(text));

const ruleColumns = {
  ...getTableColumns(productRules),
  when: storedCondition(productRules.when),
  textList: sql<TextList>`${productRules.textList}`,
};

type CatalogSource = 'shipped' | 'imported';

interface CatalogVersion {
  readonly id: number;
  readonly contentHash: string;
  readonly source: CatalogSource;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

export function createCatalogStore(db: Database) {
  return {
    /** The version in force; undefined before a catalogue is stored. */
    async findLatestVersion(): Promise<CatalogVersion | undefined> {
      const [row] = await db
        .select()
        .from(catalogVersions)
        .where(eq(catalogVersions.isComplete, true))
        .orderBy(desc(catalogVersions.id))
        .limit(1);
      return row;
    },

    async listVersions(): Promise<CatalogVersion[]> {
      return db
        .select()
        .from(catalogVersions)
        .where(eq(catalogVersions.isComplete, true))
        .orderBy(asc(catalogVersions.id));
    },

    /** One version with inactive products; undefined if it does not exist. */
    async find(version: number): Promise<StoredCatalog | undefined> {
      const [row] = await db
        .select()
        .from(catalogVersions)
        .where(and(eq(catalogVersions.id, version), eq(catalogVersions.isComplete, true)));
      if (row === undefined) return undefined;
      const conditionRows = await db
        .select({ ...getTableColumns(conditions), when: storedCondition(conditions.when) })
        .from(conditions)
        .where(eq(conditions.catalogVersion, version))
        .orderBy(asc(conditions.position));
      const productRows = await inPages((last: ProductRow | undefined) =>
        db
          .select()
          .from(products)
          .where(and(eq(products.catalogVersion, version), last && gt(products.id, last.id)))
          .orderBy(asc(products.id))
          .limit(rowsAtOnce),
      );
      const ruleRows = await inPages((last: RuleRow | undefined) =>
        db
          .select(ruleColumns)
          .from(productRules)
          .where(
            and(
              eq(productRules.catalogVersion, version),
              last && sql`(${productRules.productId}, ${productRules.id}) > (${last.productId}, ${last.id})`,
            ),
          )
          .orderBy(asc(productRules.productId), asc(productRules.id))
          .limit(rowsAtOnce),
      );
      const codeRows = await inPages((last: CodeRow | undefined) =>
        db
          .select()
          .from(productDisqualifiers)
          .where(
            and(
              eq(productDisqualifiers.catalogVersion, version),
              last &&
                sql`(${productDisqualifiers.productId}, ${productDisqualifiers.code}) > (${last.productId}, ${last.code})`,
            ),
          )
          .orderBy(asc(productDisqualifiers.productId), asc(productDisqualifiers.code))
          .limit(rowsAtOnce),
      );
      return {
        version,
        penaltyHundredths: row.penaltyHundredths,
        conditions: conditionRows,
        products: await inSlices(assemble(productRows, ruleRows, codeRows)),
      };
    },

    /**
     * Stores a catalogue as the newest version in short transactions. The last statement puts it in force; until then it is
     * not visible. The next import removes the rows of an interrupted one.
     *
     * @returns the version; undefined for a shipped catalogue that was in force before, or after an operator's import
     */
    async add(catalog: Catalog, by: VersionOrigin): Promise<number | undefined> {
      await removeAbandoned(by.now.getTime() - abandonedAfterMs);
      const products = catalog.products.map((product, position) => ({
        ...product,
        position,
        rules: product.rules.map((rule) => ({ ...rule, pointsHundredths: Math.round(rule.points * 100) })),
      }));
      const penalty = penaltyOf(products.filter(({ active }) => active));
      const [inserted] = await db
        .insert(catalogVersions)
        .values({ ...version(by), penaltyHundredths: penalty, isComplete: false })
        .returning({ id: catalogVersions.id });
      if (inserted === undefined) throw new Error('The insert returned no version');
      const { id } = inserted;
      await db
        .insert(conditions)
        .select(sql`SELECT ${id}, key, value ->> 'code', value -> 'when' FROM ${eachOf(catalog.conditions)}`);
      for (const some of chunksOf(products)) await addProducts(id, some);
      const mayApply = by.source === 'imported' ? undefined : isNewShipped(by.contentHash, id);
      const [applied] = await db
        .update(catalogVersions)
        .set({ isComplete: true })
        .where(and(eq(catalogVersions.id, id), mayApply))
        .returning({ id: catalogVersions.id });
      if (applied === undefined) await remove(id);
      return applied?.id;
    },
  };

  async function addProducts(version: number, added: readonly PositionedProduct[]): Promise<void> {
    const rules = added.flatMap(({ id: productId, rules }) =>
      rules.map((rule, position) => ({ ...rule, productId, position })),
    );
    const codes = added.flatMap(({ id: productId, disqualifiers }) =>
      disqualifiers.map((code, position) => ({ productId, code, position })),
    );
    await writeBatch(db, [
      db.insert(products).select(
        sql`SELECT ${version}, value ->> 'position', value ->> 'id', value ->> 'productName',
          value ->> 'productWrapper', value ->> 'productIcon', value ->> 'active'
          FROM ${eachOf(added.map(({ rules: _, ...product }) => product))}`,
      ),
      db.insert(productRules).select(
        sql`SELECT ${version}, value ->> 'productId', value ->> 'position', value ->> 'id', value -> 'when',
          value ->> 'pointsHundredths', value ->> 'list', value ->> 'text', value ->> 'reason' FROM ${eachOf(rules)}`,
      ),
      db
        .insert(productDisqualifiers)
        .select(
          sql`SELECT ${version}, value ->> 'productId', value ->> 'position', value ->> 'code' FROM ${eachOf(codes)}`,
        ),
    ]);
  }

  async function removeAbandoned(before: number): Promise<void> {
    const abandoned = await db
      .select({ id: catalogVersions.id })
      .from(catalogVersions)
      .where(and(eq(catalogVersions.isComplete, false), lt(catalogVersions.createdAt, before)));
    for (const { id } of abandoned) await remove(id);
  }

  async function remove(id: number): Promise<void> {
    await writeBatch(db, [
      db.delete(productDisqualifiers).where(eq(productDisqualifiers.catalogVersion, id)),
      db.delete(productRules).where(eq(productRules.catalogVersion, id)),
      db.delete(products).where(eq(products.catalogVersion, id)),
      db.delete(conditions).where(eq(conditions.catalogVersion, id)),
      db.delete(catalogVersions).where(eq(catalogVersions.id, id)),
    ]);
  }
}

interface VersionOrigin {
  readonly source: CatalogSource;
  readonly contentHash: string;
  readonly now: Date;
}

function version({ source, contentHash, now }: VersionOrigin) {
  return { source, contentHash, createdAt: now.getTime() };
}

/** Part of the statement that it guards, because seeds of several builds and an import may run at the same time. */
function isNewShipped(contentHash: string, id: number) {
  return sql`NOT EXISTS (SELECT 1 FROM catalog_versions AS other WHERE other.is_complete AND other.id <> ${id}
    AND (other.source = 'imported' OR other.content_hash = ${contentHash}))`;
}

/** Splits products into chunks, to keep bound values below the limit of a libSQL server and transactions short. */
function* chunksOf(products: readonly PositionedProduct[]): Generator<PositionedProduct[]> {
  let chunk: PositionedProduct[] = [];
  let bytes = 0;
  for (const product of products) {
    const size = JSON.stringify(product).length;
    if (chunk.length > 0 && bytes + size > chunkBytes) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(product);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

type PositionedProduct = Omit<CatalogProduct, 'rules'> & {
  readonly position: number;
  readonly rules: readonly (CatalogProduct['rules'][number] & { readonly pointsHundredths: number })[];
};

const chunkBytes = 300_000;
const rowsAtOnce = 1_000;
const abandonedAfterMs = 60 * 60_000;

/** Joins products with their rules and disqualifiers, one product a step. */
function* assemble(
  productRows: readonly ProductRow[],
  ruleRows: readonly RuleRow[],
  codeRows: readonly CodeRow[],
): Generator<undefined, StoredProduct[], undefined> {
  const rulesByProduct = Map.groupBy(ruleRows, ({ productId }) => productId);
  yield;
  const codesByProduct = Map.groupBy(codeRows, ({ productId }) => productId);
  yield;
  const assembled: StoredProduct[] = [];
  for (const product of productRows.toSorted(byPosition)) {
    assembled.push({
      ...product,
      disqualifiers: (codesByProduct.get(product.id) ?? []).sort(byPosition).map(({ code }) => code),
      rules: (rulesByProduct.get(product.id) ?? []).sort(byPosition),
    });
    yield;
  }
  return assembled;
}

/**
 * Reads all rows of a query in pages: a libSQL server limits a response to 10 MB, and thousands of rows of a file block
 * the event loop.
 */
async function inPages<Row>(select: (last: Row | undefined) => Promise<Row[]>): Promise<Row[]> {
  const rows: Row[] = [];
  for (;;) {
    const page = await select(rows.at(-1));
    rows.push(...page);
    if (page.length < rowsAtOnce) return rows;
    await nextTurn();
  }
}

function byPosition(left: { position: number }, right: { position: number }): number {
  return left.position - right.position;
}

/** Binds rows as one JSON text, so that the SQL does not depend on their number. */
function eachOf(rows: readonly object[]) {
  return sql`json_each(${JSON.stringify(rows)})`;
}

export type CatalogStore = ReturnType<typeof createCatalogStore>;
