import { createHash } from 'node:crypto';
import * as v from 'valibot';
import { type ActivityRecord, activityRecord, StaffRecord } from './model';

const dayMs = 24 * 60 * 60_000;
const days = 366;

/** The team of the demo manager's token, named after mathematicians. */
export const demoStaff: readonly StaffRecord[] = [
  { id: 'demo-manager', role: 'salesManager', firstName: 'Mary', lastName: 'Somerville' },
  ...[
    ['Carl', 'Gauss'],
    ['Emmy', 'Noether'],
    ['Leonhard', 'Euler'],
    ['Sofia', 'Kovalevskaya'],
  ].map(([firstName, lastName], index) => ({
    id: `demo-counselor-${index + 1}`,
    role: 'counselor',
    firstName,
    lastName,
    managerId: 'demo-manager',
  })),
].map((person) => v.parse(StaffRecord, person));

/** What sells on a day, with its earnings; chosen by a byte of a hash, so that a day is the same at every start. */
const sales = [
  { kind: 'quote', amount: '0' },
  { kind: 'quote', amount: '0' },
  { kind: 'quoteAndContract', amount: '412.50' },
  { kind: 'application', amount: '95.00' },
  { kind: 'cemeteryPlan', amount: '260.75' },
] as const;
const managerSales = [
  { kind: 'monthlyPlan', amount: '49.90' },
  { kind: 'semiAnnualPlan', amount: '274.40' },
  ...sales,
] as const;
const daysOfThirtyWithSales = 10;

/** A year of made-up activities of the demo team, up to an instant. */
export function demoActivities(now: Date): ActivityRecord[] {
  const Record = activityRecord('UTC');
  const today = Math.floor(now.getTime() / dayMs) * dayMs;
  const dates = Array.from({ length: days }, (_, index) => new Date(today - index * dayMs).toISOString().slice(0, 10));
  return dates.flatMap((date) =>
    demoStaff.flatMap(({ id, role }) => {
      const [luck = 0, choice = 0, hour = 0] = createHash('sha256').update(`${id} ${date}`).digest();
      const occurredAt = `${date}T${String(hour % 24).padStart(2, '0')}:00:00Z`;
      if (luck % 30 >= daysOfThirtyWithSales || Date.parse(occurredAt) > now.getTime()) return [];
      const offered = role === 'salesManager' ? managerSales : sales;
      const sold = offered[choice % offered.length];
      const externalId = `demo-${date}-${id}`;
      return [v.parse(Record, { externalId, staffId: id, managerId: 'demo-manager', occurredAt, ...sold })];
    }),
  );
}
