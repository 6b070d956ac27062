import { describe, expect, test } from 'bun:test';
import { onceLoaded } from '../src/shared/async';

describe('what is loaded once', () => {
  test('is loaded when it is first asked for, and shared by all who ask meanwhile and later', async () => {
    let loads = 0;
    const value = onceLoaded(async () => {
      await Bun.sleep(1);
      loads += 1;
      return loads;
    });
    expect(loads).toBe(0);
    expect(await Promise.all([value(), value()])).toEqual([1, 1]);
    expect(await value()).toBe(1);
  });

  test('is tried again after a failure', async () => {
    let loads = 0;
    const value = onceLoaded(async () => {
      loads += 1;
      if (loads === 1) throw new Error('no such file');
      return loads;
    });
    const both = await Promise.allSettled([value(), value()]);
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await value()).toBe(2);
  });
});
