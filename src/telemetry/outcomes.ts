import { findDatabaseError } from '../db/errors';
import type { Log } from '../log';
import { CarrierError } from '../shared/carrier';
import type { CarrierObserver } from './events';

/** A failure of the database, as one of few words: its codes may come from a server. */
export function databaseOutcome(error: unknown): string {
  const failure = findDatabaseError(error);
  switch (failure?.code) {
    case 'SQLITE_BUSY':
    case 'SQLITE_LOCKED':
      return 'busy';
    case 'DEADLINE_EXCEEDED':
      return 'deadline';
    case 'QUEUE_FULL':
    case 'OVERLOADED':
      return 'overloaded';
    default:
      return failure?.isUnavailable === true ? 'unavailable' : 'error';
  }
}

/** A failure of a carrier's call, as one of few words. */
export function carrierOutcome(error: unknown): string {
  if (!(error instanceof CarrierError)) return 'error';
  return error.wasAsked ? error.kind : 'not-asked';
}

/** The class of a status, such as `2xx`. */
export function statusClass(status: number): string {
  return `${Math.trunc(status / 100)}xx`;
}

/** Tells the log, at the level `debug`, of each attempt that reached for the carrier. */
export function createAttemptLog(log: Log): CarrierObserver {
  return {
    observeCall: (work) => work(),
    async observeAttempt(endpoint, send) {
      const startedAtMs = performance.now();
      const tell = (code: string) =>
        log.debug({ endpoint, code, durationMs: Math.round(performance.now() - startedAtMs) }, 'the carrier was asked');
      try {
        const answer = await send({});
        tell(`HTTP_${answer.status}`);
        return answer;
      } catch (error) {
        tell(error instanceof CarrierError ? error.code : 'UNKNOWN');
        throw error;
      }
    },
    breakerChanged: () => undefined,
  };
}
