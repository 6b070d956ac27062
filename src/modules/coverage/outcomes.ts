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

/** Which request does something, and when. */
export interface ChangeOrigin {
  readonly requestId: RequestId;
  /** The login name of the operator, if an operator does it. */
  readonly actorId?: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Stores what becomes of an application at the carrier. */
export function createOutcomeStore(db: Database) {
  return {
    /**
     * Settles an application by what the carrier decided. An accepted one also becomes the purchase of its person,
     * unless that person has started another since, and is credited to the person's counselor. A refusal counts only
     * while no other attempt has taken the application over. Nothing is stored of one whose person was erased meanwhile.
     * A person may get the number of an earlier application with the same identity again; it is credited once.
     *
     * @returns 'number-taken' when the number belongs to another identity: the application is then unknown
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
     * Stores that the carrier's decision is unknown, or that the application is abandoned. The audit trail has an event
     * if a request asked, or if the application is abandoned.
     */
    async markUnsettled(
      application: ApplicationRow,
      error: CarrierError,
      next: Pick<ApplicationRow, 'refusals' | 'retryAt' | 'reconcileAt' | 'abandonedAt'>,
      origin: ChangeOrigin,
    ): Promise<void> {
      const isOwn = isOpen(application, application.attempt);
      const isAbandoned = next.abandonedAt !== null;
      const isTold = isAbandoned || origin.requestId !== null;
      const action = isAbandoned ? 'abandoned' : 'unsettled';
      await writeBatch(db, [
        recordAttempt(application, error.mayBeAccepted ? error.kind : notAccepted(error), error.reply, origin.now),
        ...(isTold ? [eventOf(db, application, action, origin, isOwn)] : []),
        db
          .update(applications)
          .set({ state: 'unknown', ...next })
          .where(isOwn),
      ]);
    },

    /**
     * Ends an open application without a decision of the carrier. An attempt that runs at the same time can store an
     * acceptance, and nothing else. Returns false if the application has changed since it was read.
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

    /** Whether no attempt before the latest one can have reached an acceptance, by what is stored of each. */
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

/** The event of an application, if the application is in the state that it needs. */
export function eventOf(
  db: Database,
  { id, userId }: Pick<ApplicationRow, 'id' | 'userId'>,
  action: AuditEvent['action'],
  { requestId, actorId, now }: ChangeOrigin,
  isDue: SQL | undefined,
) {
  const actor = actorId !== undefined ? 'operator' : requestId === null ? 'service' : 'person';
  const isSo = sql`WHERE EXISTS (SELECT 1 FROM ${applications} WHERE ${isDue})`;
  const by = actorId === undefined ? {} : { actorId };
  return eventStatement(db, { userId, actor, ...by, action, applicationId: id, requestId, now }, isSo);
}

/** A record's own event names a person or the service. What an operator settles is saved by the service. */
function requestOfUser({ requestId, actorId }: ChangeOrigin): RequestId {
  return actorId === undefined ? requestId : null;
}

/** Matches the partial index's condition so that SQLite uses it. */
export const isOpenState = sql`${applications.state} IN ('submitting', 'unknown')`;

/** Whether an application is its person's still and not settled. */
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

/** The states that an operator sees. An abandoned application is stored as `unknown`. */
export const shownStates = [...applicationStates, 'abandoned'] as const;
export type ShownState = (typeof shownStates)[number];

const pageRows = 500;

const isOfPerson = ne(applications.userId, erasedUserId);
const isWaiting = and(isOpenState, isNull(applications.abandonedAt), isOfPerson);

export function shownState({ state, abandonedAt }: Pick<ApplicationRow, 'state' | 'abandonedAt'>): ShownState {
  const isOpen = state === 'submitting' || state === 'unknown';
  return isOpen && abandonedAt !== null ? 'abandoned' : state;
}

/** What operators ask of the applications of all persons. */
export function createOperationStore(db: Database) {
  return {
    async findById(id: string): Promise<ApplicationRow | undefined> {
      const [row] = await db.select().from(applications).where(eq(applications.id, id));
      return row;
    },

    /** The applications in one of the states that were created before an instant, if one is given, in the order of their ids. */
    async *pages(states: readonly ShownState[], createdBefore?: number): AsyncGenerator<ApplicationRow[]> {
      const isOpenOnly = states.every((state) => state !== 'submitted' && state !== 'declined');
      // The few open ones have an index of their own, which the planner would not choose.
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
              isOfPerson,
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

    /** The age in seconds of the oldest application that has no decision and is not abandoned. */
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
