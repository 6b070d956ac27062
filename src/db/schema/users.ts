import { type SQL, sql } from 'drizzle-orm';
import { type AnySQLiteColumn, check, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { staff } from './sales';

/** 64 random bits in hexadecimal. */
export const randomRevision: SQL<string> = sql`(lower(hex(randomblob(8))))`;

/**
 * One row a signed-in person. Each JSON column is one section of the user object and the unit of a merge;
 * NULL means that the section holds no answer. They stay text: a record is mostly answered as it is stored, and what
 * reads answers out of one parses it. Instants are epoch milliseconds.
 */
export const users = sqliteTable(
  'users',
  {
    id: text('id').primaryKey(),
    profile: text('profile'),
    insurance: text('insurance'),
    ltcLifetimeCare: text('ltc_lifetime_care'),
    purchase: text('purchase'),
    lifeInsurance: text('life_insurance'),
    lifetimeCare: text('lifetime_care'),
    /** JSON: the section that answered each question last that two sections ask; not part of the user object. */
    newestAnswers: text('newest_answers'),
    /** Who is credited with the person's applications; not part of the user object. */
    counselorId: text('counselor_id').references(() => staff.id),
    version: integer('version').notNull(),
    /**
     * A random part that changes with every version, so that no other record, erased record or restored database repeats
     * an entity tag. The default serves inserts, those of an older build too.
     */
    revision: text('revision').notNull().default(randomRevision),
    /** The request of the last change, for the trail that triggers write (drizzle/0006); null for one by the service. */
    requestId: text('request_id'),
    /** The version that it made: a change by whoever names no request is not taken for one of the last that did. */
    requestVersion: integer('request_version'),
    /** When that request said that it was; `updatedAt` waits for a clock that was ahead. */
    requestedAt: integer('requested_at'),
    createdAt: integer('created_at').notNull(),
    updatedAt: integer('updated_at').notNull(),
  },
  (table) => [
    check('users_profile_is_json', isNullOrJson(table.profile)),
    check('users_insurance_is_json', isNullOrJson(table.insurance)),
    check('users_ltc_lifetime_care_is_json', isNullOrJson(table.ltcLifetimeCare)),
    check('users_purchase_is_json', isNullOrJson(table.purchase)),
    check('users_life_insurance_is_json', isNullOrJson(table.lifeInsurance)),
    check('users_lifetime_care_is_json', isNullOrJson(table.lifetimeCare)),
  ],
);

export type UserRow = typeof users.$inferSelect;

/** `json_valid(NULL)` is NULL, which passes a check, only from SQLite 3.42: an older tool calls each row a violation. */
function isNullOrJson(column: AnySQLiteColumn): SQL {
  return sql`${column} IS NULL OR json_valid(${column})`;
}
