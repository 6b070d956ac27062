/** Whoever asks while it loads waits for the same; after a failure the next one tries again. */
export function onceLoaded<Loaded>(load: () => Promise<Loaded>): () => Promise<Loaded> {
  let loading: Promise<Loaded> | undefined;
  return () => {
    loading ??= load().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
}

/**
 * What `make` gives, made when it is first asked for and kept. Drizzle takes longer to build a statement than the
 * database to run it, so a store keeps its own, but no start builds those that nobody needs yet.
 */
export function onFirstUse<Made extends object>(make: () => Made): () => Made {
  let made: Made | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

interface Rounds {
  readonly everyMs: number;
  /** One round; it ends soon once `isStopping` is true. */
  readonly work: (isStopping: () => boolean) => Promise<void>;
  readonly onFailure: (error: unknown) => void;
}

/** Work that is done at once and then again and again, one round at a time. `stop` waits for the round that goes on. */
export function startRounds({ everyMs, work, onFailure }: Rounds): { stop(): Promise<void> } {
  let round: Promise<void> | undefined;
  let isStopping = false;
  const run = () => {
    round ??= work(() => isStopping)
      .catch((error: unknown) => onFailure(error))
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

/** The longest that one slice of a computation holds the event loop. */
const sliceMs = 5;

/** Runs a long computation step by step, and lets the event loop go on every few milliseconds. */
export async function inSlices<Result>(steps: Generator<undefined, Result, undefined>): Promise<Result> {
  let sliceStartMs = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (performance.now() - sliceStartMs < sliceMs) continue;
    await nextTurn();
    sliceStartMs = performance.now();
  }
}

/** Resolves when the event loop has served what was ready. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
