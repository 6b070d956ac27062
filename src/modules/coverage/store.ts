import { and, asc, desc, eq, gt, isNotNull, isNull, lt, ne, or, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { type ApplicationRow, applications, erasedUserId, idempotencyKeys, users } from '../../db/schema/people';
import type { Applicant } from '../../shared/carrier';
import { type ChangeOrigin, createOutcomeStore, eventOf, isOpen, isOpenState } from './outcomes';

/** Columns that the database computes when it creates an application. */
const openedColumns = { supersedes: applications.supersedes, createdAt: applications.createdAt };
const Opened = v.object({ supersedes: v.nullable(v.string()), created_at: v.number() });
const firstRetryAfterMs = 2_500;
const maxRetryAfterMs = 10 * 60_000;
/** The longest wait. A later instant comes from a clock that was set back, and is ignored. */
export const maxWaitMs = 6 * 60 * 60_000;

const staleMarginMs = 2_000;

/** The longest duration of an attempt. */
export function staleAfterMsOf({ attempts, timeoutMs }: { attempts: number; timeoutMs: number }): number {
  return attempts * timeoutMs + staleMarginMs;
}

const listedColumns = {
  id: applications.id,
  flow: applications.flow,
  state: applications.state,
  abandonedAt: applications.abandonedAt,
  applicationNumber: applications.applicationNumber,
  supersedes: applications.supersedes,
  createdAt: applications.createdAt,
  settledAt: applications.settledAt,
} as const;
export type ListedApplication = Pick<ApplicationRow, keyof typeof listedColumns>;

/** The largest number of a user's applications that are open or were created after an instant. */
export interface ApplicationCap {
  readonly count: number;
  /** Epoch milliseconds. */
  readonly since: number;
}

interface NewApplication extends ChangeOrigin {
  readonly id: string;
  readonly userId: string;
  readonly flow: ApplicationRow['flow'];
  readonly identityHash: string;
  readonly generation: number;
  readonly applicant: Applicant;
  readonly attemptStartedAt: number;
  readonly cap?: ApplicationCap | undefined;
}

interface KeyUse {
  readonly userId: string;
  readonly path: string;
  readonly key: string;
}

export function createApplicationStore(db: Database) {
  /** An application as it is now; undefined once its person is erased. */
  const find = async ({ id, userId }: ApplicationRow): Promise<ApplicationRow | undefined> => {
    const [row] = await db
      .select()
      .from(applications)
      .where(and(eq(applications.id, id), eq(applications.userId, userId)));
    return row;
  };

  /** The newest application of a user, flow and identity. */
  const findNewest = async (
    of: Pick<NewApplication, 'userId' | 'flow' | 'identityHash'>,
  ): Promise<ApplicationRow | undefined> => {
    const [row] = await db
      .select()
      .from(applications)
      .where(
        and(
          eq(applications.userId, of.userId),
          eq(applications.flow, of.flow),
          eq(applications.identityHash, of.identityHash),
        ),
      )
      .orderBy(desc(applications.generation))
      .limit(1);
    return row;
  };

  return {
    ...createOutcomeStore(db),
    find,
    findNewest,

    /** A page of a user's applications, newest first; undefined when `after` is not one of them. */
    async listByUser({ userId, limit, after }: ListedPage): Promise<ListedApplication[] | undefined> {
      const isOfUser = eq(applications.userId, userId);
      const isAfter =
        after === undefined
          ? undefined
          : sql`(${applications.createdAt}, ${applications.id}) <
              (SELECT created_at, id FROM applications WHERE id = ${after} AND user_id = ${userId})`;
      const page = await db
        .select(listedColumns)
        .from(applications)
        .where(and(isOfUser, isAfter))
        .orderBy(desc(applications.createdAt), desc(applications.id))
        .limit(limit);
      if (page.length > 0 || after === undefined) return page;
      return (await db.$count(applications, and(isOfUser, eq(applications.id, after)))) === 0 ? undefined : page;
    },

    /** The creation time of the oldest application that fills the cap; undefined while there is room. */
    async findCapping(userId: string, cap: ApplicationCap): Promise<number | undefined> {
      const [row] = await db
        .select({ createdAt: applications.createdAt })
        .from(applications)
        .where(isUnderCap(userId, cap))
        .orderBy(desc(applications.createdAt))
        .limit(1)
        .offset(cap.count - 1);
      return row?.createdAt;
    },

    /**
     * Names the carrier of application numbers that earlier builds stored without it. Does nothing if the table names
     * another carrier, because either of them may have given the numbers.
     */
    async nameCarrier(carrier: string): Promise<void> {
      const isAnotherNamed = sql`EXISTS (SELECT 1 FROM applications AS other WHERE other.carrier <> ${carrier})`;
      const isUnnamed = and(isNotNull(applications.applicationNumber), isNull(applications.carrier));
      if ((await db.$count(applications, isUnnamed)) === 0) return;
      await db
        .update(applications)
        .set({ carrier })
        .where(and(isUnnamed, sql`NOT ${isAnotherNamed}`));
    },

    /** The hash of the body of the key's first use. */
    async findKey({ userId, path, key }: KeyUse): Promise<string | undefined> {
      const [row] = await db
        .select()
        .from(idempotencyKeys)
        .where(and(eq(idempotencyKeys.userId, userId), eq(idempotencyKeys.path, path), eq(idempotencyKeys.key, key)));
      return row?.bodyHash;
    },

    /**
     * Stores the first use of a key, and removes keys from before `since`. Replaces a key that a wrong clock has dated
     * too far in the future.
     */
    async saveKey(use: KeyUse, bodyHash: string, now: number, since: number): Promise<void> {
      await writeBatch(db, [
        db.delete(idempotencyKeys).where(lt(idempotencyKeys.createdAt, since)),
        db
          .insert(idempotencyKeys)
          .values({ ...use, bodyHash, createdAt: now })
          .onConflictDoUpdate({
            target: [idempotencyKeys.userId, idempotencyKeys.path, idempotencyKeys.key],
            set: { bodyHash, createdAt: now },
            setWhere: gt(idempotencyKeys.createdAt, now + (now - since)),
          }),
      ]);
    },

    /**
     * Stores the application before the carrier is called.
     *
     * @returns undefined when another request was faster, the user has no record, or the cap is reached
     */
    async open(application: NewApplication): Promise<ApplicationRow | undefined> {
      const { id, userId, flow, identityHash, generation, applicant, attemptStartedAt, cap, ...origin } = application;
      const before = sql`(SELECT id FROM applications WHERE user_id = ${userId} AND flow = ${flow}
        AND identity_hash <> ${identityHash} ORDER BY created_at DESC LIMIT 1)`;
      // `created_at` is the order of a user's applications, also after the clock was set back.
      const createdAfterOthers = sql`(SELECT max(${origin.now}, coalesce(max(created_at) + 1, 0)) FROM applications
        WHERE user_id = ${userId})`;
      const hasRoom =
        cap && sql`(SELECT count(*) FROM ${applications} WHERE ${isUnderCap(userId, cap)}) < ${cap.count}`;
      const opened = db
        .select({
          id: sql`${id}`.as('id'),
          userId: users.id,
          flow: sql`${flow}`.as('flow'),
          identityHash: sql`${identityHash}`.as('identity_hash'),
          generation: sql`${generation}`.as('generation'),
          supersedes: sql`${before}`.as('supersedes'),
          applicant: sql`${JSON.stringify(applicant)}`.as('applicant'),
          state: sql`'submitting'`.as('state'),
          declineReason: sql`NULL`.as('decline_reason'),
          applicationNumber: sql`NULL`.as('application_number'),
          carrier: sql`NULL`.as('carrier'),
          pricing: sql`NULL`.as('pricing'),
          attempt: sql`1`.as('attempt'),
          attemptStartedAt: sql`${attemptStartedAt}`.as('attempt_started_at'),
          refusals: sql`0`.as('refusals'),
          retryAt: sql`NULL`.as('retry_at'),
          reconcileAt: sql`NULL`.as('reconcile_at'),
          abandonedAt: sql`NULL`.as('abandoned_at'),
          createdAt: sql`${createdAfterOthers}`.as('created_at'),
          settledAt: sql`NULL`.as('settled_at'),
        })
        .from(users)
        .where(and(eq(users.id, userId), hasRoom));
      const [[row] = []] = await writeBatch(db, [
        db.insert(applications).select(opened).onConflictDoNothing().returning(openedColumns),
        eventOf(db, { id, userId }, 'started', origin, eq(applications.id, id)),
      ]);
      if (row === undefined) return undefined;
      const { supersedes, created_at: createdAt } = v.parse(Opened, row);
      return {
        ...{ id, userId, flow, identityHash, generation, applicant, supersedes, createdAt },
        ...{ state: 'submitting', attempt: 1, attemptStartedAt },
        ...{ declineReason: null, applicationNumber: null, carrier: null, pricing: null, settledAt: null },
        ...{ refusals: 0, retryAt: null, reconcileAt: null, abandonedAt: null },
      };
    },

    /**
     * Claims an application for a new attempt; undefined when another attempt was faster. An abandoned application keeps
     * its reference, so that the carrier never has two.
     */
    async claim(application: ApplicationRow, attemptStartedAt: number): Promise<ApplicationRow | undefined> {
      const { state, attempt, abandonedAt } = application;
      const revived = abandonedAt === null ? {} : { abandonedAt: null, refusals: 0, reconcileAt: null };
      const [row] = await db
        .update(applications)
        .set({ state: 'submitting', attempt: attempt + 1, attemptStartedAt, retryAt: null, ...revived })
        .where(and(isOpen(application, attempt), eq(applications.state, state)))
        .returning();
      return row;
    },

    /**
     * Open applications without a running attempt, the oldest attempt first: `unknown` ones after an exponential backoff
     * of at most ten minutes and after the waits that are stored, `submitting` ones after the longest attempt.
     */
    async listOpen(which: {
      now: number;
      staleAfterMs: number;
      createdAfter: number;
      limit: number;
    }): Promise<ApplicationRow[]> {
      const { now, staleAfterMs, createdAfter, limit } = which;
      const sinceAttemptMs = sql`abs(${now} - ${applications.attemptStartedAt})`;
      const backoffMs = sql`min(${firstRetryAfterMs} << min(${applications.attempt} - 1, 10), ${maxRetryAfterMs})`;
      return db
        .select()
        .from(applications)
        .where(
          and(
            sql`CASE ${applications.state} WHEN 'unknown' THEN ${sinceAttemptMs} >= ${backoffMs}
                AND coalesce(${applications.retryAt}, 0) NOT BETWEEN ${now} + 1 AND ${now + maxWaitMs}
                AND coalesce(${applications.reconcileAt}, 0) NOT BETWEEN ${now} + 1 AND ${now + maxWaitMs}
              WHEN 'submitting' THEN ${sinceAttemptMs} > ${staleAfterMs} END`,
            isAwaited,
            ne(applications.userId, erasedUserId),
            gt(applications.createdAt, createdAfter),
          ),
        )
        .orderBy(asc(applications.attemptStartedAt))
        .limit(limit);
    },
  };
}

export type ApplicationStore = ReturnType<typeof createApplicationStore>;

export interface ListedPage {
  readonly userId: string;
  readonly limit: number;
  /** The id of the last application of the page before. */
  readonly after: string | undefined;
}

const isAwaited = and(isOpenState, isNull(applications.abandonedAt));

function isUnderCap(userId: string, { since }: ApplicationCap) {
  return and(eq(applications.userId, userId), or(gt(applications.createdAt, since), isAwaited));
}
