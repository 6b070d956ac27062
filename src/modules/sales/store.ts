import { and, eq, inArray, or, type SQL, type SQLWrapper, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { member, type UpsertCounts, upsertRows } from '../../db/queries';
import type { activityKinds, StaffRow } from '../../db/schema/lists';
import { activities, staff } from '../../db/schema/lists';
import { applications, users } from '../../db/schema/people';
import { eventStatement, type Operator } from '../audit/store';
import { type ActivityRecord, creditedKinds, ownActivityPrefix, type StaffRecord } from './model';
import { teamTotals } from './store-sums';

/** The sales of one member of a team in a month. */
export interface MonthOfSales {
  readonly id: string;
  readonly role: StaffRow['role'];
  readonly firstName: string;
  readonly lastName: string;
  readonly earningsCents: number;
  readonly counts: Readonly<Record<(typeof activityKinds)[number], number>>;
}

/** A member of staff with role and team. */
export type StaffPosition = Pick<StaffRow, 'id' | 'role' | 'managerId'>;

/** The seller and the manager of a stored activity. */
export interface StoredTeam {
  readonly staffId: string;
  readonly managerId: string;
}

export function createSalesStore(db: Database) {
  return {
    /**
     * Sums the sales of a manager's team in a half-open range of epoch milliseconds. The team is the manager, the
     * counselors of today, and everyone who sold for this manager in the range.
     */
    async findTeamMonth(managerId: string, { from, until }: { from: number; until: number }): Promise<MonthOfSales[]> {
      const total = (column: string) => sql<number>`${sql.identifier(column)}`.as(column);
      const sales = db.$with('sales').as(
        db
          .select({
            staffId: sql<string>`staff_id`.as('staff_id'),
            monthlyPlan: total('monthly_plan'),
            semiAnnualPlan: total('semi_annual_plan'),
            cemeteryPlan: total('cemetery_plan'),
            quote: total('quote'),
            quoteAndContract: total('quote_and_contract'),
            application: total('application'),
            earningsCents: total('amount_cents'),
          })
          .from(sql`(${teamTotals(managerId, { from, until })})`),
      );
      const orZero = (column: SQLWrapper) => sql<number>`coalesce(${column}, 0)`;
      return db
        .with(sales)
        .select({
          id: staff.id,
          role: staff.role,
          firstName: staff.firstName,
          lastName: staff.lastName,
          earningsCents: orZero(sales.earningsCents),
          counts: {
            monthlyPlan: orZero(sales.monthlyPlan),
            semiAnnualPlan: orZero(sales.semiAnnualPlan),
            cemeteryPlan: orZero(sales.cemeteryPlan),
            quote: orZero(sales.quote),
            quoteAndContract: orZero(sales.quoteAndContract),
            application: orZero(sales.application),
          },
        })
        .from(staff)
        .leftJoin(sales, eq(sales.staffId, staff.id))
        .where(
          or(
            eq(staff.id, managerId),
            eq(staff.managerId, managerId),
            inArray(staff.id, db.select({ id: sales.staffId }).from(sales)),
          ),
        );
    },

    /** All staff by id. */
    async listPositions(): Promise<Map<string, StaffPosition>> {
      const rows = await db.select({ id: staff.id, role: staff.role, managerId: staff.managerId }).from(staff);
      return new Map(rows.map((row) => [row.id, row]));
    },

    async findStaff(id: string): Promise<StaffRow | undefined> {
      const [row] = await db.select().from(staff).where(eq(staff.id, id));
      return row;
    },

    /** The manager of each counselor must be in `records` or stored. */
    upsertStaff: (
      records: readonly StaffRecord[],
      now: Date,
      { keepsStored = false, operator }: { keepsStored?: boolean; operator?: Operator } = {},
    ): Promise<UpsertCounts> =>
      upsertRows(db, {
        table: staff,
        key: 'id',
        content: {
          id: member('id'),
          role: member('role'),
          firstName: member('firstName'),
          lastName: member('lastName'),
          managerId: member('managerId'),
        },
        records,
        keepsStored,
        now,
        after: operator === undefined ? [] : [importEvents(db, records, { operator, now: now.getTime() })],
      }),

    /**
     * Sets the counselor to whom a user's next applications are credited; null for none.
     *
     * @returns whether the user has a record
     */
    async assignCounselor(assignment: {
      userId: string;
      counselorId: string | null;
      operator: Operator;
      now: Date;
    }): Promise<boolean> {
      const { userId, counselorId, operator, now } = assignment;
      const isOfUser = eq(users.id, userId);
      const assigned = { userId, action: 'assigned', actor: 'operator', section: 'counselor' } as const;
      const isChange = sql`WHERE EXISTS (SELECT 1 FROM ${users}
        WHERE ${and(isOfUser, sql`${users.counselorId} IS NOT ${counselorId}`)})`;
      const [, rows = []] = await writeBatch(db, [
        eventStatement(db, { ...assigned, ...operator, now: now.getTime() }, isChange),
        db.update(users).set({ counselorId }).where(isOfUser).returning({ id: users.id }),
      ]);
      return rows.length > 0;
    },

    /** Returns the seller and the manager of each stored activity, by external id. */
    async findTeams(externalIds: readonly string[]): Promise<Map<string, StoredTeam>> {
      const rows = await db
        .select({ id: activities.externalId, staffId: activities.staffId, managerId: activities.managerId })
        .from(activities)
        .where(sql`${activities.externalId} IN (SELECT value FROM json_each(${JSON.stringify(externalIds)}))`);
      return new Map(rows.map(({ id, ...team }) => [id, team]));
    },

    /**
     * Adds or changes activities. An activity without a manager belongs to its seller's team at the time it is added,
     * and stays there while the seller is the same. The check of an import predicts the same team.
     */
    upsertActivities: (records: readonly ActivityRecord[], now: Date, keepsStored = false): Promise<UpsertCounts> =>
      upsertRows(db, {
        table: activities,
        key: 'externalId',
        content: {
          externalId: member('externalId'),
          staffId: member('staffId'),
          managerId: sql`coalesce(${member('managerId')},
            CASE WHEN stored.staff_id = seller.id THEN stored.manager_id END, seller.manager_id, seller.id)`,
          kind: member('kind'),
          amountCents: member('amountCents'),
          occurredAt: member('occurredAt'),
        },
        records,
        keepsStored,
        joins: sql`LEFT JOIN staff AS seller ON seller.id = ${member('staffId')}
          LEFT JOIN activities AS stored ON stored.external_id = ${member('externalId')}`,
        now,
      }),
  };
}

export type SalesStore = ReturnType<typeof createSalesStore>;

/** The statement that adds an audit event for each member of staff that this import has added or changed. */
function importEvents(
  db: Database,
  records: readonly StaffRecord[],
  { operator, now }: { operator: Operator; now: number },
) {
  const ids = JSON.stringify(records.map(({ id }) => id));
  return eventStatement(
    db,
    { userId: staff.id, action: 'imported', actor: 'operator', section: 'staff', ...operator, now },
    sql`FROM ${staff} WHERE ${staff.updatedAt} = ${now} AND ${staff.id} IN (SELECT value FROM json_each(${ids}))`,
  );
}

/**
 * The statement that credits an application to the counselor of its user if `isDue` holds: one quote and one
 * application with amount 0. Adds no rows for a user without a counselor.
 */
export function creditStatement(
  db: Database,
  { applicationId, userId, now }: { applicationId: string; userId: string; now: number },
  isDue: SQL | undefined,
) {
  const credited = db
    .select({
      externalId: sql`${`${ownActivityPrefix}${applicationId}:`} || kind.value`.as('external_id'),
      staffId: staff.id,
      managerId: sql`coalesce(${staff.managerId}, ${staff.id})`.as('manager_id'),
      kind: sql`kind.value`.as('kind'),
      amountCents: sql`0`.as('amount_cents'),
      occurredAt: sql`${now}`.as('occurred_at'),
      createdAt: sql`${now}`.as('created_at'),
      updatedAt: sql`${now}`.as('updated_at'),
      version: sql`0`.as('version'),
    })
    .from(users)
    .innerJoin(staff, eq(staff.id, users.counselorId))
    .innerJoin(applications, and(eq(applications.userId, users.id), isDue))
    .innerJoin(sql`json_each(${creditedKinds}) AS kind`, sql`true`)
    .where(eq(users.id, userId));
  return db.insert(activities).select(credited).onConflictDoNothing();
}
