import { describeError } from './log';

interface Rounds {
  readonly everyMs: number;
  /** One round; it ends soon once `isStopping` is true. */
  readonly work: (isStopping: () => boolean) => Promise<void>;
  readonly onFailure: (failure: ReturnType<typeof describeError>) => void;
}

/** Work that is done at once and then again and again, one round at a time. `stop` waits for the round that goes on. */
export function startRounds({ everyMs, work, onFailure }: Rounds): { stop(): Promise<void> } {
  let round: Promise<void> | undefined;
  let isStopping = false;
  const run = () => {
    round ??= work(() => isStopping)
      .catch((error: unknown) => onFailure(describeError(error)))
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
    },
  };
}
