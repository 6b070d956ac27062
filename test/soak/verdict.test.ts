import { describe, expect, test } from 'bun:test';
import type { LoadFigures } from './load';
import type { Sample } from './sample';
import { growthMbAnHour, judge } from './verdict';

/** Samples of 90 intervals and 9 minutes; `change` sets values by the index of the sample. */
function soakOf(change: (index: number) => Partial<Sample> = () => ({}), p99Ms: (minute: number) => number = () => 50) {
  const noise = (index: number) => (index % 7) - 3;
  const samples = Array.from({ length: 90 }, (_, index) => ({
    rssMb: 120 + noise(index),
    descriptors: 35 + (index % 2),
    threads: 11,
    walMb: 4,
    ...change(index),
  }));
  const minutes = Array.from(
    { length: 9 },
    (_, minute): LoadFigures => ({ requests: 1, p50Ms: 4, p99Ms: p99Ms(minute) }),
  );
  return { samples, minutes, errors: 0 };
}
const missed = (soak: Parameters<typeof judge>[0]) => judge(soak).flatMap(({ name, isGood }) => (isGood ? [] : [name]));

describe('the verdict of a soak run', () => {
  test('passes stable values, growth during warm-up, and one slow minute', () => {
    expect(missed(soakOf())).toEqual([]);
    expect(missed(soakOf((index) => (index < 30 ? { rssMb: 60 + index } : {})))).toEqual([]);
    expect(missed(soakOf(undefined, (minute) => (minute === 8 ? 900 : 50)))).toEqual([]);
  });

  test.each([
    ['memory, MB', soakOf((index) => ({ rssMb: 120 + index / 3 }))],
    ['descriptors', soakOf((index) => ({ descriptors: 35 + index / 5 }))],
    ['threads', soakOf((index) => ({ threads: 11 + index / 9 }))],
    ['WAL, MB', soakOf((index) => ({ walMb: index }))],
    ['p99, ms', soakOf(undefined, (minute) => 50 * 1.6 ** minute)],
    ['errors', { ...soakOf(), errors: 1 }],
  ])('fails only on %s', (name, soak) => {
    expect(missed(soak)).toEqual([name]);
  });

  test('fails every rule when the run was too short for thirds', () => {
    expect(missed({ samples: [], minutes: [], errors: 0 }).length).toBe(6);
  });

  test('estimates growth per hour, and almost none for noise', () => {
    expect(growthMbAnHour(soakOf((index) => ({ rssMb: 120 + index / 720 })).samples, 5_000)).toBeCloseTo(1, 1);
    expect(Math.abs(growthMbAnHour(soakOf().samples, 5_000))).toBeLessThan(10);
  });
});
