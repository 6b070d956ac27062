import { describe, expect, test } from 'bun:test';
import { cached, every, inSlices, lazy, withTimeout } from '../../src/shared/async';

describe('lazy', () => {
  test('computes the value once, on the first call', () => {
    let computed = 0;
    const value = lazy(() => ({ number: ++computed }));
    expect(computed).toBe(0);
    expect(value()).toBe(value());
    expect(value()).toEqual({ number: 1 });
  });

  test('keeps undefined like any other value', () => {
    let computed = 0;
    const value = lazy(() => {
      computed += 1;
      return undefined;
    });
    value();
    value();
    expect(computed).toBe(1);
  });

  test('shares one load between concurrent and later calls', async () => {
    let loads = 0;
    const value = lazy(async () => {
      await Bun.sleep(1);
      loads += 1;
      return loads;
    });
    expect(loads).toBe(0);
    expect(await Promise.all([value(), value()])).toEqual([1, 1]);
    expect(await value()).toBe(1);
  });

  test('loads again after a rejection', async () => {
    let loads = 0;
    const value = lazy(async () => {
      loads += 1;
      if (loads === 1) throw new Error('no such file');
      return loads;
    });
    const both = await Promise.allSettled([value(), value()]);
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await value()).toBe(2);
  });
});

describe('cached', () => {
  const counter = ({ nowMs } = { nowMs: 1 }) => {
    const state = { nowMs, loads: 0, isBroken: false };
    const failures: unknown[] = [];
    const read = cached({
      ttlMs: 1_000,
      now: () => state.nowMs,
      async load(previous: { readonly number: number } | undefined) {
        state.loads += 1;
        await Bun.sleep(1);
        if (state.isBroken) throw new Error('no such table');
        return { number: (previous?.number ?? 0) + 1 };
      },
      onReloadFailure: (error) => failures.push(error),
    });
    return { state, failures, read };
  };

  test('shares one load between concurrent calls', async () => {
    const { state, read } = counter();
    expect(await Promise.all([read(), read()])).toEqual([{ number: 1 }, { number: 1 }]);
    expect(state.loads).toBe(1);
  });

  test('loads again after the time to live, with the previous value', async () => {
    const { state, read } = counter();
    await read();
    state.nowMs += 999;
    expect(await read()).toEqual({ number: 1 });
    state.nowMs += 2;
    expect(await read()).toEqual({ number: 2 });
  });

  test('loads again after the time to live when the first load was at 0', async () => {
    const { state, read } = counter({ nowMs: 0 });
    await read();
    state.nowMs += 1_001;
    expect(await read()).toEqual({ number: 2 });
  });

  test('returns the previous value for another time to live when a reload fails', async () => {
    const { state, failures, read } = counter();
    await read();
    state.nowMs += 1_001;
    state.isBroken = true;
    expect(await read()).toEqual({ number: 1 });
    expect(failures).toEqual([new Error('no such table')]);
    expect(await read()).toEqual({ number: 1 });
    expect(state.loads).toBe(2);
    state.nowMs += 1_001;
    state.isBroken = false;
    expect(await read()).toEqual({ number: 2 });
  });

  test('rejects when the first load fails, and loads again on the next call', async () => {
    const { state, failures, read } = counter();
    state.isBroken = true;
    await expect(read()).rejects.toThrow('no such table');
    state.isBroken = false;
    expect(await read()).toEqual({ number: 1 });
    expect(failures).toEqual([]);
  });
});

describe('withTimeout', () => {
  const never = new Promise<never>(() => {});

  test('settles like the work that ends in time', async () => {
    expect(await withTimeout(Promise.resolve(1), 10_000, () => 2)).toBe(1);
    await expect(withTimeout(Promise.reject(new Error('broken')), 10_000, () => 2)).rejects.toThrow('broken');
  });

  test('returns the fallback after the timeout', async () => {
    expect(await withTimeout(never, 1, () => 2)).toBe(2);
  });

  test('rejects when the fallback throws', async () => {
    const late = withTimeout(never, 1, () => {
      throw new Error('too late');
    });
    await expect(late).rejects.toThrow('too late');
  });
});

describe('every', () => {
  test('runs again after a failure, one run at a time, and stop waits for the current run', async () => {
    const { promise: secondStarted, resolve: startSecond } = Promise.withResolvers<void>();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const failures: unknown[] = [];
    let runs = 0;
    let sawStop = false;
    const task = every({
      intervalMs: 1,
      async run(isStopping) {
        runs += 1;
        if (runs === 1) throw new Error('first');
        startSecond();
        await released;
        sawStop = isStopping();
      },
      onFailure: (error) => failures.push(error),
    });
    await secondStarted;
    await Bun.sleep(5);
    expect(runs).toBe(2);
    const stopped = task.stop();
    release();
    await stopped;
    expect(sawStop).toBeTrue();
    expect(failures).toEqual([new Error('first')]);
    await Bun.sleep(5);
    expect(runs).toBe(2);
  });
});

describe('inSlices', () => {
  test('lets timers run while it computes', async () => {
    let hasTimerRun = false;
    setTimeout(() => {
      hasTimerRun = true;
    });
    const seen = await inSlices(
      (function* () {
        while (!hasTimerRun) yield;
        return hasTimerRun;
      })(),
    );
    expect(seen).toBeTrue();
  });
});
