import { randomBytes } from 'node:crypto';
import { and, asc, eq, exists, getTableColumns, inArray, or, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import type { StaffRow } from '../../db/schema/directory';
import { activities, staff } from '../../db/schema/directory';
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

/** All that is kept about one person, as it is stored. */
export interface PersonalData {
  readonly record: (UserRow & UserRecord) | undefined;
  /** The person's own place among those who sell, which is the employer's to keep. */
  readonly staff: StaffRow | undefined;
  readonly counselor: StaffRow | undefined;
  readonly applications: readonly (typeof applications.$inferSelect & {
    readonly attempts: readonly (typeof applicationAttempts.$inferSelect)[];
  })[];
  /** What the counselor was credited with. */
  readonly credits: readonly (typeof activities.$inferSelect)[];
  readonly idempotencyKeys: readonly (typeof idempotencyKeys.$inferSelect)[];
  /** Whether the audit trail tells of the person. */
  readonly isAudited: boolean;
}

/** What was erased. */
export interface Erasure {
  readonly record: boolean;
  /** As the partner carrier knows them, who must be asked to erase them too. */
  readonly applications: readonly { readonly reference: string; readonly applicationNumber: number | null }[];
  readonly attempts: number;
  readonly idempotencyKeys: number;
  /** Events of the audit trail that are kept without the person. */
  readonly events: number;
  /** The id that they have from now on; null where there is none. */
  readonly keptAs: string | null;
}

const Known = v.array(v.object({ id: v.string(), application_number: v.nullable(v.number()) }));

/** The carrier knows whose an application's id was. */
const anonymousId = sql`lower(hex(randomblob(16)))`;

/** The one place that knows every table in which somebody who uses the service can be found. */
export function createPersonalDataStore(db: Database) {
  /** The ids of the activities that a person's applications were credited by. */
  const creditIds = (userId: string) => sql`(SELECT ${ownActivityPrefix} || ${applications.id} || ':' || kind.value
    FROM ${applications}, json_each(${creditedKinds}) AS kind WHERE ${applications.userId} = ${userId})`;

  /** What the audit trail tells of a person: not what one of the staff has done or is, as long as the place is there. */
  const isAuditedAs = (userId: string) =>
    and(
      eq(auditEvents.userId, userId),
      sql`((${auditEvents.actor} <> 'staff' AND ${auditEvents.section} IS NOT 'staff')
        OR NOT EXISTS (SELECT 1 FROM ${staff} WHERE ${eq(staff.id, userId)}))`,
    );

  /** Whether there is anything to erase. */
  const isAnythingKept = (userId: string) =>
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
      const [place] = await db.select().from(staff).where(eq(staff.id, userId));
      return {
        record: found?.record,
        staff: place,
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
     * Removes a person in one transaction: the record, the keys, and what the carrier said. Applications stay as what
     * can be counted (flow, state, times), and credited activities, both under ids that lead nowhere. The person's own
     * place in the staff stays, with what the audit trail tells of it; the rest of that trail is moved to an id that
     * leads nowhere, together with the erasure.
     */
    async erase(userId: string, { operator, now }: { operator: Operator; now: Date }): Promise<Erasure> {
      const keptAs = `erased:${randomBytes(16).toString('hex')}`;
      const own = eq(applications.userId, userId);
      const ownIds = db.select({ id: applications.id }).from(applications).where(own);
      const [told = [], known = [], attempts = [], , , keys = [], record = [], events = []] = await writeBatch(db, [
        eventStatement(
          db,
          { userId: keptAs, action: 'erased', actor: 'operator', ...operator, now: now.getTime() },
          sql`WHERE ${isAnythingKept(userId)}`,
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
            // Closes an open one. The database does not count it any more.
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
          // A caller may name its requests by anything, and the carrier knows whose an application was.
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
        keptAs: told.length > 0 ? keptAs : null,
      };
    },
  };
}
