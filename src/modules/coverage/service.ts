import type { ApplicationRow } from '../../db/schema/people';
import { acquireLease, releaseLease } from '../../db/statements';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import type { Preconditions } from '../../http/response';
import { describeError } from '../../log';
import { type Applicant, CarrierError } from '../../shared/carrier';
import type { RequestId } from '../audit/store';
import type { UserRecord, UserStore } from '../users/store';
import { type RecordVersion, staleRecord } from '../users/versions';
import { identityHash } from './model';
import { partnerOf } from './outcomes';
import {
  type ApplicationCap,
  createApplicationStore,
  type ListedApplication,
  type ListedPage,
  maxWaitMs,
  staleAfterMsOf,
} from './store';

const dayMs = 24 * 60 * 60_000;
/** How long an accepted application is answered again, and a decline repeated, before a new one is started. */
const reusedForMs = { submitted: 30 * dayMs, declined: dayMs };
const keyKeptForMs = dayMs;
const pollMs = 50;
/** Whoever was slower finds the application of the faster one the second time. */
const openingAttempts = 3;
/** The reconciler stops retrying an application after this time. */
const reconciledForMs = 7 * dayMs;
const reconciledAtOnce = 20;
/** After so many refusals of the request itself, over some 18 hours, the application is abandoned. */
const maxRefusals = 8;
/** Before the reconciler asks again after a refusal, and after a number that is taken. */
const firstWaitMs = 60_000;
/** When the cap holds a person whose applications stay open. */
const openRetrySeconds = 60 * 60;

export interface CoverageRequest {
  readonly userId: string;
  readonly flow: ApplicationRow['flow'];
  readonly applicant: Applicant;
  readonly idempotencyKey: string | undefined;
  readonly preconditions: Preconditions;
  /** Called once the identity is stored, whatever becomes of the application. */
  readonly onSaved?: (record: RecordVersion) => void;
  readonly requestId: string;
}

export type CoverageDeps = Pick<AppDeps, 'db' | 'clock' | 'systemClock' | 'config' | 'carrier' | 'newId' | 'log'> &
  Partial<Pick<AppDeps, 'metrics'>>;

/**
 * Starts applications at the carrier so that none is ever doubled or lost: each is written down before the carrier
 * is called, under a reference that every attempt uses, and moves by one conditional update at a time.
 */
export function createCoverageService(
  { db, clock, systemClock, config, carrier, newId, log, metrics }: CoverageDeps,
  users: UserStore,
) {
  const store = createApplicationStore(db);
  const nowMs = () => clock().getTime();
  const systemMs = () => systemClock().getTime();
  const staleAfterMs = staleAfterMsOf(config.carrier);
  /** An attempt that began in the future was dated by a wrong clock, and is stale too. */
  const isStale = ({ state, attemptStartedAt }: ApplicationRow) =>
    state === 'submitting' && Math.abs(systemMs() - attemptStartedAt) > staleAfterMs;

  /** The application that answers for these data now: the one there is, or a new one, which the caller must submit. */
  const openOrFind = async ({ userId, flow, applicant, requestId }: CoverageRequest) => {
    const identity = { userId, flow, identityHash: identityHash(applicant) };
    for (let attempt = 0; attempt < openingAttempts; attempt += 1) {
      const newest = await store.findNewest(identity);
      if (newest !== undefined && !isOver(newest)) return { application: newest, isNew: false };
      const generation = newest === undefined ? 0 : newest.generation + 1;
      const added = { ...identity, id: newId(), generation, applicant, requestId, cap: cap() };
      const opened = await store.open({ ...added, now: nowMs(), attemptStartedAt: systemMs() });
      if (opened !== undefined) return { application: opened, isNew: true };
      await checkCap(userId);
    }
    // The person was erased after the identity was saved.
    throw new AppError('application-in-progress');
  };

  const isOver = ({ state, settledAt }: ApplicationRow): boolean => {
    if (state !== 'submitted' && state !== 'declined') return false;
    const ageMs = nowMs() - (settledAt ?? 0);
    // A decline that a wrong clock dated years ahead would be repeated for years.
    return (state === 'declined' ? Math.abs(ageMs) : ageMs) >= reusedForMs[state];
  };

  const cap = (): ApplicationCap | undefined =>
    config.carrier.applicationsPerDay === 0
      ? undefined
      : { count: config.carrier.applicationsPerDay, since: nowMs() - dayMs };

  /** @throws AppError `rate-limited` */
  const checkCap = async (userId: string): Promise<void> => {
    const current = cap();
    const cappingSince = current && (await store.findCapping(userId, current));
    if (cappingSince === undefined) return;
    const leftMs = Math.min(cappingSince + dayMs - nowMs(), dayMs);
    throw new AppError('rate-limited', {
      detail: 'The caller has started as many applications as a day allows. No application was started.',
      headers: { 'retry-after': String(leftMs > 0 ? Math.ceil(leftMs / 1000) : openRetrySeconds) },
    });
  };

  /** Runs before the key and the identity are stored. An application that is answered again is not counted. */
  const checkCapOfNew = async ({ userId, flow, applicant }: CoverageRequest): Promise<void> => {
    const newest = await store.findNewest({ userId, flow, identityHash: identityHash(applicant) });
    if (newest === undefined || isOver(newest)) await checkCap(userId);
  };

  /** Asks the carrier on behalf of the attempt that `application` stands for, and stores the outcome. */
  const submit = async (application: ApplicationRow, mayBeKnown: boolean, requestId: RequestId): Promise<void> => {
    const { id: clientReference, flow, applicant } = application;
    const decision = await carrier
      .start({ clientReference, flow, applicant }, mayBeKnown)
      .catch(async (error: unknown) => {
        if (!(error instanceof CarrierError)) throw error;
        const { retryAfterMs, code } = error;
        const retryAt = retryAfterMs === undefined ? null : systemMs() + retryAfterMs;
        const waiting = afterFailure(application, error);
        const isAbandoned =
          error.isRefusal && waiting.refusals >= maxRefusals && (await store.isNeverAccepted(application));
        const next = { ...waiting, retryAt, abandonedAt: isAbandoned ? nowMs() : null };
        await store.markUnsettled(application, error, next, { requestId, now: nowMs() });
        if (isAbandoned) log.error({ application: clientReference, code }, 'an application is abandoned');
        throw error;
      });
    const origin = { requestId, now: nowMs() };
    // The wait doubles, since it is as long as the application is old.
    const ageMs = nowMs() - application.createdAt;
    const ifTaken = { reconcileAt: systemMs() + Math.min(Math.max(ageMs, firstWaitMs), maxWaitMs) };
    if ((await store.settle(application, decision, carrier.id, ifTaken, origin)) === 'settled') return;
    metrics?.applicationNumberTaken();
    log.error({ application: clientReference }, 'the carrier gave a number that another application holds');
    throw new CarrierError('bad-answer', decision.reply);
  };

  /** When the reconciler asks again. A refusal before that instant, which a person's request may get, is not counted. */
  const afterFailure = (
    { refusals, reconcileAt }: ApplicationRow,
    { isRefusal, mayBeAccepted }: CarrierError,
  ): Pick<ApplicationRow, 'refusals' | 'reconcileAt'> => {
    if (!isRefusal) return { refusals, reconcileAt: mayBeAccepted ? null : reconcileAt };
    if (untilMs(reconcileAt) > 0) return { refusals, reconcileAt };
    return {
      refusals: refusals + 1,
      reconcileAt: systemMs() + Math.min(firstWaitMs * 4 ** refusals, maxWaitMs),
    };
  };

  /** Milliseconds until a stored instant; 0 if a clock that was set back since has put it too far away. */
  const untilMs = (instant: number | null): number => {
    const left = (instant ?? 0) - systemMs();
    return left <= maxWaitMs ? Math.max(left, 0) : 0;
  };

  /** How long the carrier has asked to leave an application alone; undefined once that is over. */
  const waitOf = ({ state, retryAt }: ApplicationRow): number | undefined =>
    state === 'unknown' ? untilMs(retryAt) || undefined : undefined;

  /** Brings an application to an end that can be answered: by this caller, or by waiting for the one who is at it. */
  const untilSettled = async (
    opened: { application: ApplicationRow; isNew: boolean },
    requestId: RequestId,
  ): Promise<ApplicationRow> => {
    if (opened.isNew) await submit(opened.application, false, requestId);
    const deadlineMs = performance.now() + config.carrier.timeoutMs;
    for (;;) {
      const application = await store.find(opened.application);
      if (application === undefined) throw new AppError('application-in-progress');
      if (application.state === 'submitted' || application.state === 'declined') return application;
      const retryAfterMs = waitOf(application);
      if (retryAfterMs !== undefined) {
        throw new CarrierError('unavailable', 'not asked: the carrier asks to wait', { wasAsked: false, retryAfterMs });
      }
      const isFree = application.state === 'unknown' || isStale(application);
      const taken = isFree ? await store.takeOver(application, systemMs()) : undefined;
      if (taken !== undefined) await submit(taken, true, requestId);
      else if (performance.now() >= deadlineMs) throw new AppError('application-in-progress');
      else await Bun.sleep(pollMs);
    }
  };

  return {
    /**
     * Fills the empty fields of the profile, starts the application or finds the one there is, and gives the record with its number.
     *
     * @throws AppError `precondition-failed`, `idempotency-key-reused`, `rate-limited`, `application-in-progress`,
     *   `carrier-declined`, or one of the carrier's failures, after which the application is kept and settled later
     */
    async start(request: CoverageRequest): Promise<UserRecord> {
      const { userId, applicant, preconditions, requestId } = request;
      await checkCapOfNew(request);
      await checkKey(request);
      // The applicant may be another person, such as a spouse.
      const profile = { section: 'profile', patch: { ...applicant }, onlyEmpty: true } as const;
      const saved = await users.saveSection({ userId, ...profile, preconditions, requestId, now: clock() });
      if (saved === undefined) throw staleRecord(await users.find(userId));
      request.onSaved?.(saved);
      try {
        const application = await untilSettled(await openOrFind(request), requestId);
        if (application.state === 'declined') throw declined(application);
        const purchase = { userId, applicationId: application.id, partner: partnerOf(application) };
        const record = await users.setPurchase({ ...purchase, requestId, now: nowMs() });
        if (record === undefined) throw new AppError('application-in-progress');
        return record;
      } catch (error) {
        if (error instanceof CarrierError) throw failed(error);
        throw error;
      }
    },

    /**
     * A page of a person's applications, the newest first.
     *
     * @throws AppError `invalid-input` when `after` is none of them
     */
    async list(page: ListedPage): Promise<{ applications: ListedApplication[]; next: string | null }> {
      const listed = await store.listByUser({ ...page, limit: page.limit + 1 });
      if (listed === undefined) {
        const message = 'must be `next` of a page of the same person';
        throw new AppError('invalid-input', { errors: [{ pointer: 'after', rule: 'cursor', message }] });
      }
      const applications = listed.slice(0, page.limit);
      return { applications, next: (listed.length > page.limit && applications.at(-1)?.id) || null };
    },

    /**
     * Settles the applications that nobody is at, if no other process does: the carrier is asked for each reference,
     * and only what it does not know is sent again.
     *
     * @param isStopping asked before each application
     * @returns how many were settled
     */
    async reconcile(holder: string, isStopping: () => boolean): Promise<number> {
      const open = await store.listOpen({
        now: systemMs(),
        staleAfterMs,
        createdAfter: nowMs() - reconciledForMs,
        limit: reconciledAtOnce,
      });
      let settled = 0;
      for (const application of open) {
        if (isStopping() || !(await holdsLease(holder))) break;
        const taken = await store.takeOver(application, systemMs());
        if (taken === undefined) continue;
        try {
          await submit(taken, true, null);
          settled += 1;
        } catch (error) {
          log.warn({ application: taken.id, ...describeError(error) }, 'an application is still not settled');
          if (error instanceof CarrierError && !error.wasAsked) break;
        }
      }
      return settled;
    },

    /** Completes what earlier builds stored. */
    nameCarrier: () => store.nameCarrier(carrier.id),

    /** Lets another process reconcile. */
    stopReconciling: (holder: string) => releaseLease(db, 'reconciler', holder),
  };

  /** For longer than one application can take, so that only a dead holder is followed. */
  function holdsLease(holder: string): Promise<boolean> {
    return acquireLease(db, 'reconciler', holder, Math.ceil(staleAfterMs / 1000) + 1);
  }

  async function checkKey({ userId, flow, applicant, idempotencyKey: key }: CoverageRequest): Promise<void> {
    if (key === undefined) return;
    const bodyHash = identityHash(applicant);
    const use = { userId, path: `/v2/private/${flow}/totalCoverage`, key };
    await store.saveKey(use, bodyHash, nowMs(), nowMs() - keyKeptForMs);
    if ((await store.findKey(use)) !== bodyHash) throw new AppError('idempotency-key-reused');
  }
}

export type CoverageService = ReturnType<typeof createCoverageService>;

function failed(error: CarrierError): AppError {
  const { kind, retryAfterMs } = error;
  const seconds = retryAfterMs === undefined ? undefined : Math.max(1, Math.ceil(retryAfterMs / 1000));
  const headers = seconds === undefined ? {} : { 'retry-after': String(seconds) };
  return new AppError(`carrier-${kind}`, { cause: error, headers });
}

function declined({ declineReason }: ApplicationRow): AppError {
  return declineReason === 'not-filed'
    ? new AppError('carrier-declined', { detail: 'The carrier does not offer this in the applicant’s state.' })
    : new AppError('carrier-declined');
}
