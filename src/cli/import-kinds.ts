import * as v from 'valibot';
import { CemeteryRecord } from '../modules/cemeteries/model';
import { createCemeteryStore } from '../modules/cemeteries/store';
import { type ActivityRecord, activityRecord, StaffRecord } from '../modules/sales/model';
import { createSalesStore, type StaffPosition, type StoredTeam } from '../modules/sales/store';
import { calendarDateAt } from '../shared/calendar';
import { identifier } from './context';
import type { RowFormat, RowsImport } from './import';
import { openSourceFile } from './import-source';
import { counted } from './output';

const activitiesColumns = {
  columns: ['externalId', 'staffId', 'kind', 'amount', 'occurredAt'],
  optionalColumns: ['managerId'],
};

export const activitiesImport: RowsImport<ReturnType<typeof activityRecord>> = {
  name: 'activities',
  columns: activitiesColumns,
  help: `externalId identifies an activity. kind is monthlyPlan or semiAnnualPlan (only of a sales manager), cemeteryPlan,
quote, quoteAndContract or application. amount is the earned amount, such as 1234.50, and may be negative. occurredAt is
a date-time with Z or an offset, or a date, which begins in REPORT_TIME_ZONE.
An activity counts for the team that its seller is in at the first import, or for the team of managerId. Another import
moves it only when it names another seller or manager.
A dry run warns about dates that were exported as midnight of another time zone.`,
  async format({ db, config }) {
    const store = createSalesStore(db);
    const positions = await store.listPositions();
    return {
      ...activitiesColumns,
      row: activityRecord(config.reportTimeZone),
      keyOf: ({ externalId }) => externalId,
      ...countMidnights(config.reportTimeZone),
      async findFaults(rows) {
        const inDoubt = rows.filter((row) => isPlan(row) || !isLeader(positions, row.managerId));
        const stored = await store.findTeams(inDoubt.map(({ externalId }) => externalId));
        return rows.map((row) => activityFaults(row, positions, stored.get(row.externalId)));
      },
    };
  },
  store: (db) => (rows) => createSalesStore(db).upsertActivities(rows, new Date()),
};

const writtenMidnight = /^\s*(\d{4}-\d{2}-\d{2})T00:00(?::00(?:\.0+)?)?(?:Z|[+-].*)\s*$/;
const MidnightRow = v.object({ occurredAt: v.pipe(v.string(), v.regex(writtenMidnight)) });

/** Counts dates written as midnight that fall on the previous day in the reporting time zone. */
function countMidnights(timeZone: string): Pick<RowFormat<ReturnType<typeof activityRecord>>, 'inspect' | 'warnings'> {
  const reportedDates = new Map<number, string>();
  let [rows, dayBefore, monthBefore] = [0, 0, 0];
  return {
    inspect({ occurredAt }, values) {
      rows += 1;
      if (!v.is(MidnightRow, values)) return;
      const [, written = ''] = writtenMidnight.exec(values.occurredAt) ?? [];
      const reported = reportedDates.get(occurredAt) ?? calendarDateAt(new Date(occurredAt), timeZone);
      reportedDates.set(occurredAt, reported);
      if (reported < written) dayBefore += 1;
      if (reported.slice(0, 7) < written.slice(0, 7)) monthBefore += 1;
    },
    warnings() {
      if (dayBefore === 0) return [];
      const message =
        `${dayBefore} of ${counted(rows, 'date')} are written as midnight and fall on the day before in ${timeZone}, ` +
        `${monthBefore} of them in the month before. A date without a time begins in ${timeZone}: write YYYY-MM-DD.`;
      return [{ code: 'midnight-on-the-day-before', message, counts: { rows, dayBefore, monthBefore } }];
    },
  };
}

function isPlan({ kind }: ActivityRecord): boolean {
  return kind === 'monthlyPlan' || kind === 'semiAnnualPlan';
}

function isLeader(positions: ReadonlyMap<string, StaffPosition>, managerId: string | undefined): boolean {
  return managerId === undefined || positions.get(managerId)?.role === 'salesManager';
}

/** A manager who no longer leads a team is valid in a stored activity, but not in a new one. */
function activityFaults(
  row: ActivityRecord,
  positions: ReadonlyMap<string, StaffPosition>,
  stored: StoredTeam | undefined,
): string[] {
  const { staffId, managerId } = row;
  const seller = positions.get(staffId);
  if (seller === undefined) return ['column staffId: must be the id of a member of staff'];
  if (!isLeader(positions, managerId) && managerId !== stored?.managerId) {
    return ['column managerId: must be the id of a sales manager in staff'];
  }
  const storedTeam = stored?.staffId === staffId ? stored.managerId : undefined;
  const team = managerId ?? storedTeam ?? seller.managerId ?? staffId;
  if (isPlan(row) && team !== staffId) {
    return ['column kind: only a sales manager may have monthlyPlan and semiAnnualPlan'];
  }
  return [];
}

const cemeteriesColumns = { columns: ['externalId', 'name', 'street', 'city', 'state', 'zip'] };

export const cemeteriesImport: RowsImport<typeof CemeteryRecord> = {
  name: 'cemeteries',
  columns: cemeteriesColumns,
  help: `externalId identifies a cemetery. street and zip may be empty; a zip has 5 digits, or 5 and 4 with a hyphen;
externalId and city have at most 100 characters, name and street 200.`,
  configure: (command) => command.option('--as <id>', 'the creator of new cemeteries', identifier, 'operator'),
  format: async () => ({ ...cemeteriesColumns, row: CemeteryRecord, keyOf: ({ externalId }) => externalId }),
  store(db, { createdBy }) {
    const store = createCemeteryStore(db);
    return (rows) => store.upsert(rows, { createdBy, now: new Date() });
  },
};

const staffColumns = { columns: ['id', 'role', 'firstName', 'lastName', 'managerId'] };

export const staffImport: RowsImport<typeof StaffRecord> = {
  name: 'staff',
  columns: staffColumns,
  help: `id is the \`sub\` of the token; role is salesManager or counselor. managerId is the sales manager of a counselor,
who may come later in the same file; it is empty for a sales manager.
When a counselor moves to another team, earlier activities stay with the earlier team.`,
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
  store:
    (db, { operator }) =>
    (rows) =>
      createSalesStore(db).upsertStaff(rows, new Date(), { operator: operator() }),
};

/** Yields the valid rows of a file, and skips the others. */
async function* readableRows<Schema extends v.GenericSchema>(
  path: string,
  format: RowFormat<Schema>,
): AsyncGenerator<v.InferOutput<Schema>> {
  const file = await openSourceFile(path, format);
  for await (const { values } of file.rows()) {
    const parsed = v.safeParse(format.row, values);
    if (parsed.success) yield parsed.output;
  }
}

/** Checks a member of staff against the teams as they will be after the import. */
function positionFaults(
  { id, role, managerId }: StaffRecord,
  positions: ReadonlyMap<string, StaffPosition>,
  leaders: ReadonlySet<string | null>,
): string[] {
  if (role === 'salesManager') return [];
  const isLed = managerId !== undefined && positions.get(managerId)?.role === 'salesManager';
  return [
    ...(isLed ? [] : ['column managerId: must be the id of a sales manager, in this file or stored']),
    ...(leaders.has(id) ? ['column role: must be salesManager while counselors name this person'] : []),
  ];
}
