import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { every } from '../../shared/async';
import type { CoverageService } from './service';

const intervalMs = 5_000;

/**
 * Settles open applications at once and then every few seconds. `stop` lets the application that is being settled end,
 * and begins no other; whoever cannot wait for it may leave, and it is settled later.
 */
export function startReconciler(
  service: CoverageService,
  { newId, log }: Pick<AppDeps, 'newId' | 'log'>,
): { stop(): Promise<void> } {
  const holder = newId();
  let isNamed = false;
  const task = every({
    intervalMs,
    async run(isStopping) {
      if (!isNamed) await service.nameCarrier();
      isNamed = true;
      const settled = await service.reconcile(holder, isStopping);
      if (settled > 0) log.info({ settled }, 'applications were settled');
    },
    onFailure: (error) => log.error(describeError(error), 'open applications could not be settled'),
  });
  return {
    async stop() {
      await task.stop();
      await service.stopReconciling(holder);
    },
  };
}
