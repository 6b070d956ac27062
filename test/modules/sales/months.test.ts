import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { activityRecord, monthBounds, parseMonth, resolveMonth } from '../../../src/modules/sales/model';
import { calendarDateAt } from '../../../src/shared/calendar';

const english = 'January February March April May June July August September October November December'.split(' ');
const spellings = english.flatMap((name, index) => {
  const number = String(index + 1);
  return [name, name.toLowerCase(), name.toUpperCase(), name.slice(0, 3), number, number.padStart(2, '0')].map(
    (text) => [text, index + 1] as const,
  );
});

describe('parseMonth', () => {
  test('accepts each month by name, three letters and number, in any case', () => {
    const found = spellings.map(([text]) => [text, parseMonth(text)]);
    expect(found).toEqual(spellings.map(([text, month]) => [text, { month, year: undefined }]));
  });

  test.each([
    ['sEPT', 9, undefined],
    ['Sept.', 9, undefined],
    ['nov.', 11, undefined],
    ['May.', 5, undefined],
    [' december ', 12, undefined],
    [' 7', 7, undefined],
    ['0001-12', 12, 1],
    ['2026-1', 1, 2026],
    [' 9999-01 ', 1, 9999],
  ])('accepts %j', (text, month, year) => {
    expect(parseMonth(text)).toEqual({ month, year });
  });

  test('rejects other texts', () => {
    const others = [
      ...['Setpember', '13', '0', '00', '-1', '1.0', '1e0', '001', 'Dezember', 'März', 'Septe', 'Ju', '', ' ', 'maÿ'],
      ...['March 2025', '2025-13', '2025-00', '2025-mar', '2025-09-01', '25-09', '202509', '-09', '2025-', '2025-9x'],
      ...['constructor', '__proto__', '٣', 'nov..', '.', '1.', '2026-1.', '2026-001', '2026 1', 'no v'],
    ];
    expect(others.filter((text) => parseMonth(text) !== undefined)).toEqual([]);
  });

  test('accepts only the documented spellings', () => {
    const known = new Set([...spellings.map(([text]) => text.toLowerCase()), 'sept']);
    const near = fc.oneof(
      fc.string(),
      fc.constantFrom(...known).chain((text) => fc.constantFrom(`${text}x`, `x${text}`)),
    );
    fc.assert(
      fc.property(near, (text) => {
        const trimmed = text.trim().toLowerCase();
        const isKnown = known.has(trimmed.replace(/(?<=[a-z])\.$/, '')) || /^\d{4}-(0?[1-9]|1[0-2])$/.test(trimmed);
        expect(parseMonth(text) !== undefined).toBe(isKnown);
      }),
    );
  });
});

describe('resolveMonth', () => {
  test.each([
    ['2026-01-15T00:00:00Z', 'UTC', 12, 2025],
    ['2026-01-15T00:00:00Z', 'UTC', 1, 2026],
    ['2026-01-15T00:00:00Z', 'UTC', 2, 2025],
    ['2026-12-31T23:59:59.999Z', 'UTC', 12, 2026],
    // Around midnight of the new year in the time zone.
    ['2026-01-01T04:59:59.999Z', 'America/New_York', 1, 2025],
    ['2026-01-01T05:00:00.000Z', 'America/New_York', 1, 2026],
    ['2025-12-31T18:15:00.000Z', 'Asia/Kathmandu', 1, 2026],
    ['2025-12-31T18:14:59.999Z', 'Asia/Kathmandu', 1, 2025],
  ])('resolves at %s in %s the month %i to the year %i', (now, timeZone, month, year) => {
    expect(resolveMonth({ month, year: undefined }, new Date(now), timeZone)).toEqual({ month, year });
  });

  test('keeps a given year', () => {
    expect(resolveMonth({ month: 12, year: 1999 }, new Date(), 'UTC')).toEqual({ month: 12, year: 1999 });
  });
});

describe('monthBounds', () => {
  test.each([
    ['UTC', 2026, 3, '2026-03-01T00:00:00.000Z', '2026-04-01T00:00:00.000Z'],
    ['UTC', 2025, 12, '2025-12-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z'],
    ['UTC', 2024, 2, '2024-02-01T00:00:00.000Z', '2024-03-01T00:00:00.000Z'],
    ['UTC', 2100, 2, '2100-02-01T00:00:00.000Z', '2100-03-01T00:00:00.000Z'],
    // Daylight saving begins and ends within the month.
    ['America/New_York', 2026, 3, '2026-03-01T05:00:00.000Z', '2026-04-01T04:00:00.000Z'],
    ['America/New_York', 2026, 11, '2026-11-01T04:00:00.000Z', '2026-12-01T05:00:00.000Z'],
    ['Europe/Berlin', 2026, 3, '2026-02-28T23:00:00.000Z', '2026-03-31T22:00:00.000Z'],
    ['Europe/Berlin', 2026, 10, '2026-09-30T22:00:00.000Z', '2026-10-31T23:00:00.000Z'],
    ['Asia/Kathmandu', 2026, 1, '2025-12-31T18:15:00.000Z', '2026-01-31T18:15:00.000Z'],
    // The clock skips the first midnight of the month.
    ['America/Havana', 2012, 4, '2012-04-01T05:00:00.000Z', '2012-05-01T04:00:00.000Z'],
    ['UTC', 9999, 12, '9999-12-01T00:00:00.000Z', '+010000-01-01T00:00:00.000Z'],
  ])('returns the first instant of the month and of the next: %s %i-%i', (timeZone, year, month, from, until) => {
    const edges = monthBounds({ month, year }, timeZone);
    expect([new Date(edges.from).toISOString(), new Date(edges.until).toISOString()]).toEqual([from, until]);
  });

  test('agrees with the calendar of every time zone to the millisecond and leaves no gap', () => {
    const zones = fc.constantFrom(...Intl.supportedValuesOf('timeZone'));
    const months = fc.record({ year: fc.integer({ min: 1973, max: 2060 }), month: fc.integer({ min: 1, max: 12 }) });
    fc.assert(
      fc.property(zones, months, (timeZone, { year, month }) => {
        const { from, until } = monthBounds({ year, month }, timeZone);
        const name = `${year}-${String(month).padStart(2, '0')}-`;
        const dateAt = (instant: number) => calendarDateAt(new Date(instant), timeZone);
        expect(dateAt(from)).toStartWith(name);
        expect(dateAt(until - 1)).toStartWith(name);
        expect(dateAt(from - 1) < name).toBeTrue();
        expect(dateAt(until) > `${name}31`).toBeTrue();
        const next = month === 12 ? { year: year + 1, month: 1 } : { year, month: month + 1 };
        expect(monthBounds(next, timeZone).from).toBe(until);
      }),
      { numRuns: 300 },
    );
  });
});

describe('activityRecord', () => {
  const read = (change: object) => {
    const record = { externalId: 'a', staffId: 'c1', kind: 'quote', amount: '1', occurredAt: '2026-03-10', ...change };
    const { success, output } = v.safeParse(activityRecord('UTC'), record);
    return success ? output : undefined;
  };

  test('accepts amounts up to ten million and instants from 1970 to 2099, and no others', () => {
    expect(read({ amount: '-10000000' })).toMatchObject({ amountCents: -1_000_000_000 });
    expect(read({ amount: '10000000.00' })).toMatchObject({ amountCents: 1_000_000_000 });
    expect(read({ occurredAt: '1970-01-01' })).toMatchObject({ occurredAt: 0 });
    const last = '2099-12-31T23:59:59.999Z';
    expect(read({ occurredAt: last })).toMatchObject({ occurredAt: Date.parse(last) });
    for (const amount of ['-10000000.01', '10000000.01']) expect(read({ amount })).toBeUndefined();
    for (const occurredAt of ['1969-12-31', '2100-01-01']) expect(read({ occurredAt })).toBeUndefined();
  });
});
