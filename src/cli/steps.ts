import { OperatorError } from './operator-error';

/**
 * Says on a terminal what a long command is doing. Each step keeps the whole process busy, so an interrupt ends the
 * command between two of them, where what was begun can be taken back.
 */
export function createSteps() {
  let isInterrupted = false;
  const interrupt = () => {
    isInterrupted = true;
  };
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.on(signal, interrupt);
  return {
    /** @throws OperatorError when the command was interrupted during the step before */
    async begin(step: string): Promise<void> {
      if (process.stderr.isTTY) process.stderr.write(`${step} …\n`);
      await Bun.sleep(0);
      if (isInterrupted) throw new OperatorError('Interrupted; nothing was changed.');
    },
    stop() {
      for (const signal of signals) process.off(signal, interrupt);
    },
  };
}

export type Steps = ReturnType<typeof createSteps>;
