import { and, asc, eq, gt, inArray, isNotNull, isNull, lt, min, ne, or, type SQL, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import {
  type ApplicationRow,
  type AuditEvent,
  applicationAttempts,
  applicationStates,
  applications,
  erasedUserId,
  users,
} from '../../db/schema/people';
import type { CarrierDecision, CarrierError } from '../../shared/carrier';
import { eventStatement, type RequestId } from '../audit/store';
import { creditStatement } from '../sales/store';
import { purchaseUpdate } from '../users/store';

/** The request or the operator that causes a change, and when. */
export interface ChangeOrigin {
  readonly requestId: RequestId;
  /** The login name of the operator; undefined for a request or the service. */
  readonly actorId?: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Stores the outcome of an application. */
export function createOutcomeStore(db: Database) {
  return {
    /**
     * Settles an application by the carrier's decision. An acceptance also sets the user's purchase, unless a later
     * application exists, and credits the user's counselor. The fencing token `attempt` discards a decline after another
     * attempt has claimed the application. Stores nothing after the user is erased. An application with the same identity
     * may get the number of an earlier one; the number is credited once.
     *
     * @returns 'number-taken' when the number belongs to another identity; the application is then `unknown`
     */
    async settle(
      application: ApplicationRow,
      decision: CarrierDecision,
      carrier: string,
      ifTaken: Pick<ApplicationRow, 'reconcileAt'>,
      origin: ChangeOrigin,
    ): Promise<'settled' | 'number-taken'> {
      const { now } = origin;
      const { id, userId, flow, identityHash, attempt, createdAt } = application;
      const attempted = recordAttempt(application, decision.kind, decision.reply, now);
      if (decision.kind === 'declined') {
        const declined = { state: 'declined', declineReason: decision.reason, settledAt: now } as const;
        await writeBatch(db, [
          attempted,
          eventOf(db, application, 'declined', origin, isOpen(application, attempt)),
          db.update(applications).set(declined).where(isOpen(application, attempt)),
        ]);
        return 'settled';
      }
      const { applicationNumber, pricing } = decision;
      const submitted = {
        ...({ state: 'submitted', applicationNumber, carrier, pricing, settledAt: now } as const),
        abandonedAt: null,
      };
      const isLatest = sql`NOT EXISTS (SELECT 1 FROM applications
        WHERE user_id = ${userId} AND (created_at, id) > (${createdAt}, ${id}))`;
      const holders = sql`SELECT 1 FROM applications AS other
        WHERE other.application_number = ${applicationNumber} AND other.carrier = ${carrier} AND other.id <> ${id}`;
      const isFree = sql`NOT EXISTS (${holders}
        AND (other.user_id, other.flow, other.identity_hash) <> (${userId}, ${flow}, ${identityHash}))`;
      const isAcceptable = and(isOpen(application), isFree);
      const isAccepted = sql`EXISTS (SELECT 1 FROM applications
        WHERE id = ${id} AND user_id = ${userId} AND state = 'submitted')`;
      const results = await writeBatch(db, [
        attempted,
        creditStatement(db, { applicationId: id, userId, now }, and(isAcceptable, sql`NOT EXISTS (${holders})`)),
        eventOf(db, application, 'accepted', origin, isAcceptable),
        db.update(applications).set(submitted).where(isAcceptable),
        purchaseUpdate(db, partnerOf(submitted), { now, requestId: requestOfUser(origin) }).where(
          and(eq(users.id, userId), isLatest, isAccepted),
        ),
        // An application that is still open was not accepted.
        db
          .update(applications)
          .set({ state: 'unknown', ...ifTaken })
          .where(isOpen(application, attempt))
          .returning({ id: applications.id }),
      ]);
      return results.at(-1)?.length === 0 ? 'settled' : 'number-taken';
    },

    /**
     * Stores that the carrier's decision is unknown, or that the application is abandoned. Adds an audit event for a
     * request and for an abandoned application.
     */
    async markUnsettled(
      application: ApplicationRow,
      error: CarrierError,
      next: Pick<ApplicationRow, 'refusals' | 'retryAt' | 'reconcileAt' | 'abandonedAt'>,
      origin: ChangeOrigin,
    ): Promise<void> {
      const isOwn = isOpen(application, application.attempt);
      const isAbandoned = next.abandonedAt !== null;
      const isAudited = isAbandoned || origin.requestId !== null;
      const action = isAbandoned ? 'abandoned' : 'unsettled';
      await writeBatch(db, [
        recordAttempt(application, error.mayBeAccepted ? error.kind : notAccepted(error), error.reply, origin.now),
        ...(isAudited ? [eventOf(db, application, action, origin, isOwn)] : []),
        db
          .update(applications)
          .set({ state: 'unknown', ...next })
          .where(isOwn),
      ]);
    },

    /**
     * Ends an open application without a decision of the carrier. A concurrent attempt can then store an acceptance only.
     *
     * @returns false when the application has changed since it was read
     */
    async abandon(application: ApplicationRow, origin: ChangeOrigin): Promise<boolean> {
      const { state, attempt } = application;
      const isUnchanged = and(isOpen(application, attempt), eq(applications.state, state));
      const abandoned = { state: 'unknown', abandonedAt: origin.now, attempt: attempt + 1 } as const;
      const next = { ...application, attempt: attempt + 1 };
      const results = await writeBatch(db, [
        eventOf(db, application, 'abandoned', origin, isUnchanged),
        recordAttempt(next, 'not-asked', 'abandoned by an operator', origin.now, isUnchanged),
        db
          .update(applications)
          .set({ ...abandoned, retryAt: null, reconcileAt: null })
          .where(isUnchanged)
          .returning({ id: applications.id }),
      ]);
      return results.at(-1)?.length === 1;
    },

    /** Whether the stored outcomes prove that no earlier attempt was accepted. */
    async isNeverAccepted({ id, attempt }: ApplicationRow): Promise<boolean> {
      const isRefused = inArray(applicationAttempts.outcome, notAcceptedOutcomes);
      const isEarlier = and(eq(applicationAttempts.applicationId, id), lt(applicationAttempts.attempt, attempt));
      return (await db.$count(applicationAttempts, and(isEarlier, isRefused))) === attempt - 1;
    },
  };

  function recordAttempt(
    { id, userId, attempt, attemptStartedAt }: ApplicationRow,
    outcome: string,
    reply: string,
    now: number,
    isDue?: SQL,
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
      .where(and(eq(applications.id, id), eq(applications.userId, userId), isDue));
    return db.insert(applicationAttempts).select(attempted).onConflictDoNothing();
  }
}

const notAcceptedOutcomes = ['refused', 'not-asked'] as const;

function notAccepted({ wasAsked }: CarrierError): (typeof notAcceptedOutcomes)[number] {
  return wasAsked ? 'refused' : 'not-asked';
}

/** The statement that adds an audit event of an application if `isDue` holds. */
export function eventOf(
  db: Database,
  { id, userId }: Pick<ApplicationRow, 'id' | 'userId'>,
  action: AuditEvent['action'],
  { requestId, actorId, now }: ChangeOrigin,
  isDue: SQL | undefined,
) {
  const actor = actorId !== undefined ? 'operator' : requestId === null ? 'service' : 'person';
  const source = sql`WHERE EXISTS (SELECT 1 FROM ${applications} WHERE ${isDue})`;
  const by = actorId === undefined ? {} : { actorId };
  return eventStatement(db, { userId, actor, ...by, action, applicationId: id, requestId, now }, source);
}

/** An event of a record names its user or the service, never an operator. */
function requestOfUser({ requestId, actorId }: ChangeOrigin): RequestId {
  return actorId === undefined ? requestId : null;
}

/** Equals the condition of the partial index, so that SQLite uses the index. */
export const isOpenState = sql`${applications.state} IN ('submitting', 'unknown')`;

/** Whether an application is open and its user is not erased. */
export function isOpen({ id, userId }: ApplicationRow, attempt?: number) {
  return and(
    eq(applications.id, id),
    eq(applications.userId, userId),
    attempt === undefined ? undefined : eq(applications.attempt, attempt),
    isOpenState,
  );
}

/** `purchase.partner` of a submitted application. */
export function partnerOf({ applicationNumber, pricing }: Pick<ApplicationRow, 'applicationNumber' | 'pricing'>) {
  if (applicationNumber === null || pricing === null) throw new Error('A submitted application has no number');
  return { appNumber: applicationNumber, pricing };
}

/** The states that operators see. An abandoned application is stored as `unknown`. */
export const shownStates = [...applicationStates, 'abandoned'] as const;
export type ShownState = (typeof shownStates)[number];

const pageRows = 500;

const isNotErased = ne(applications.userId, erasedUserId);
const isWaiting = and(isOpenState, isNull(applications.abandonedAt), isNotErased);

export function shownState({ state, abandonedAt }: Pick<ApplicationRow, 'state' | 'abandonedAt'>): ShownState {
  const isOpen = state === 'submitting' || state === 'unknown';
  return isOpen && abandonedAt !== null ? 'abandoned' : state;
}

/** Reads applications of all users, for operators. */
export function createOperationStore(db: Database) {
  return {
    async findById(id: string): Promise<ApplicationRow | undefined> {
      const [row] = await db.select().from(applications).where(eq(applications.id, id));
      return row;
    },

    /** Yields the applications in these states, by id. `createdBefore` is in epoch milliseconds. */
    async *pages(states: readonly ShownState[], createdBefore?: number): AsyncGenerator<ApplicationRow[]> {
      const isOpenOnly = states.every((state) => state !== 'submitted' && state !== 'declined');
      // Makes the planner choose the partial index of open applications.
      const id = isOpenOnly ? sql`+${applications.id}` : sql`${applications.id}`;
      let after = '';
      for (;;) {
        const page = await db
          .select()
          .from(applications)
          .where(
            and(
              isOpenOnly ? isOpenState : undefined,
              or(...states.map(isInState)),
              isNotErased,
              createdBefore === undefined ? undefined : lt(applications.createdAt, createdBefore),
              gt(id, after),
            ),
          )
          .orderBy(asc(id))
          .limit(pageRows);
        const last = page.at(-1);
        if (last === undefined) return;
        yield page;
        after = last.id;
      }
    },

    /** The age in seconds of the oldest application without a decision that is not abandoned. */
    async findOldestOpenAge(now: number): Promise<number | undefined> {
      const [row] = await db
        .select({ createdAt: min(applications.createdAt) })
        .from(applications)
        .where(isWaiting);
      const createdAt = row?.createdAt ?? undefined;
      return createdAt === undefined ? undefined : Math.max(0, (now - createdAt) / 1000);
    },
  };
}

function isInState(state: ShownState) {
  if (state === 'abandoned') return and(isOpenState, isNotNull(applications.abandonedAt));
  if (state === 'submitted' || state === 'declined') return eq(applications.state, state);
  return and(eq(applications.state, state), isNull(applications.abandonedAt));
}
