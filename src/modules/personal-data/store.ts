import { asc, eq, getTableColumns, inArray, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { activities, applicationAttempts, applications, idempotencyKeys, staff, users } from '../../db/schema';
import { erasedUserId } from '../../db/schema/applications';
import type { StaffRow } from '../../db/schema/sales';
import type { UserRow } from '../../db/schema/users';
import { creditedKinds, ownActivityPrefix } from '../sales/model';
import { type AnsweredRecord, answeredColumns } from '../users/store';

/** All that is kept about one person, as it is stored. */
export interface PersonalData {
  readonly record: (UserRow & AnsweredRecord) | undefined;
  /** The person's own place among those who sell, which is the employer's to keep. */
  readonly staff: StaffRow | undefined;
  readonly counselor: StaffRow | undefined;
  readonly applications: readonly (typeof applications.$inferSelect & {
    readonly attempts: readonly (typeof applicationAttempts.$inferSelect)[];
  })[];
  /** What the counselor was credited with. */
  readonly credits: readonly (typeof activities.$inferSelect)[];
  readonly idempotencyKeys: readonly (typeof idempotencyKeys.$inferSelect)[];
}

/** What was erased. */
export interface Erasure {
  readonly record: boolean;
  /** As the partner carrier knows them, who must be asked to erase them too. */
  readonly applications: readonly { readonly reference: string; readonly applicationNumber: number | null }[];
  readonly attempts: number;
  readonly idempotencyKeys: number;
}

const Known = v.array(v.object({ id: v.string(), application_number: v.nullable(v.number()) }));

/** The carrier knows whose an application's id was. */
const anonymousId = sql`lower(hex(randomblob(16)))`;

/** The one place that knows every table in which somebody who uses the service can be found. */
export function createPersonalDataStore(db: Database) {
  /** The ids of the activities that a person's applications were credited by. */
  const creditIds = (userId: string) => sql`(SELECT ${ownActivityPrefix} || ${applications.id} || ':' || kind.value
    FROM ${applications}, json_each(${creditedKinds}) AS kind WHERE ${applications.userId} = ${userId})`;

  return {
    async find(userId: string): Promise<PersonalData> {
      const [found] = await db
        .select({ record: { ...getTableColumns(users), ...answeredColumns }, counselor: staff })
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
      };
    },

    /**
     * Removes a person in one transaction: the record, the keys, and what the carrier said. Applications stay as what
     * can be counted (flow, state, times), and credited activities, both under ids that lead nowhere. The person's own
     * place in the staff stays.
     */
    async erase(userId: string): Promise<Erasure> {
      const own = eq(applications.userId, userId);
      const ownIds = db.select({ id: applications.id }).from(applications).where(own);
      const [known = [], attempts = [], , , keys = [], record = []] = await writeBatch(db, [
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
            applicant: sql`'{}'`,
            applicationNumber: null,
            pricing: null,
          })
          .where(own),
        db.delete(idempotencyKeys).where(eq(idempotencyKeys.userId, userId)).returning({ path: idempotencyKeys.path }),
        db.delete(users).where(eq(users.id, userId)).returning({ id: users.id }),
      ]);
      return {
        record: record.length > 0,
        applications: v.parse(Known, known).map(({ id, application_number }) => ({
          reference: id,
          applicationNumber: application_number,
        })),
        attempts: attempts.length,
        idempotencyKeys: keys.length,
      };
    },
  };
}
