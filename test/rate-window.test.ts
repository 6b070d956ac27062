import { describe, expect, test } from 'bun:test';
import { createRateWindows } from '../src/http/rate-limits';

function windowsAt(startMs: number, maxCallers = 1000) {
  const time = { nowMs: startMs };
  return { time, windows: createRateWindows({ windowMs: 60_000, maxCallers, nowMs: () => time.nowMs }) };
}

describe('a window', () => {
  test('grants its quota, says when it ends, and begins anew just then', () => {
    const { time, windows } = windowsAt(1000);
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 1, resetsInSeconds: 60 });
    time.nowMs += 17_001;
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 0, resetsInSeconds: 43 });
    expect(windows.take('ada', 2)).toEqual({ isOver: true, remaining: 0, resetsInSeconds: 43 });
    time.nowMs += 42_998;
    expect(windows.take('ada', 2).isOver).toBeTrue();
    time.nowMs += 1;
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 1, resetsInSeconds: 60 });
  });

  test('is each caller’s own', () => {
    const { windows } = windowsAt(0);
    windows.take('ada', 1);
    expect(windows.take('ada', 1).isOver).toBeTrue();
    expect(windows.take('bob', 1).isOver).toBeFalse();
  });

  test('is looked at without being used', () => {
    const { windows } = windowsAt(0);
    for (let turn = 0; turn < 3; turn += 1) expect(windows.look('ada', 1).isOver).toBeFalse();
    windows.take('ada', 1);
    expect(windows.look('ada', 1)).toEqual({ isOver: true, remaining: 0, resetsInSeconds: 60 });
  });

  test('never locks anybody out for longer than it lasts, when the clock is set back or forth', () => {
    const { time, windows } = windowsAt(1e12);
    windows.take('ada', 1);
    time.nowMs -= 3_600_000;
    expect(windows.take('ada', 1).isOver).toBeFalse();
    time.nowMs += 7_200_000;
    expect(windows.take('ada', 1).isOver).toBeFalse();
  });
});

describe('callers without number', () => {
  test('cost bounded memory, 1,000,000 of them', () => {
    const { windows } = windowsAt(0, 100_000);
    const nextCallers = (count: number, kind: string) => {
      for (let index = 0; index < count; index += 1) windows.take(`${kind} ${index}`, 600);
    };
    nextCallers(200_000, 'first');
    Bun.gc(true);
    const fullBytes = process.memoryUsage.rss();
    nextCallers(1_000_000, 'caller');
    Bun.gc(true);
    // All of the million would take twice as much; what is measured is garbage that is not collected yet.
    expect(process.memoryUsage.rss() - fullBytes).toBeLessThan(80 * 1024 * 1024);
  });

  test('do not make a refused caller forgotten who goes on asking', () => {
    const { windows } = windowsAt(0, 1000);
    windows.take('flooder', 1);
    for (let index = 0; index < 100_000; index += 1) {
      windows.take(`helper ${index}`, 1);
      if (index % 999 === 0) expect(windows.take('flooder', 1).isOver).toBeTrue();
    }
  });
});
