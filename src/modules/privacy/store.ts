import { randomBytes } from 'node:crypto';
import { and, asc, eq, exists, getTableColumns, inArray, or, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import type { StaffRow } from '../../db/schema/lists';
import { activities, staff } from '../../db/schema/lists';
import {
  applicationAttempts,
  applications,
  auditEvents,
  erasedUserId,
  idempotencyKeys,
  type UserRow,
  users,
} from '../../db/schema/people';
import { eventStatement, type Operator } from '../audit/store';
import { isOpenState } from '../coverage/outcomes';
import { creditedKinds, ownActivityPrefix } from '../sales/model';
import { type UserRecord, userRecordColumns } from '../users/store';

/** All stored data of one person. */
export interface PersonalData {
  readonly record: (UserRow & UserRecord) | undefined;
  /** The person's own row in the staff, which belongs to the employer and is not erased. */
  readonly staff: StaffRow | undefined;
  readonly counselor: StaffRow | undefined;
  readonly applications: readonly (typeof applications.$inferSelect & {
    readonly attempts: readonly (typeof applicationAttempts.$inferSelect)[];
  })[];
  /** The activities that credit the counselor. */
  readonly credits: readonly (typeof activities.$inferSelect)[];
  readonly idempotencyKeys: readonly (typeof idempotencyKeys.$inferSelect)[];
  /** Whether the audit log has events of the person. */
  readonly isAudited: boolean;
}

/** The result of an erasure. */
export interface Erasure {
  readonly record: boolean;
  /** The references of the partner carrier, which must erase them too. */
  readonly applications: readonly { readonly reference: string; readonly applicationNumber: number | null }[];
  readonly attempts: number;
  readonly idempotencyKeys: number;
  /** Audit events that are kept under a random id. */
  readonly events: number;
  /** The random user id of these events; null if there are none. */
  readonly keptAs: string | null;
}

const Known = v.array(v.object({ id: v.string(), application_number: v.nullable(v.number()) }));

/** The carrier can link an application's id to the person, so it is replaced. */
const anonymousId = sql`lower(hex(randomblob(16)))`;

/** Data-subject export and erasure. Lists every table with data of users. */
export function createPersonalDataStore(db: Database) {
  /** The ids of the activities that credit a person's applications. */
  const creditIds = (userId: string) => sql`(SELECT ${ownActivityPrefix} || ${applications.id} || ':' || kind.value
    FROM ${applications}, json_each(${creditedKinds}) AS kind WHERE ${applications.userId} = ${userId})`;

  /** The audit events of a person, without those as a member of staff while the row in the staff exists. */
  const isAuditedAs = (userId: string) =>
    and(
      eq(auditEvents.userId, userId),
      sql`((${auditEvents.actor} <> 'staff' AND ${auditEvents.section} IS NOT 'staff')
        OR NOT EXISTS (SELECT 1 FROM ${staff} WHERE ${eq(staff.id, userId)}))`,
    );

  /** Whether the person has data to erase. */
  const hasData = (userId: string) =>
    or(
      exists(db.select({ id: users.id }).from(users).where(eq(users.id, userId))),
      exists(db.select({ id: applications.id }).from(applications).where(eq(applications.userId, userId))),
      exists(db.select({ key: idempotencyKeys.key }).from(idempotencyKeys).where(eq(idempotencyKeys.userId, userId))),
      exists(db.select({ id: auditEvents.id }).from(auditEvents).where(isAuditedAs(userId))),
    );

  return {
    async find(userId: string): Promise<PersonalData> {
      const [found] = await db
        .select({ record: { ...getTableColumns(users), ...userRecordColumns }, counselor: staff })
        .from(users)
        .leftJoin(staff, eq(staff.id, users.counselorId))
        .where(eq(users.id, userId));
      const ownApplications = await db
        .select()
        .from(applications)
        .where(eq(applications.userId, userId))
        .orderBy(asc(applications.createdAt), asc(applications.id));
      const attempts = await db
        .select({ attempt: applicationAttempts })
        .from(applicationAttempts)
        .innerJoin(applications, eq(applications.id, applicationAttempts.applicationId))
        .where(eq(applications.userId, userId))
        .orderBy(asc(applicationAttempts.startedAt));
      const [ownStaff] = await db.select().from(staff).where(eq(staff.id, userId));
      return {
        record: found?.record,
        staff: ownStaff,
        counselor: found?.counselor ?? undefined,
        applications: ownApplications.map((application) => ({
          ...application,
          attempts: attempts.flatMap(({ attempt }) => (attempt.applicationId === application.id ? [attempt] : [])),
        })),
        credits: await db
          .select()
          .from(activities)
          .where(inArray(activities.externalId, creditIds(userId))),
        idempotencyKeys: await db.select().from(idempotencyKeys).where(eq(idempotencyKeys.userId, userId)),
        isAudited:
          (await db.select({ id: auditEvents.id }).from(auditEvents).where(isAuditedAs(userId)).limit(1)).length > 0,
      };
    },

    /**
     * Erases a person in one transaction: removes the record, the idempotency keys and the carrier's replies.
     * Applications (flow, state and times) and credited activities remain for statistics, under random ids. Audit events
     * move to a random user id, together with the event of the erasure. The person's row in the staff and its events stay.
     */
    async erase(userId: string, { operator, now }: { operator: Operator; now: Date }): Promise<Erasure> {
      const keptAs = `erased:${randomBytes(16).toString('hex')}`;
      const own = eq(applications.userId, userId);
      const ownIds = db.select({ id: applications.id }).from(applications).where(own);
      const [erased = [], known = [], attempts = [], , , keys = [], record = [], events = []] = await writeBatch(db, [
        eventStatement(
          db,
          { userId: keptAs, action: 'erased', actor: 'operator', ...operator, now: now.getTime() },
          sql`WHERE ${hasData(userId)}`,
        ).returning({ id: auditEvents.id }),
        db.select({ id: applications.id, number: applications.applicationNumber }).from(applications).where(own),
        db
          .delete(applicationAttempts)
          .where(inArray(applicationAttempts.applicationId, ownIds))
          .returning({ id: applicationAttempts.attempt }),
        db
          .update(activities)
          .set({ externalId: sql`${ownActivityPrefix} || 'erased:' || ${anonymousId}` })
          .where(inArray(activities.externalId, creditIds(userId))),
        db
          .update(applications)
          .set({
            id: anonymousId,
            userId: erasedUserId,
            identityHash: anonymousId,
            supersedes: null,
            // Ends an open application.
            abandonedAt: sql`CASE WHEN ${isOpenState} THEN ${now.getTime()} ELSE ${applications.abandonedAt} END`,
            applicant: sql`'{}'`,
            applicationNumber: null,
            pricing: null,
          })
          .where(own),
        db.delete(idempotencyKeys).where(eq(idempotencyKeys.userId, userId)).returning({ path: idempotencyKeys.path }),
        db.delete(users).where(eq(users.id, userId)).returning({ id: users.id }),
        db
          .update(auditEvents)
          // A client chooses its request ids, and the carrier can link an application to the person.
          .set({ userId: keptAs, applicationId: null, requestId: null })
          .where(isAuditedAs(userId))
          .returning({ id: auditEvents.id }),
      ]);
      return {
        record: record.length > 0,
        applications: v.parse(Known, known).map(({ id, application_number }) => ({
          reference: id,
          applicationNumber: application_number,
        })),
        attempts: attempts.length,
        idempotencyKeys: keys.length,
        events: events.length,
        keptAs: erased.length > 0 ? keptAs : null,
      };
    },
  };
}
