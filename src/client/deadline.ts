/** How long a call may go on: until its time is over, or its caller aborts it. */
export interface Deadline {
  /** For `fetch`. */
  readonly signal: AbortSignal;
  readonly isTimedOut: boolean;
  readonly leftMs: number;
  /** What `work` gives, or a rejection as soon as the call may not go on, even where `work` cannot be ended. */
  within<Value>(work: Promise<Value>): Promise<Value>;
  /** Ends early when the call may not go on. */
  pause(ms: number): Promise<void>;
  /** To be called in the end, so that a signal which outlives many calls keeps nothing of them. */
  end(): void;
}

/** A timer takes no more, and one that is asked for more ends at once. */
const longestTimerMs = 2 ** 31 - 1;

export function startDeadline(timeoutMs: number, outer: AbortSignal | undefined): Deadline {
  const controller = new AbortController();
  const startedAtMs = performance.now();
  const over = new Promise<never>((_, reject) => {
    controller.signal.addEventListener('abort', () => reject(controller.signal.reason), { once: true });
  });
  // Nobody may be waiting when it happens.
  over.catch(() => undefined);
  let isTimedOut = false;
  const timer = setTimeout(
    () => {
      isTimedOut = true;
      controller.abort();
    },
    Math.min(timeoutMs, longestTimerMs),
  );
  const stop = () => controller.abort(outer?.reason);
  if (outer?.aborted) stop();
  outer?.addEventListener('abort', stop);

  return {
    signal: controller.signal,
    get isTimedOut() {
      return isTimedOut;
    },
    get leftMs() {
      return timeoutMs - (performance.now() - startedAtMs);
    },
    within: (work) => Promise.race([work, over]),
    pause: (ms) =>
      new Promise((resolve) => {
        const pausing = setTimeout(resolve, ms);
        const cut = () => {
          clearTimeout(pausing);
          resolve();
        };
        controller.signal.addEventListener('abort', cut, { once: true });
      }),
    end() {
      clearTimeout(timer);
      outer?.removeEventListener('abort', stop);
    },
  };
}
