import { constants } from 'node:os';

/** The time in which a thread of the driver opens the files of a copy. */
const openingMs = 150;
const endingSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Prints the steps of a long command on a terminal. Until `commit`, a signal that ends the process does so at once, after
 * `cleanUp`: the work runs on threads of the driver and of Bun, so the event loop is free to receive it.
 */
export function createSteps(cleanUp: () => void) {
  const print = (step: string) => {
    if (process.stderr.isTTY) process.stderr.write(`${step} …\n`);
  };
  let isCommitted = false;
  const end = (signal: (typeof endingSignals)[number]) => {
    if (isCommitted) return;
    cleanUp();
    // A thread of the driver that was about to open the file creates it again.
    Bun.sleepSync(openingMs);
    cleanUp();
    process.stderr.write('Interrupted; nothing was changed.\n');
    process.exit(128 + constants.signals[signal]);
  };
  for (const signal of endingSignals) process.on(signal, end);
  return {
    begin: print,
    /** Begins the step that makes the result visible: signals are ignored from here on. */
    commit(step: string): void {
      print(step);
      isCommitted = true;
    },
    stop() {
      for (const signal of endingSignals) process.off(signal, end);
    },
  };
}

export type Steps = ReturnType<typeof createSteps>;
