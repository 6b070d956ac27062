import { and, eq, inArray, type SQL, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { activities, cemeteries, schemaCompatibility, staff, users } from '../../db/schema/index';
import { eventStatement, type Operator } from '../audit/store';
import { demoCemeteries } from '../cemeteries/store';
import { demoStaff } from '../sales/store';

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
  /** Ids of users with the name of a demo token who have saved something. */
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

/** The ids among these to which a row refers that is not a demo row. */
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

/**
 * Removes the demo data that was found, and the mark, in one transaction. It fails as a whole if a row has come to refer to
 * the staff in the meantime.
 */
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
