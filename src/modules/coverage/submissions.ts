import { acquireLease, releaseLease } from '../../db/queries';
import type { ApplicationRow } from '../../db/schema/people';
import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { every } from '../../shared/async';
import { CarrierError } from '../../shared/carrier';
import type { RequestId } from '../audit/store';
import { type ApplicationStore, maxWaitMs, staleAfterMsOf } from './store';

/** Abandons an application after this many refusals of the request itself, which takes about 18 hours. */
const maxRefusals = 8;
/** The reconciler's first wait after a refusal, and after an application number that is taken. */
const firstWaitMs = 60_000;
/** The reconciler stops retrying an application after this time. */
const reconciledForMs = 7 * 24 * 60 * 60_000;
const reconciledAtOnce = 20;
const intervalMs = 5_000;
const leaseName = 'reconciler';

export type SubmissionDeps = Pick<AppDeps, 'db' | 'clock' | 'systemClock' | 'config' | 'carrier' | 'log'> &
  Partial<Pick<AppDeps, 'metrics'>>;

/**
 * Submits stored applications to the carrier, under a reference that all attempts share. An attempt first claims its
 * application; the claim's number is the fencing token.
 */
export function createSubmissions(
  { db, clock, systemClock, config, carrier, log, metrics }: SubmissionDeps,
  store: ApplicationStore,
) {
  const nowMs = () => clock().getTime();
  const systemMs = () => systemClock().getTime();
  const staleAfterMs = staleAfterMsOf(config.carrier);

  /** Milliseconds until an instant of the system clock. 0 for an instant that only a clock that was set back can explain. */
  const untilMs = (instant: number | null): number => {
    const left = (instant ?? 0) - systemMs();
    return left <= maxWaitMs ? Math.max(left, 0) : 0;
  };

  /** Counts a refusal, and schedules the reconciler's next attempt. Refusals before that instant are not counted. */
  const afterFailure = (
    { refusals, reconcileAt }: ApplicationRow,
    { isRefusal, mayBeAccepted }: CarrierError,
  ): Pick<ApplicationRow, 'refusals' | 'reconcileAt'> => {
    if (!isRefusal) return { refusals, reconcileAt: mayBeAccepted ? null : reconcileAt };
    if (untilMs(reconcileAt) > 0) return { refusals, reconcileAt };
    return { refusals: refusals + 1, reconcileAt: systemMs() + Math.min(firstWaitMs * 4 ** refusals, maxWaitMs) };
  };

  const storeFailure = async (application: ApplicationRow, error: CarrierError, requestId: RequestId) => {
    const { retryAfterMs, code } = error;
    const retryAt = retryAfterMs === undefined ? null : systemMs() + retryAfterMs;
    const waiting = afterFailure(application, error);
    const isAbandoned =
      error.isRefusal && waiting.refusals >= maxRefusals && (await store.isNeverAccepted(application));
    const next = { ...waiting, retryAt, abandonedAt: isAbandoned ? nowMs() : null };
    await store.markUnsettled(application, error, next, { requestId, now: nowMs() });
    if (isAbandoned) log.error({ application: application.id, code }, 'an application is abandoned');
  };

  /**
   * Sends a claimed application to the carrier and stores the outcome.
   *
   * @param mayBeKnown asks the carrier for the reference first
   * @throws CarrierError
   */
  const submit = async (application: ApplicationRow, mayBeKnown: boolean, requestId: RequestId): Promise<void> => {
    const { id: clientReference, flow, applicant } = application;
    const decision = await carrier
      .start({ clientReference, flow, applicant }, mayBeKnown)
      .catch(async (error: unknown) => {
        if (error instanceof CarrierError) await storeFailure(application, error, requestId);
        throw error;
      });
    // As long as the application is old, so that the wait doubles.
    const ageMs = nowMs() - application.createdAt;
    const ifTaken = { reconcileAt: systemMs() + Math.min(Math.max(ageMs, firstWaitMs), maxWaitMs) };
    const origin = { requestId, now: nowMs() };
    if ((await store.settle(application, decision, carrier.id, ifTaken, origin)) === 'settled') return;
    metrics?.applicationNumberTaken();
    log.error({ application: clientReference }, 'the carrier gave a number that another application holds');
    throw new CarrierError('bad-answer', decision.reply);
  };

  /** Claims an application whose last attempt has ended or is stale; undefined while another attempt runs. */
  const claim = async (application: ApplicationRow): Promise<ApplicationRow | undefined> => {
    const { state, attemptStartedAt } = application;
    // `abs`: an attempt in the future was started by a clock that was set back since.
    const isRunning = state === 'submitting' && Math.abs(systemMs() - attemptStartedAt) <= staleAfterMs;
    return isRunning ? undefined : store.claim(application, systemMs());
  };

  return {
    submit,
    claim,

    /** The rest of the wait that the carrier has asked for; undefined when it is over. */
    retryAfterMs: ({ state, retryAt }: ApplicationRow): number | undefined =>
      state === 'unknown' ? untilMs(retryAt) || undefined : undefined,

    /**
     * Settles open applications without a running attempt, if this holder has the lease. Asks the carrier for each
     * reference, and sends only an application that the carrier does not know.
     *
     * @param isStopping called before each application
     * @returns the number of settled applications
     */
    async reconcile(holder: string, isStopping: () => boolean): Promise<number> {
      const open = await store.listOpen({
        now: systemMs(),
        staleAfterMs,
        createdAfter: nowMs() - reconciledForMs,
        limit: reconciledAtOnce,
      });
      // The lease outlasts one application, so that it expires only if its holder is dead.
      const leaseSeconds = Math.ceil(staleAfterMs / 1000) + 1;
      let settled = 0;
      for (const application of open) {
        if (isStopping() || !(await acquireLease(db, leaseName, holder, leaseSeconds))) break;
        const claimed = await claim(application);
        if (claimed === undefined) continue;
        try {
          await submit(claimed, true, null);
          settled += 1;
        } catch (error) {
          log.warn({ application: claimed.id, ...describeError(error) }, 'application not settled; retrying later');
          if (error instanceof CarrierError && !error.wasAsked) break;
        }
      }
      return settled;
    },

    stopReconciling: (holder: string) => releaseLease(db, leaseName, holder),

    /** Names the carrier of applications that earlier builds stored without it. */
    nameCarrier: () => store.nameCarrier(carrier.id),
  };
}

export type Submissions = ReturnType<typeof createSubmissions>;

/**
 * Reconciles now and every five seconds. `stop` waits for the current application only; a process that cannot wait may
 * end, because a later run settles the application.
 */
export function startReconciler(
  submissions: Pick<Submissions, 'nameCarrier' | 'reconcile' | 'stopReconciling'>,
  { newId, log }: Pick<AppDeps, 'newId' | 'log'>,
): { stop(): Promise<void> } {
  const holder = newId();
  let isNamed = false;
  const task = every({
    intervalMs,
    async run(isStopping) {
      if (!isNamed) await submissions.nameCarrier();
      isNamed = true;
      const settled = await submissions.reconcile(holder, isStopping);
      if (settled > 0) log.info({ settled }, 'applications were settled');
    },
    onFailure: (error) => log.error(describeError(error), 'could not settle open applications'),
  });
  return {
    async stop() {
      await task.stop();
      await submissions.stopReconciling(holder);
    },
  };
}
