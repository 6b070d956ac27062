import { sql } from 'drizzle-orm';
import { check, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { staff } from './sales';

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
    /** Who is credited with the person's applications; not part of the user object. */
    counselorId: text('counselor_id').references(() => staff.id),
    version: integer('version').notNull(),
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
    check('users_profile_is_json', sql`json_valid(${table.profile})`),
    check('users_insurance_is_json', sql`json_valid(${table.insurance})`),
    check('users_ltc_lifetime_care_is_json', sql`json_valid(${table.ltcLifetimeCare})`),
    check('users_purchase_is_json', sql`json_valid(${table.purchase})`),
    check('users_life_insurance_is_json', sql`json_valid(${table.lifeInsurance})`),
    check('users_lifetime_care_is_json', sql`json_valid(${table.lifetimeCare})`),
  ],
);

export type UserRow = typeof users.$inferSelect;
