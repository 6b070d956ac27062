import { StaffRecord } from '../modules/sales/model';
import { createSalesStore, type StaffPosition } from '../modules/sales/store';
import { readableRows } from './import-file';
import type { RowsImport } from './import-rows';
import { currentOperator } from './operator';

const staffColumns = { columns: ['id', 'role', 'firstName', 'lastName', 'managerId'] };

export const staffImport: RowsImport<typeof StaffRecord> = {
  name: 'staff',
  columns: staffColumns,
  help: `id is the \`sub\` of the person's token; role is salesManager or counselor. managerId names the sales manager
whose team a counselor is in, who may come later in the same file; for a sales manager it is empty.
Moving a counselor to another team leaves what was sold before with the team of its time.`,
  async format({ db, path }) {
    const isManager = ({ role }: StaffRecord) => role === 'salesManager';
    const passes = [isManager, (row: StaffRecord) => !isManager(row)];
    const format = { ...staffColumns, row: StaffRecord, keyOf: ({ id }: StaffRecord) => id, passes };
    const positions = await createSalesStore(db).listPositions();
    for await (const { id, role, managerId = null } of readableRows(path, format)) {
      positions.set(id, { id, role, managerId });
    }
    const leaders = new Set([...positions.values()].map(({ managerId }) => managerId));
    return { ...format, findFaults: async (rows) => rows.map((row) => positionFaults(row, positions, leaders)) };
  },
  store: (db) => (rows) => createSalesStore(db).upsertStaff(rows, new Date(), { operator: currentOperator() }),
};

/** What is wrong with somebody's place in the teams as they will be. */
function positionFaults(
  { id, role, managerId }: StaffRecord,
  positions: ReadonlyMap<string, StaffPosition>,
  leaders: ReadonlySet<string | null>,
): string[] {
  if (role === 'salesManager') return [];
  const isLed = managerId !== undefined && positions.get(managerId)?.role === 'salesManager';
  return [
    ...(isLed ? [] : ['column managerId: must be the id of a sales manager, in this file or stored']),
    ...(leaders.has(id) ? ['column role: must be salesManager as long as counselors name this person'] : []),
  ];
}
