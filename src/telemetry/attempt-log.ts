import type { Log } from '../log';
import { CarrierError } from '../modules/coverage/carrier/carrier';
import type { CarrierObserver } from './observers';

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
