import { LRUCache } from 'lru-cache';

/** How far into a window a caller is. */
export interface Usage {
  readonly isOver: boolean;
  readonly remaining: number;
  /** Until all of the quota is there again. */
  readonly resetsInSeconds: number;
}

export interface RateWindows {
  /** Counts one request of a caller, unless nothing is left. */
  take(key: string, quota: number): Usage;
  /** Counts nothing. */
  look(key: string, quota: number): Usage;
}

interface Window {
  used: number;
  readonly endsAtMs: number;
}

/**
 * Windows of time, one a caller, each of which begins with the first request in it. At most `maxCallers` are
 * remembered, and those that ask are remembered longest: to have one's own forgotten takes as many other callers, of
 * whom each has a quota already.
 */
export function createRateWindows(options: {
  readonly windowMs: number;
  readonly maxCallers: number;
  readonly nowMs: () => number;
}): RateWindows {
  const { windowMs, maxCallers, nowMs } = options;
  const windows = new LRUCache<string, Window>({ max: maxCallers });

  const find = (key: string, now: number): Window | undefined => {
    const window = windows.get(key);
    // A window that ends later than any can was begun before the clock was set back.
    return window === undefined || now >= window.endsAtMs || window.endsAtMs - now > windowMs ? undefined : window;
  };
  const usage = (window: Window | undefined, quota: number, now: number, isOver: boolean): Usage => ({
    isOver,
    remaining: quota - (window?.used ?? 0),
    resetsInSeconds: Math.ceil((window === undefined ? windowMs : window.endsAtMs - now) / 1000),
  });

  return {
    take(key, quota) {
      const now = nowMs();
      let window = find(key, now);
      if (window === undefined) {
        window = { used: 0, endsAtMs: now + windowMs };
        windows.set(key, window);
      }
      const isOver = window.used >= quota;
      if (!isOver) window.used += 1;
      return usage(window, quota, now, isOver);
    },
    look(key, quota) {
      const now = nowMs();
      const window = find(key, now);
      return usage(window, quota, now, window !== undefined && window.used >= quota);
    },
  };
}
