import { asc, eq, inArray, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { activities, applicationAttempts, applications, idempotencyKeys, staff, users } from '../../db/schema';
import { erasedUserId } from '../../db/schema/applications';
import type { StaffRow } from '../../db/schema/sales';
import type { UserRow } from '../../db/schema/users';
import { creditedKinds, ownActivityPrefix } from '../sales/model';

/** All that is kept about one person, as it is stored. */
export interface PersonalData {
  readonly record: UserRow | undefined;
  readonly counselor: StaffRow | undefined;
  readonly applications: readonly (typeof applications.$inferSelect & {
    readonly attempts: readonly (typeof applicationAttempts.$inferSelect)[];
  })[];
  readonly idempotencyKeys: readonly (typeof idempotencyKeys.$inferSelect)[];
}

/** What was erased. */
export interface Erasure {
  readonly record: boolean;
  readonly applications: number;
  readonly attempts: number;
  readonly idempotencyKeys: number;
}

/** The carrier knows whose an application's id was. */
const anonymousId = sql`lower(hex(randomblob(16)))`;

/** The one place that knows every table in which a person can be found. */
export function createPersonalDataStore(db: Database) {
  return {
    async find(userId: string): Promise<PersonalData> {
      const [found] = await db
        .select({ record: users, counselor: staff })
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
      return {
        record: found?.record,
        counselor: found?.counselor ?? undefined,
        applications: ownApplications.map((application) => ({
          ...application,
          attempts: attempts.flatMap(({ attempt }) => (attempt.applicationId === application.id ? [attempt] : [])),
        })),
        idempotencyKeys: await db.select().from(idempotencyKeys).where(eq(idempotencyKeys.userId, userId)),
      };
    },

    /**
     * Removes a person in one transaction: the record, the keys, and what the carrier said. Applications stay as what
     * can be counted (flow, state, times), and credited activities under ids of which nobody can tell whose they were.
     */
    async erase(userId: string): Promise<Erasure> {
      const own = eq(applications.userId, userId);
      const ownIds = db.select({ id: applications.id }).from(applications).where(own);
      const credits = sql`(SELECT ${ownActivityPrefix} || ${applications.id} || ':' || kind.value
        FROM ${applications}, json_each(${creditedKinds}) AS kind WHERE ${own})`;
      const [attempts = [], , erasedApplications = [], keys = [], record = []] = await writeBatch(db, [
        db.delete(applicationAttempts).where(inArray(applicationAttempts.applicationId, ownIds)).returning(),
        db
          .update(activities)
          .set({ externalId: sql`${ownActivityPrefix} || 'erased:' || ${anonymousId}` })
          .where(inArray(activities.externalId, credits)),
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
          .where(own)
          .returning({ id: applications.id }),
        db.delete(idempotencyKeys).where(eq(idempotencyKeys.userId, userId)).returning(),
        db.delete(users).where(eq(users.id, userId)).returning({ id: users.id }),
      ]);
      return {
        record: record.length > 0,
        applications: erasedApplications.length,
        attempts: attempts.length,
        idempotencyKeys: keys.length,
      };
    },
  };
}
