import { createHash } from 'node:crypto';
import { and, eq, inArray, type SQL, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { activities, cemeteries, schemaCompatibility, staff } from '../../db/schema/lists';
import { users } from '../../db/schema/people';
import { eventStatement, type Operator } from '../audit/store';
import { CemeteryRecord } from '../cemeteries/model';
import { type ActivityRecord, activityRecord, StaffRecord } from '../sales/model';

/** Fictional cemeteries. */
export const demoCemeteries: readonly CemeteryRecord[] = [
  ['Amber Hill Memorial Park', '100 Amber Hill Road', 'Springfield', 'IL', '62701'],
  ['Bluestone Gardens', '18 Quarry Lane', 'Burlington', 'VT', '05401'],
  ['Cedar Rest Cemetery', '2400 Cedar Street', 'Eugene', 'OR', '97401'],
  ['Dovecote Memorial Gardens', '77 Meadow Way', 'Savannah', 'GA', '31401'],
  ['Evergreen Ridge', '9 Summit Avenue', 'Boise', 'ID', '83702'],
  ['Fernwood Peace Park', '310 Fernwood Drive', 'Madison', 'WI', '53703'],
  ['Golden Prairie Cemetery', '', 'Salina', 'KS', '67401'],
  ['Harbor Light Memorial Park', '55 Shore Road', 'Portland', 'ME', '04101'],
  ['Ironwood Desert Gardens', '8800 Ironwood Trail', 'Tucson', 'AZ', '85701'],
  ['Juniper Valley Cemetery', '12 Valley Court', 'Santa Fe', 'NM', '87501'],
  ['Kindred Oaks', '641 Oak Hollow', 'Austin', 'TX', '78701'],
  ['Lakeview Meadow Cemetery', '4 Lakeview Circle', 'Duluth', 'MN', '55802'],
].map(([name, street, city, state, zip], index) =>
  v.parse(CemeteryRecord, { externalId: `demo-${String(index + 1).padStart(2, '0')}`, name, street, city, state, zip }),
);

const dayMs = 24 * 60 * 60_000;
const demoDays = 366;

/** The team of the demo manager's token, named after mathematicians. */
export const demoStaff: readonly StaffRecord[] = [
  { id: 'demo-manager', role: 'salesManager', firstName: 'Mary', lastName: 'Somerville' },
  ...[
    ['Carl', 'Gauss'],
    ['Emmy', 'Noether'],
    ['Leonhard', 'Euler'],
    ['Sofia', 'Kovalevskaya'],
  ].map(([firstName, lastName], index) => ({
    id: `demo-counselor-${index + 1}`,
    role: 'counselor',
    firstName,
    lastName,
    managerId: 'demo-manager',
  })),
].map((person) => v.parse(StaffRecord, person));

/** Sales with their earnings. A byte of a hash chooses one, so that a day is the same at each start. */
const sales = [
  { kind: 'quote', amount: '0' },
  { kind: 'quote', amount: '0' },
  { kind: 'quoteAndContract', amount: '412.50' },
  { kind: 'application', amount: '95.00' },
  { kind: 'cemeteryPlan', amount: '260.75' },
] as const;
const managerSales = [
  { kind: 'monthlyPlan', amount: '49.90' },
  { kind: 'semiAnnualPlan', amount: '274.40' },
  ...sales,
] as const;
const daysOfThirtyWithSales = 10;

/** A year of fictional activities of the demo team, up to an instant. */
export function demoActivities(now: Date): ActivityRecord[] {
  const Record = activityRecord('UTC');
  const today = Math.floor(now.getTime() / dayMs) * dayMs;
  const dates = Array.from({ length: demoDays }, (_, index) =>
    new Date(today - index * dayMs).toISOString().slice(0, 10),
  );
  return dates.flatMap((date) =>
    demoStaff.flatMap(({ id, role }) => {
      const [draw = 0, choice = 0, hour = 0] = createHash('sha256').update(`${id} ${date}`).digest();
      const occurredAt = `${date}T${String(hour % 24).padStart(2, '0')}:00:00Z`;
      if (draw % 30 >= daysOfThirtyWithSales || Date.parse(occurredAt) > now.getTime()) return [];
      const offered = role === 'salesManager' ? managerSales : sales;
      const sold = offered[choice % offered.length];
      const externalId = `demo-${date}-${id}`;
      return [v.parse(Record, { externalId, staffId: id, managerId: 'demo-manager', occurredAt, ...sold })];
    }),
  );
}

/** The demo data in a database. */
export interface DemoData {
  /** Whether the database is marked for development. */
  readonly isMarked: boolean;
  readonly cemeteries: number;
  readonly activities: number;
  /** Ids of demo staff that no other row refers to. */
  readonly staff: readonly string[];
  /** Ids of demo staff that a user's counselor, another activity or other staff refers to. They cannot be removed. */
  readonly referredStaff: readonly string[];
  /** Ids of users of the demo tokens that have a record. */
  readonly users: readonly string[];
}

const demoUsers = ['demo-user', 'demo-manager'];

/** A row that an import has renamed is no longer a demo row. */
const isDemoCemetery = and(
  eq(cemeteries.createdBy, 'demo'),
  sql`(${cemeteries.externalId}, ${cemeteries.name}) IN (SELECT value ->> 'externalId', value ->> 'name'
    FROM json_each(${JSON.stringify(demoCemeteries)}))`,
);
const isDemoStaff = sql`(${staff.id}, ${staff.firstName}, ${staff.lastName}) IN (SELECT value ->> 'id',
  value ->> 'firstName', value ->> 'lastName' FROM json_each(${JSON.stringify(demoStaff)}))`;
/** The form of the id: `demo-`, the date, a hyphen and the id of the seller. */
const isDemoActivity: SQL = sql`(${activities.externalId} GLOB 'demo-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]-demo-*'
  AND substr(${activities.externalId}, 17) = ${activities.staffId})`;

export async function findDemoData(db: Database): Promise<DemoData> {
  const [compatibility] = await db.select({ mark: schemaCompatibility.forDevelopment }).from(schemaCompatibility);
  const team = await db.select({ id: staff.id, managerId: staff.managerId }).from(staff).where(isDemoStaff);
  const ids = team.map(({ id }) => id);
  const referred = new Set(ids.length === 0 ? [] : await findReferredStaff(db, ids));
  for (const { id, managerId } of team) if (managerId !== null && referred.has(id)) referred.add(managerId);
  const saved = await db.select({ id: users.id }).from(users).where(inArray(users.id, demoUsers));
  return {
    isMarked: compatibility?.mark === 1,
    cemeteries: await db.$count(cemeteries, isDemoCemetery),
    activities: await db.$count(activities, isDemoActivity),
    staff: ids.filter((id) => !referred.has(id)),
    referredStaff: ids.filter((id) => referred.has(id)),
    users: saved.map(({ id }) => id),
  };
}

/** Returns the ids to which a row refers that is not a demo row. */
async function findReferredStaff(db: Database, ids: readonly string[]): Promise<string[]> {
  const list = sql`(SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  const rows = await db.selectDistinct({ id: sql<string>`ref.id` }).from(
    sql`(SELECT ${users.counselorId} AS id FROM ${users} WHERE ${users.counselorId} IN ${list}
        UNION SELECT ${activities.staffId} FROM ${activities} WHERE ${activities.staffId} IN ${list} AND NOT ${isDemoActivity}
        UNION SELECT ${activities.managerId} FROM ${activities} WHERE ${activities.managerId} IN ${list} AND NOT ${isDemoActivity}
        UNION SELECT ${staff.managerId} FROM ${staff} WHERE ${staff.managerId} IN ${list} AND NOT ${isDemoStaff}) AS ref`,
  );
  return rows.map(({ id }) => id);
}

/** Removes the demo data and the mark in one transaction. Fails if another row refers to the staff by now. */
export async function removeDemoData(db: Database, found: DemoData, operator: Operator, now: Date): Promise<void> {
  const isRemoved = inArray(staff.id, [...found.staff]);
  const removed = { action: 'erased', actor: 'operator', section: 'staff', ...operator, now: now.getTime() } as const;
  await writeBatch(db, [
    db.delete(activities).where(isDemoActivity),
    db.delete(cemeteries).where(isDemoCemetery),
    eventStatement(db, { ...removed, userId: staff.id }, sql`FROM ${staff} WHERE ${isRemoved}`),
    db.delete(staff).where(and(isRemoved, eq(staff.role, 'counselor'))),
    db.delete(staff).where(isRemoved),
    db.update(schemaCompatibility).set({ forDevelopment: 0 }),
  ]);
}
