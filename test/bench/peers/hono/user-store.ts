import { createClient } from '@libsql/client';
import { eq, type SQL, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/libsql';
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { mayEmptyPolicySupport, type toLifeInsurancePatch } from '../shared/life-insurance.mjs';
import { lockTimeoutMs } from '../shared/settings.mjs';

const json = (name: string) => text(name, { mode: 'json' }).$type<object>();

const users = sqliteTable('users', {
  id: text('id').primaryKey(),
  profile: json('profile'),
  insurance: json('insurance'),
  ltcLifetimeCare: json('ltc_lifetime_care'),
  purchase: json('purchase'),
  lifeInsurance: json('life_insurance'),
  lifetimeCare: json('lifetime_care'),
  version: integer('version').notNull(),
  createdAt: integer('created_at').notNull(),
  updatedAt: integer('updated_at').notNull(),
});

/** The users of a database file, durable before a save is answered. */
export async function openUserStore(path: string) {
  // One connection, since a PRAGMA reaches no other.
  const client = createClient({ url: `file:${path}`, timeout: lockTimeoutMs, concurrency: 1 });
  await client.execute('PRAGMA journal_mode = WAL');
  await client.execute('PRAGMA synchronous = FULL');
  await client.execute('PRAGMA secure_delete = ON');
  const db = drizzle({ client });

  const findById = db
    .select()
    .from(users)
    .where(eq(users.id, sql.placeholder('userId')))
    .limit(1)
    .prepare();

  const prepareSave = (section: (stored: SQL) => SQL) => {
    const changed = section(sql`coalesce(${users.lifeInsurance}, '{}')`);
    const isChanged = sql`(${changed} IS NOT ${users.lifeInsurance})`;
    const now = sql.placeholder('now');
    return db
      .insert(users)
      .values({
        id: sql.placeholder('userId'),
        lifeInsurance: section(sql`'{}'`),
        version: 1,
        createdAt: now,
        updatedAt: now,
      })
      .onConflictDoUpdate({
        target: users.id,
        set: {
          lifeInsurance: changed,
          version: sql`${users.version} + ${isChanged}`,
          updatedAt: sql`CASE WHEN ${isChanged} THEN ${now} ELSE ${users.updatedAt} END`,
        },
      })
      .returning()
      .prepare();
  };
  const save = prepareSave(merged);
  const saveAndTidy = prepareSave(tidied);

  return {
    async find(userId: string) {
      const [row] = await findById.execute({ userId });
      return row;
    },

    /** Merges a patch into the life insurance of a record, or makes the record, and gives the whole of it. */
    async saveLifeInsurance(userId: string, patch: ReturnType<typeof toLifeInsurancePatch>) {
      const statement = mayEmptyPolicySupport(patch) ? saveAndTidy : save;
      const [row] = await statement.execute({ userId, patch: JSON.stringify(patch), now: Date.now() });
      if (row === undefined) throw new Error('A save gave no record');
      return row;
    },
  };
}

/** A section without any answer is NULL. */
function merged(stored: SQL): SQL {
  return sql`nullif(json_patch(${stored}, ${sql.placeholder('patch')}), '{}')`;
}

/** The same, without a `policySupport` that holds no list any more. */
function tidied(stored: SQL): SQL {
  const patched = sql`json_patch(${stored}, ${sql.placeholder('patch')})`;
  return sql`nullif(CASE WHEN json_extract(${patched}, '$.policySupport') = '{}'
    THEN json_remove(${patched}, '$.policySupport') ELSE ${patched} END, '{}')`;
}
