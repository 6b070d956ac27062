import { describe, expect, test } from 'bun:test';
import { cached, every, inSlices, lazy, withTimeout } from '../../src/shared/async';

describe('lazy', () => {
  test('computes a value once, on the first call, also undefined', () => {
    const computed: unknown[] = [];
    for (const result of [{}, undefined]) {
      const value = lazy(() => computed.push(result) && result);
      expect(computed).not.toContain(result);
      expect([value(), value()]).toEqual([result, result]);
    }
    expect(computed).toHaveLength(2);
  });

  test('shares one load between concurrent and later calls, and loads again after a rejection', async () => {
    let loads = 0;
    const value = lazy(async () => {
      await Bun.sleep(1);
      loads += 1;
      if (loads === 1) throw new Error('no such file');
      return loads;
    });
    const failed = await Promise.allSettled([value(), value()]);
    expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await Promise.all([value(), value()])).toEqual([2, 2]);
    expect(await value()).toBe(2);
  });
});

describe('cached', () => {
  const counter = ({ nowMs } = { nowMs: 1 }) => {
    const state = { nowMs, loads: 0, isBroken: false, isReportBroken: false };
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
      onReloadFailure(error) {
        failures.push(error);
        if (state.isReportBroken) throw new Error('no log');
      },
    });
    return { state, failures, read };
  };

  test.each([0, 1])(
    'shares one load between concurrent calls until its time to live has passed, from %d ms',
    async (nowMs) => {
      const { state, read } = counter({ nowMs });
      expect(await Promise.all([read(), read()])).toEqual([{ number: 1 }, { number: 1 }]);
      state.nowMs += 999;
      expect([await read(), state.loads]).toEqual([{ number: 1 }, 1]);
      state.nowMs += 2;
      expect(await read()).toEqual({ number: 2 });
    },
  );

  test('returns the previous value for another time to live when a reload fails', async () => {
    const { state, failures, read } = counter();
    await read();
    state.nowMs += 1_001;
    state.isBroken = true;
    expect([await read(), await read()]).toEqual([{ number: 1 }, { number: 1 }]);
    expect([failures, state.loads]).toEqual([[new Error('no such table')], 2]);
    state.nowMs += 1_001;
    state.isBroken = false;
    expect(await read()).toEqual({ number: 2 });
  });

  test('loads again after a reload whose failure could not be reported', async () => {
    const { state, read } = counter();
    await read();
    state.nowMs += 1_001;
    state.isBroken = true;
    state.isReportBroken = true;
    await expect(read()).rejects.toThrow('no log');
    expect([await read(), state.loads]).toEqual([{ number: 1 }, 2]);
    state.nowMs += 1_001;
    state.isBroken = false;
    expect(await read()).toEqual({ number: 2 });
  });

  test.each(['rejects', 'throws'])('loads again after a first load that %s', async (how) => {
    let loads = 0;
    const read = cached({
      ttlMs: 1_000,
      load() {
        loads += 1;
        if (loads > 1) return Promise.resolve({ loads });
        const failure = new Error('no such table');
        if (how === 'throws') throw failure;
        return Promise.reject(failure);
      },
      onReloadFailure: () => undefined,
    });
    await expect(read()).rejects.toThrow('no such table');
    expect(await read()).toEqual({ loads: 2 });
  });

  test('rejects when the first load fails, and loads again on the next call', async () => {
    const { state, failures, read } = counter();
    state.isBroken = true;
    await expect(read()).rejects.toThrow('no such table');
    state.isBroken = false;
    expect([await read(), failures]).toEqual([{ number: 1 }, []]);
  });
});

test('withTimeout settles like the work that ends in time, and like the fallback after it', async () => {
  const never = new Promise<never>(() => {});
  const fail = () => {
    throw new Error('too late');
  };
  expect(await withTimeout(Promise.resolve(1), 10_000, () => 2)).toBe(1);
  await expect(withTimeout(Promise.reject(new Error('broken')), 10_000, () => 2)).rejects.toThrow('broken');
  expect(await withTimeout(never, 1, () => 2)).toBe(2);
  await expect(withTimeout(never, 1, fail)).rejects.toThrow('too late');
});

test('every runs again after a failure, one run at a time, and stop waits for the current run', async () => {
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
  await Bun.sleep(5);
  expect([sawStop, failures, runs]).toEqual([true, [new Error('first')], 2]);
});

test('inSlices lets timers run while it computes', async () => {
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
