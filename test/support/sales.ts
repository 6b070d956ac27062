import type { Operator } from '../../src/modules/audit/store';
import type { ActivityRecord, StaffRecord } from '../../src/modules/sales/model';

export const testOperator: Operator = { actorId: 'tester', requestId: 'command-1' };

export function manager(id: string, lastName = 'Manager', firstName = 'A'): StaffRecord {
  return { id, role: 'salesManager', firstName, lastName, managerId: undefined };
}

export function counselor(id: string, managerId: string, lastName = 'Counselor', firstName = 'A'): StaffRecord {
  return { id, role: 'counselor', firstName, lastName, managerId };
}

let sold = 0;

/** An activity with a unique external id, as an import row. */
export function activity(
  staffId: string,
  occurredAt: string | number,
  of: Partial<Pick<ActivityRecord, 'kind' | 'amountCents' | 'managerId' | 'externalId'>> = {},
): ActivityRecord {
  sold += 1;
  return {
    externalId: `sold-${sold}`,
    staffId,
    kind: 'quote',
    amountCents: 0,
    managerId: undefined,
    occurredAt: typeof occurredAt === 'number' ? occurredAt : Date.parse(occurredAt),
    ...of,
  };
}
