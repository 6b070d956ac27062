import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import fc from 'fast-check';
import { ageOn, calendarDateAt, parseCalendarDate } from '../../src/shared/calendar';

describe('ageOn', () => {
  test.each([
    ['1961-03-11', '2026-03-10', 64],
    ['1961-03-11', '2026-03-11', 65],
    ['1960-02-29', '2025-02-28', 64],
    ['1960-02-29', '2025-03-01', 65],
    ['1960-02-29', '2024-02-28', 63],
    ['1960-02-29', '2024-02-29', 64],
    ['2003-03-01', '2024-02-29', 20],
    ['1990-01-01', '2025-12-31', 35],
    ['1990-01-01', '2026-01-01', 36],
    ['1990-12-31', '2026-01-01', 35],
    ['2026-03-10', '2026-03-10', 0],
  ])('returns for a birth date of %s on %s the age %i', (birthDate, today, age) => {
    expect(ageOn(birthDate, today)).toBe(age);
  });
});

describe('calendar date', () => {
  test('parses exactly when it exists in the proleptic Gregorian calendar', () => {
    fc.assert(
      fc.property(fc.nat(9999), fc.nat(13), fc.nat(32), (year, month, day) => {
        const text = [String(year).padStart(4, '0'), String(month).padStart(2, '0'), String(day).padStart(2, '0')].join(
          '-',
        );
        const instant = new Date(0);
        instant.setUTCFullYear(year, month - 1, day);
        const exists = instant.toISOString().endsWith(`${text}T00:00:00.000Z`);
        expect(parseCalendarDate(text)).toBe(exists ? text : undefined);
      }),
      { numRuns: 2000 },
    );
  });

  test('depends on the given time zone, not on that of the process', () => {
    const instant = new Date('2026-03-11T03:30:00Z');
    expect(calendarDateAt(instant, 'UTC')).toBe('2026-03-11');
    expect(calendarDateAt(instant, 'America/New_York')).toBe('2026-03-10');
    expect(calendarDateAt(instant, 'Pacific/Kiritimati')).toBe('2026-03-11');
    expect(calendarDateAt(new Date('2025-12-31T23:59:59.999Z'), 'UTC')).toBe('2025-12-31');
  });

  test.each([
    ['America/New_York', '2026-03-08T07:00:00Z', 'clock set forward at night'],
    ['America/New_York', '2026-03-10T04:00:00Z', 'midnight'],
    ['America/St_Johns', '2010-11-07T02:30:00Z', 'first of two midnights'],
    ['America/St_Johns', '2010-11-07T02:31:00Z', 'clock set back over midnight'],
    ['America/Asuncion', '2023-10-01T04:00:00Z', 'clock set forward at midnight'],
    ['Pacific/Apia', '2011-12-30T10:00:00Z', 'skipped day'],
    ['Africa/Monrovia', '1972-01-06T00:44:30Z', 'offset with seconds'],
  ])('changes at the exact millisecond in %s at %s: %s', (zone, instant, _) => {
    const at = Temporal.Instant.from(instant).epochMilliseconds;
    for (const epochMs of [-60_000, -1000, -1, 0, 1, 999, 1000, 60_000, -1].map((ms) => at + ms)) {
      const date = Temporal.Instant.fromEpochMilliseconds(epochMs).toZonedDateTimeISO(zone).toPlainDate();
      expect(calendarDateAt(new Date(epochMs), zone)).toBe(date.toString());
    }
  });

  test('and month are the same in a process with any time zone and language', () => {
    const [calendar, sales] = ['shared/calendar', 'modules/sales/model'].map((name) =>
      JSON.stringify(join(import.meta.dirname, `../../src/${name}.ts`)),
    );
    const script = `
      import { ageOn, calendarDateAt, parseCalendarDate } from ${calendar};
      import { monthBounds, parseMonth, resolveMonth } from ${sales};
      for (const zone of ['America/Los_Angeles', 'UTC', 'Pacific/Kiritimati']) {
        process.env.TZ = zone;
        const today = calendarDateAt(new Date('2026-03-11T03:30:00Z'), 'America/New_York');
        const birthDate = parseCalendarDate('1970-04-04T23:30:00-10:00');
        const months = ['september', 'MAI', 'İ'].map((text) => parseMonth(text)?.month);
        const { year } = resolveMonth({ month: 1 }, new Date('2026-01-01T02:00:00Z'), 'America/New_York');
        const { from } = monthBounds({ year: 2026, month: 3 }, 'Asia/Kathmandu');
        console.log(new Date(0).getTimezoneOffset(), birthDate, today, ageOn('1961-03-11', today), ...months, year, from);
      }`;
    const environment = { ...process.env, LANG: 'tr_TR' };
    const { stdout } = Bun.spawnSync([process.execPath, '-e', script], { env: environment });
    const found = `1970-04-04 2026-03-10 64 9 undefined undefined 2025 ${Date.parse('2026-02-28T18:15Z')}`;
    expect(stdout.toString()).toBe(`480 ${found}\n0 ${found}\n640 ${found}\n`);
  });
});
