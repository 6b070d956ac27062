import { sql } from 'drizzle-orm';
import { check, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import type { LifeInsurance, LifetimeCare } from '../../modules/deep-dives/model';
import type { LtcLifetimeCare } from '../../modules/ltc/model';
import type { Insurance, Profile, Purchase } from '../../modules/users/model';
import { staff } from './sales';

/**
 * One row a signed-in person. Each JSON column is one section of the user object and the unit of a merge;
 * NULL means that the section holds no answer. Instants are epoch milliseconds.
 */
export const users = sqliteTable(
  'users',
  {
    id: text('id').primaryKey(),
    profile: text('profile', { mode: 'json' }).$type<Profile>(),
    insurance: text('insurance', { mode: 'json' }).$type<Insurance>(),
    ltcLifetimeCare: text('ltc_lifetime_care', { mode: 'json' }).$type<LtcLifetimeCare>(),
    purchase: text('purchase', { mode: 'json' }).$type<Purchase>(),
    lifeInsurance: text('life_insurance', { mode: 'json' }).$type<LifeInsurance>(),
    lifetimeCare: text('lifetime_care', { mode: 'json' }).$type<LifetimeCare>(),
    /** Who is credited with the person's applications; not part of the user object. */
    counselorId: text('counselor_id').references(() => staff.id),
    version: integer('version').notNull(),
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
