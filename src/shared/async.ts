/** Computes the value on the first call and keeps it; a promise that rejects is not kept. */
export function lazy<Value>(compute: () => Value): () => Value {
  let computed: { readonly value: Value } | undefined;
  return () => {
    if (computed !== undefined) return computed.value;
    const value = compute();
    computed = { value };
    if (value instanceof Promise) {
      value.catch(() => {
        computed = undefined;
      });
    }
    return value;
  };
}

interface CacheOptions<Value> {
  readonly ttlMs: number;
  /** Monotonic, in milliseconds. */
  readonly now?: () => number;
  readonly load: (previous: Value | undefined) => Promise<Value>;
  readonly onReloadFailure: (error: unknown) => void;
}

/**
 * Loads a value on the first call, and again on the first call after `ttlMs`. Concurrent calls share one load. A failed
 * reload extends the previous value by `ttlMs`; the first load rejects.
 */
export function cached<Value extends object>({
  ttlMs,
  now = () => performance.now(),
  load,
  onReloadFailure,
}: CacheOptions<Value>): () => Promise<Value> {
  let latest: Value | undefined;
  let staleAtMs = 0;
  let loading: Promise<Value> | undefined;
  const reload = async (): Promise<Value> => {
    try {
      latest = await load(latest);
    } catch (error) {
      if (latest === undefined) throw error;
      onReloadFailure(error);
    } finally {
      staleAtMs = now() + ttlMs;
    }
    return latest;
  };
  return () => {
    if (latest !== undefined && now() <= staleAtMs) return Promise.resolve(latest);
    loading ??= reload().finally(() => {
      loading = undefined;
    });
    return loading;
  };
}

/** Settles like `work`, or like `onTimeout` after `timeoutMs`. Does not cancel `work`. */
export async function withTimeout<Result, Late>(
  work: Promise<Result>,
  timeoutMs: number,
  onTimeout: () => Late,
): Promise<Result | Late> {
  const { promise: timeout, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, timeoutMs);
  try {
    return await Promise.race([work, timeout.then(onTimeout)]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for a random time between the bounds, so that clients that failed together do not retry together. */
export function jitteredPause(minMs: number, maxMs: number): Promise<void> {
  return Bun.sleep(minMs + Math.random() * (maxMs - minMs));
}

interface PeriodicTask {
  readonly intervalMs: number;
  /** Should return early once `isStopping` returns true. */
  readonly run: (isStopping: () => boolean) => Promise<void>;
  readonly onFailure: (error: unknown) => void;
}

/** Runs a task at once and at each interval, never twice at a time. `stop` waits for the current run. */
export function every({ intervalMs, run, onFailure }: PeriodicTask): { stop(): Promise<void> } {
  let current: Promise<void> | undefined;
  let isStopping = false;
  const start = () => {
    current ??= run(() => isStopping)
      .catch((error: unknown) => onFailure(error))
      .finally(() => {
        current = undefined;
      });
  };
  start();
  const timer = setInterval(start, intervalMs);
  return {
    async stop() {
      isStopping = true;
      clearInterval(timer);
      await current;
    },
  };
}

const sliceMs = 5;

/** Runs a long computation step by step and yields to the event loop every 5 ms. */
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

/** Resolves after the event loop has handled the pending events. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
