import { createHash } from 'node:crypto';
import * as v from 'valibot';
import { type ApplicationRow, applicationFlows, applicationStates } from '../../db/schema/people';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { type Preconditions, wholeNumber } from '../../http/response';
import type { CalendarDate } from '../../shared/calendar';
import { type Applicant, CarrierError } from '../../shared/carrier';
import { fields } from '../../shared/fields';
import type { RequestId } from '../audit/store';
import { identityFields } from '../users/model';
import type { UserRecord, UserStore } from '../users/store';
import { type RecordVersion, staleRecord } from '../users/versions';
import { partnerOf } from './outcomes';
import type { ApplicationCap, ApplicationStore, ListedApplication, ListedPage } from './store';
import type { Submissions } from './submissions';

/** A request with the identity of the applicant; every field is required. */
export function totalCoverageRequest(today: () => CalendarDate) {
  return fields(identityFields(today));
}

export const totalCoverageExamples = {
  'an applicant': {
    firstName: 'Ada',
    lastName: 'Byron',
    dateOfBirth: '1956-12-10T00:00:00.000Z',
    gender: 'Female',
    state: 'VA',
    email: 'ada@example.com',
  },
} satisfies Record<string, v.InferInput<ReturnType<typeof totalCoverageRequest>>>;

export const IdempotencyKey = v.optional(
  v.pipe(v.string(), v.regex(/^[\x21-\x7e]{1,255}$/, 'idempotency_key: must be 1 to 255 visible ASCII characters')),
);

export const ApplicationsQuery = v.strictObject({
  limit: v.optional(wholeNumber('Applications a page', 1, 100), '20'),
  after: v.optional(v.pipe(v.string(), v.description('`next` of the page before'), v.minLength(1), v.maxLength(64))),
});
export type ApplicationsQuery = v.InferOutput<typeof ApplicationsQuery>;

export const ApplicationsBody = v.object({
  data: v.object({
    applications: v.array(
      v.object({
        id: v.string(),
        flow: v.picklist(applicationFlows),
        state: v.pipe(
          v.picklist([...applicationStates, 'abandoned']),
          v.description(
            '`submitting` and `unknown` are open. `abandoned`: the carrier refused the request repeatedly; only a new request ' +
              'of the user sends the application again, under the same id',
          ),
        ),
        appNumber: v.nullable(v.number()),
        supersedes: v.pipe(v.nullable(v.string()), v.description('The previous application, with other identity data')),
        createdAt: v.string(),
        settledAt: v.nullable(v.string()),
      }),
    ),
    next: v.pipe(v.nullable(v.string()), v.description('`after` of the next page; null on the last page')),
  }),
});
export type ApplicationsBody = v.InferOutput<typeof ApplicationsBody>;

const dayMs = 24 * 60 * 60_000;
/** How long an outcome is returned again for the same identity before a new application is started. */
const reusedForMs = { submitted: 30 * dayMs, declined: dayMs };
const idempotencyKeyTtlMs = dayMs;
const pollMs = 50;
/** A request that loses the insert race finds the winner's application in its second attempt. */
const openAttempts = 3;
/** `Retry-After` of a user whose open applications reach the cap. */
const openRetrySeconds = 60 * 60;

export interface CoverageRequest {
  readonly userId: string;
  readonly flow: ApplicationRow['flow'];
  readonly applicant: Applicant;
  readonly idempotencyKey: string | undefined;
  readonly preconditions: Preconditions;
  /** Called after the identity is stored, also if the application then fails. */
  readonly onSaved?: (record: RecordVersion) => void;
  readonly requestId: string;
}

export type CoverageDeps = Pick<AppDeps, 'clock' | 'systemClock' | 'config' | 'newId'>;

/**
 * Starts applications so that none is duplicated or lost: each is stored before the carrier is called, and changes by
 * conditional updates only.
 */
export function createCoverageService(
  { clock, systemClock, config, newId }: CoverageDeps,
  {
    users,
    applications: store,
    submissions,
  }: {
    users: UserStore;
    applications: ApplicationStore;
    submissions: Submissions;
  },
) {
  const nowMs = () => clock().getTime();

  /** Whether the same identity starts a new application. */
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
      detail: 'The user has reached the limit of applications for one day. No application was started.',
      headers: { 'retry-after': String(leftMs > 0 ? Math.ceil(leftMs / 1000) : openRetrySeconds) },
    });
  };

  /** Runs before the key and the identity are stored. An application that is returned again does not count. */
  const checkCapOfNew = async ({ userId, flow, applicant }: CoverageRequest): Promise<void> => {
    const newest = await store.findNewest({ userId, flow, identityHash: identityHash(applicant) });
    if (newest === undefined || isOver(newest)) await checkCap(userId);
  };

  /** @throws AppError `idempotency-key-reused` */
  const checkKey = async ({ userId, flow, applicant, idempotencyKey: key }: CoverageRequest): Promise<void> => {
    if (key === undefined) return;
    const bodyHash = identityHash(applicant);
    const use = { userId, path: `/v2/private/${flow}/totalCoverage`, key };
    await store.saveKey(use, bodyHash, nowMs(), nowMs() - idempotencyKeyTtlMs);
    if ((await store.findKey(use)) !== bodyHash) throw new AppError('idempotency-key-reused');
  };

  /** Finds the application of this identity or opens a new one, which the caller must submit. */
  const openOrFind = async ({ userId, flow, applicant, requestId }: CoverageRequest) => {
    const identity = { userId, flow, identityHash: identityHash(applicant) };
    for (let attempt = 0; attempt < openAttempts; attempt += 1) {
      const newest = await store.findNewest(identity);
      if (newest !== undefined && !isOver(newest)) return { application: newest, isNew: false };
      const generation = newest === undefined ? 0 : newest.generation + 1;
      const added = { ...identity, id: newId(), generation, applicant, requestId, cap: cap() };
      const opened = await store.open({ ...added, now: nowMs(), attemptStartedAt: systemClock().getTime() });
      if (opened !== undefined) return { application: opened, isNew: true };
      await checkCap(userId);
    }
    // The user was erased after the identity was stored.
    throw new AppError('application-in-progress');
  };

  /** Submits the application, or waits for the attempt that runs. */
  const untilSettled = async (
    opened: { application: ApplicationRow; isNew: boolean },
    requestId: RequestId,
  ): Promise<ApplicationRow> => {
    if (opened.isNew) await submissions.submit(opened.application, false, requestId);
    const deadlineMs = performance.now() + config.carrier.timeoutMs;
    for (;;) {
      const application = await store.find(opened.application);
      if (application === undefined) throw new AppError('application-in-progress');
      if (application.state === 'submitted' || application.state === 'declined') return application;
      const retryAfterMs = submissions.retryAfterMs(application);
      if (retryAfterMs !== undefined) {
        throw new CarrierError('unavailable', 'not asked: the carrier asks to wait', { wasAsked: false, retryAfterMs });
      }
      const claimed = await submissions.claim(application);
      if (claimed !== undefined) await submissions.submit(claimed, true, requestId);
      else if (performance.now() >= deadlineMs) throw new AppError('application-in-progress');
      else await Bun.sleep(pollMs);
    }
  };

  return {
    /**
     * Fills empty fields of the profile, then starts the application or finds the existing one. Returns the record with
     * the application's number.
     *
     * @throws AppError `precondition-failed`, `idempotency-key-reused`, `rate-limited`, `application-in-progress`,
     *   `carrier-declined`, or a failure of the carrier, after which the reconciler settles the application
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
     * A page of a user's applications, newest first.
     *
     * @throws AppError `invalid-input` when `after` is not an application of the user
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
  };
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

/** Ignores the case of the e-mail address and repeated spaces in names. */
export function identityHash(applicant: Applicant): string {
  const name = (text: string) => text.normalize('NFC').trim().replace(/\s+/g, ' ');
  const canonical = [
    name(applicant.firstName),
    name(applicant.lastName),
    applicant.dateOfBirth,
    applicant.gender,
    applicant.state,
    applicant.email.toLowerCase(),
  ];
  return createHash('sha256').update(JSON.stringify(canonical)).digest('hex');
}
