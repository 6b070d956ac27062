import { findDatabaseError } from '../db/errors';
import { CarrierError } from '../modules/coverage/carrier/carrier';

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
