import { describe, expect, test } from 'bun:test';
import { describeZone } from '../../src/shared/calendar';
import { createCommandLine } from '../support/command';
import { startService } from '../support/processes';

describe('C11 the zone of reports', () => {
  test.each([
    ['UTC', '2026-01-15', 'UTC'],
    ['America/New_York', '2026-01-15', 'America/New_York, now -05:00, -04:00 from 2026-03-08'],
    ['America/New_York', '2026-07-01', 'America/New_York, now -04:00, -05:00 from 2026-11-01'],
    ['Australia/Lord_Howe', '2026-01-15', 'Australia/Lord_Howe, now +11:00, +10:30 from 2026-04-05'],
    ['Asia/Kathmandu', '2026-01-15', 'Asia/Kathmandu, now +05:45, without a change to come'],
    ['Etc/GMT+5', '2026-01-15', 'Etc/GMT+5, now -05:00, without a change to come'],
    ['Pacific/Kiritimati', '2026-01-15', 'Pacific/Kiritimati, now +14:00, without a change to come'],
  ])('C11 has its offset and next change in the description: %s at %s', (zone, date, expected) => {
    expect(describeZone(zone, new Date(date))).toBe(expected);
  });

  test('C11 appears at the start and in doctor', async () => {
    const environment = { REPORT_TIME_ZONE: 'Asia/Kathmandu' };
    const shown = 'Asia/Kathmandu, now +05:45, without a change to come';
    expect((await startService({ environment })).output()).toContain(`months   ${shown}\n`);
    expect((await (await createCommandLine(environment)).planning('doctor')).stdout).toContain(
      `months and ages in ${shown}`,
    );
  });
});
