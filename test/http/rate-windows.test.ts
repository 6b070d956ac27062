import { describe, expect, test } from 'bun:test';
import { createRateWindows } from '../../src/http/rate-limits';

function windowsAt(startMs: number, maxKeys = 1000) {
  const time = { nowMs: startMs };
  return { time, windows: createRateWindows({ windowMs: 60_000, maxKeys, nowMs: () => time.nowMs }) };
}

describe('rate window', () => {
  test('grants its quota, reports the reset time and resets exactly then', () => {
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

  test('counts each key separately', () => {
    const { windows } = windowsAt(0);
    windows.take('ada', 1);
    expect(windows.take('ada', 1).isOver).toBeTrue();
    expect(windows.take('bob', 1).isOver).toBeFalse();
  });

  test('is not consumed by a peek', () => {
    const { windows } = windowsAt(0);
    for (let count = 0; count < 3; count += 1) expect(windows.peek('ada', 1).isOver).toBeFalse();
    windows.take('ada', 1);
    expect(windows.peek('ada', 1)).toEqual({ isOver: true, remaining: 0, resetsInSeconds: 60 });
  });
});

describe('rate windows of many keys', () => {
  test('use bounded memory for 1,000,000 keys', () => {
    const { windows } = windowsAt(0, 100_000);
    const takeMany = (count: number, kind: string) => {
      for (let index = 0; index < count; index += 1) windows.take(`${kind} ${index}`, 600);
    };
    takeMany(200_000, 'first');
    Bun.gc(true);
    const fullBytes = process.memoryUsage.rss();
    takeMany(1_000_000, 'second');
    Bun.gc(true);
    // A million stored keys would take twice as much; the rest is uncollected garbage.
    expect(process.memoryUsage.rss() - fullBytes).toBeLessThan(80 * 1024 * 1024);
  });

  test('keep an exhausted key that continues to send requests', () => {
    const { windows } = windowsAt(0, 1000);
    windows.take('flooder', 1);
    for (let index = 0; index < 100_000; index += 1) {
      windows.take(`helper ${index}`, 1);
      if (index % 999 === 0) expect(windows.take('flooder', 1).isOver).toBeTrue();
    }
  });
});
