import { and, asc, desc, eq, gt, lt, ne, type SQL, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { applicationAttempts, applications, idempotencyKeys, users } from '../../db/schema';
import { type ApplicationRow, erasedUserId } from '../../db/schema/applications';
import type { AuditEvent } from '../../db/schema/audit';
import { eventStatement, type RequestId } from '../audit/store';
import { creditStatement } from '../sales/store';
import { type AnsweredRecord, answeredColumns, purchaseUpdate } from '../users/store';
import { noteWritten } from '../users/written-versions';
import type { Applicant, CarrierDecision, CarrierError } from './carrier/carrier';

/** What the database finds out when it makes an application. */
const openedColumns = { supersedes: applications.supersedes, createdAt: applications.createdAt };
const Opened = v.object({ supersedes: v.nullable(v.string()), created_at: v.number() });
const firstPatienceMs = 2_500;
const maxPatienceMs = 10 * 60_000;

export interface NewApplication {
  readonly id: string;
  readonly userId: string;
  readonly flow: ApplicationRow['flow'];
  readonly identityHash: string;
  readonly generation: number;
  readonly applicant: Applicant;
  readonly requestId: RequestId;
  readonly now: number;
  readonly attemptStartedAt: number;
}

/** Which request does something, and when. */
export type Doing = Pick<NewApplication, 'requestId' | 'now'>;

export interface KeyUse {
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

  /** The newest application of a person, flow and identity. */
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
    find,
    findNewest,

    async listByUser(userId: string): Promise<ApplicationRow[]> {
      return db
        .select()
        .from(applications)
        .where(eq(applications.userId, userId))
        .orderBy(desc(applications.createdAt), desc(applications.id));
    },

    /** The hash of the body that a key was first used with. */
    async findKey({ userId, path, key }: KeyUse): Promise<string | undefined> {
      const [row] = await db
        .select()
        .from(idempotencyKeys)
        .where(and(eq(idempotencyKeys.userId, userId), eq(idempotencyKeys.path, path), eq(idempotencyKeys.key, key)));
      return row?.bodyHash;
    },

    /** Keeps the first use of a key, and forgets the keys from before `since`. */
    async saveKey(use: KeyUse, bodyHash: string, now: number, since: number): Promise<void> {
      await writeBatch(db, [
        db.delete(idempotencyKeys).where(lt(idempotencyKeys.createdAt, since)),
        db
          .insert(idempotencyKeys)
          .values({ ...use, bodyHash, createdAt: now })
          .onConflictDoNothing(),
      ]);
    },

    /**
     * Writes the application down before the carrier is called; undefined when another caller was first, or the person
     * has no record (any more).
     */
    async open(application: NewApplication): Promise<ApplicationRow | undefined> {
      const { id, userId, flow, identityHash, generation, applicant, requestId, now, attemptStartedAt } = application;
      const before = sql`(SELECT id FROM applications WHERE user_id = ${userId} AND flow = ${flow}
        AND identity_hash <> ${identityHash} ORDER BY created_at DESC LIMIT 1)`;
      // The order in which a person's applications were started is told by it, so a clock that was set back must not.
      const createdAfterOthers = sql`(SELECT max(${now}, coalesce(max(created_at) + 1, 0)) FROM applications
        WHERE user_id = ${userId})`;
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
          pricing: sql`NULL`.as('pricing'),
          attempt: sql`1`.as('attempt'),
          attemptStartedAt: sql`${attemptStartedAt}`.as('attempt_started_at'),
          createdAt: sql`${createdAfterOthers}`.as('created_at'),
          settledAt: sql`NULL`.as('settled_at'),
        })
        .from(users)
        .where(eq(users.id, userId));
      const [[row] = []] = await writeBatch(db, [
        db.insert(applications).select(opened).onConflictDoNothing().returning(openedColumns),
        event({ id, userId }, 'started', { requestId, now }, eq(applications.id, id)),
      ]);
      if (row === undefined) return undefined;
      const { supersedes, created_at: createdAt } = v.parse(Opened, row);
      return {
        ...{ id, userId, flow, identityHash, generation, applicant, supersedes, createdAt },
        ...{ state: 'submitting', attempt: 1, attemptStartedAt },
        ...{ declineReason: null, applicationNumber: null, pricing: null, settledAt: null },
      };
    },

    /** Takes on an application that nobody settles any more; undefined when another caller did. */
    async takeOver(application: ApplicationRow, attemptStartedAt: number): Promise<ApplicationRow | undefined> {
      const { state, attempt } = application;
      const [row] = await db
        .update(applications)
        .set({ state: 'submitting', attempt: attempt + 1, attemptStartedAt })
        .where(and(isOpen(application, attempt), eq(applications.state, state)))
        .returning();
      return row;
    },

    /**
     * Settles an application by what the carrier decided. An accepted one also becomes the purchase of its person,
     * unless that person has started another since, and is credited to the person's counselor; a refusal counts only
     * while no other attempt has taken it on. Nothing of one whose person was erased meanwhile.
     */
    async settle(application: ApplicationRow, decision: CarrierDecision, doing: Doing): Promise<void> {
      const { now } = doing;
      const { id, userId, attempt, createdAt } = application;
      const attempted = recordAttempt(application, decision.kind, decision.reply, now);
      if (decision.kind === 'declined') {
        const declined = { state: 'declined', declineReason: decision.reason, settledAt: now } as const;
        await writeBatch(db, [
          attempted,
          event(application, 'declined', doing, isOpen(application, attempt)),
          db.update(applications).set(declined).where(isOpen(application, attempt)),
        ]);
        return;
      }
      const { applicationNumber, pricing } = decision;
      const submitted = { state: 'submitted', applicationNumber, pricing, settledAt: now } as const;
      const isLatest = sql`NOT EXISTS (SELECT 1 FROM applications
        WHERE user_id = ${userId} AND (created_at, id) > (${createdAt}, ${id}))`;
      await writeBatch(db, [
        attempted,
        creditStatement(db, { applicationId: id, userId, now }, isOpen(application)),
        event(application, 'accepted', doing, isOpen(application)),
        db.update(applications).set(submitted).where(isOpen(application)),
        purchaseUpdate(db, partnerOf(submitted), doing).where(
          and(eq(users.id, userId), isLatest, isStillOf(application)),
        ),
      ]);
    },

    /**
     * Makes a submitted application the purchase of its person, and gives the record; undefined when either is gone.
     * One that is the purchase already is not written again.
     */
    async setPurchase(application: ApplicationRow, doing: Doing): Promise<AnsweredRecord | undefined> {
      const [row] = await purchaseUpdate(db, partnerOf(application), doing)
        .where(and(eq(users.id, application.userId), isStillOf(application)))
        .returning(answeredColumns);
      if (row !== undefined) noteWritten(db, row);
      return row;
    },

    /** Notes that it is not known what the carrier decided; in the audit trail only where somebody asked. */
    async markUnknown(application: ApplicationRow, error: CarrierError, doing: Doing): Promise<void> {
      const isOwn = isOpen(application, application.attempt);
      const told = doing.requestId === null ? [] : [event(application, 'unsettled', doing, isOwn)];
      const unknown = db.update(applications).set({ state: 'unknown' }).where(isOwn);
      await writeBatch(
        db,
        error.wasAsked
          ? [recordAttempt(application, error.kind, error.reply, doing.now), ...told, unknown]
          : [...told, unknown],
      );
    },

    /**
     * Applications that nobody settles: unknown for a while, which doubles with each attempt up to ten minutes, or
     * submitting for longer than an attempt takes. The longest untouched first.
     */
    async listOpen(which: {
      now: number;
      staleAfterMs: number;
      createdAfter: number;
      limit: number;
    }): Promise<ApplicationRow[]> {
      const { now, staleAfterMs, createdAfter, limit } = which;
      const untouchedMs = sql`abs(${now} - ${applications.attemptStartedAt})`;
      const patienceMs = sql`min(${firstPatienceMs} << min(${applications.attempt} - 1, 10), ${maxPatienceMs})`;
      return db
        .select()
        .from(applications)
        .where(
          and(
            sql`CASE ${applications.state} WHEN 'unknown' THEN ${untouchedMs} >= ${patienceMs}
              WHEN 'submitting' THEN ${untouchedMs} > ${staleAfterMs} END`,
            isOpenState,
            ne(applications.userId, erasedUserId),
            gt(applications.createdAt, createdAfter),
          ),
        )
        .orderBy(asc(applications.attemptStartedAt))
        .limit(limit);
    },
  };

  /** The statement that tells of an application, if it is as it must be for what comes of it. */
  function event(
    { id, userId }: Pick<ApplicationRow, 'id' | 'userId'>,
    action: AuditEvent['action'],
    { requestId, now }: Doing,
    isDue: SQL | undefined,
  ) {
    const actor = requestId === null ? 'service' : 'person';
    const isSo = sql`WHERE EXISTS (SELECT 1 FROM ${applications} WHERE ${isDue})`;
    return eventStatement(db, { userId, actor, action, applicationId: id, requestId, now }, isSo);
  }

  function recordAttempt(
    { id, userId, attempt, attemptStartedAt }: ApplicationRow,
    outcome: string,
    reply: string,
    now: number,
  ) {
    const attempted = db
      .select({
        applicationId: applications.id,
        attempt: sql`${attempt}`.as('attempt'),
        startedAt: sql`${attemptStartedAt}`.as('started_at'),
        endedAt: sql`${now}`.as('ended_at'),
        outcome: sql`${outcome}`.as('outcome'),
        reply: sql`${reply}`.as('reply'),
      })
      .from(applications)
      .where(and(eq(applications.id, id), eq(applications.userId, userId)));
    return db.insert(applicationAttempts).select(attempted).onConflictDoNothing();
  }
}

// As the partial index says it, so that the index is used.
const isOpenState = sql`${applications.state} IN ('submitting', 'unknown')`;

/** Whether an application is still its person's: an erasure leaves it to nobody. */
function isStillOf({ id, userId }: ApplicationRow) {
  return sql`EXISTS (SELECT 1 FROM applications WHERE id = ${id} AND user_id = ${userId})`;
}

function isOpen({ id, userId }: ApplicationRow, attempt?: number) {
  return and(
    eq(applications.id, id),
    eq(applications.userId, userId),
    attempt === undefined ? undefined : eq(applications.attempt, attempt),
    isOpenState,
  );
}

/** What a person's record says of a submitted application. */
export function partnerOf({ applicationNumber, pricing }: Pick<ApplicationRow, 'applicationNumber' | 'pricing'>) {
  if (applicationNumber === null || pricing === null) throw new Error('A submitted application has no number');
  return { appNumber: applicationNumber, pricing };
}
