import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { createCoverageService } from './service';

const everyMs = 5_000;

/**
 * Settles open applications at once and then every few seconds. `stop` lets the application that is being settled end,
 * and begins no other; whoever cannot wait for it may leave, and it is settled later.
 */
export function startReconciler(deps: AppDeps): { stop(): Promise<void> } {
  const service = createCoverageService(deps);
  const holder = deps.newId();
  let round: Promise<void> | undefined;
  let isStopping = false;
  const run = () => {
    round ??= service
      .reconcile(holder, () => isStopping)
      .then(
        (settled) => {
          if (settled > 0) deps.log.info({ settled }, 'applications were settled');
        },
        (error: unknown) => deps.log.error(describeError(error), 'open applications could not be settled'),
      )
      .finally(() => {
        round = undefined;
      });
  };
  run();
  const timer = setInterval(run, everyMs);
  return {
    async stop() {
      isStopping = true;
      clearInterval(timer);
      await round;
      await service.stopReconciling(holder);
    },
  };
}
