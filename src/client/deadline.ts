import type { CallProblem } from './errors';

/** How long a call may go on: until its time is over, or its caller aborts it. */
export interface Deadline {
  /** For `fetch`; undefined where the platform has no `AbortController`. */
  readonly signal: AbortSignal | undefined;
  /** The reason to stop the call. */
  readonly problem: CallProblem | undefined;
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
  const controller = typeof AbortController === 'function' ? new AbortController() : undefined;
  const startedAtMs = performance.now();
  let problem: CallProblem | undefined;
  let reject: (reason: unknown) => void = () => undefined;
  const over = new Promise<never>((_, rejectOver) => {
    reject = rejectOver;
  });
  // It may reject while the call awaits nothing.
  over.catch(() => undefined);
  function stop(why: CallProblem): void {
    problem = problem ?? why;
    reject(problem);
    controller?.abort();
  }
  const abort = () => stop({ slug: 'aborted', cause: outer?.reason });
  const timer = setTimeout(() => stop({ slug: 'timed-out', timeoutMs }), Math.min(timeoutMs, longestTimerMs));
  if (outer?.aborted) abort();
  outer?.addEventListener('abort', abort);

  return {
    signal: controller?.signal,
    get problem() {
      return problem;
    },
    get leftMs() {
      return timeoutMs - (performance.now() - startedAtMs);
    },
    within: (work) => Promise.race([work, over]),
    async pause(ms) {
      let pausing: ReturnType<typeof setTimeout> | undefined;
      const pause = new Promise<void>((resolve) => {
        pausing = setTimeout(resolve, ms);
      });
      await Promise.race([pause, over]).catch(() => undefined);
      clearTimeout(pausing);
    },
    end() {
      clearTimeout(timer);
      outer?.removeEventListener('abort', abort);
    },
  };
}
