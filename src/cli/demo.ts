import { Command } from 'commander';
import { placeOf } from '../db/client';
import { type DemoData, findDemoData, removeDemoData } from '../modules/demo-data/store';
import { withDatabase } from './command-database';
import { confirm } from './confirm';
import { currentOperator } from './operator';
import { printResult } from './print';
import { readSettings } from './settings';

export function demoCommand(): Command {
  return new Command('demo').description('Remove demo data').addCommand(
    new Command('remove')
      .description('Remove the demo cemeteries, staff and activities, and the mark of a development database')
      .option('--dry-run', 'print what would be removed and remove nothing', false)
      .option('--yes', 'do not ask', false)
      .option('--json', 'print the counts as JSON', false)
      .addHelpText(
        'after',
        `
Only rows that the service itself has added are removed. Demo staff stays while a user, another activity or other
staff refers to it: assign those users to another counselor, and run this again. The audit trail records each member
of the staff that is removed. Records of demo-user and demo-manager are not removed; “planning user erase” does that.`,
      )
      .action(remove),
  );
}

async function remove(options: { dryRun: boolean; yes: boolean; json: boolean }): Promise<void> {
  const config = readSettings('demo remove');
  const place = placeOf(config.database.url);
  await withDatabase(config, async (db) => {
    const found = await findDemoData(db);
    const rows = describeDemoRows(found);
    const isRemoved = (rows !== undefined || found.isMarked) && !options.dryRun;
    if (isRemoved) {
      const question = `Remove ${rows ?? 'the mark of a development database'} from ${place}?`;
      if (!options.yes) await confirm(question, 'Nothing was removed');
      await removeDemoData(db, found, currentOperator(), new Date());
    }
    const lines = [
      ...(rows === undefined ? [`There is no demo data to remove from ${place}.`] : []),
      ...(rows === undefined ? [] : [isRemoved ? `Removed ${rows} from ${place}.` : `${place} holds ${rows}.`]),
      ...(found.isMarked && isRemoved ? ['The database is no longer marked for development.'] : []),
      ...(found.isMarked && !isRemoved ? ['The database is marked for development.'] : []),
      ...(found.referredStaff.length > 0
        ? [`Kept, because other rows refer to them: ${found.referredStaff.join(', ')}.`]
        : []),
      ...(found.users.length > 0 ? [`Kept, as records of users: ${found.users.join(', ')}.`] : []),
      ...(options.dryRun ? ['Nothing was removed (dry run).'] : []),
    ];
    printResult(options, { database: place, isRemoved, ...found }, lines.join('\n'));
  });
}

/** The demo rows that can be removed, as text; undefined if there are none. */
export function describeDemoRows({ cemeteries, staff, activities }: DemoData): string | undefined {
  const parts = [
    cemeteries === 0 ? [] : [cemeteries === 1 ? '1 demo cemetery' : `${cemeteries} demo cemeteries`],
    staff.length === 0 ? [] : [`${staff.length} demo staff`],
    activities === 0 ? [] : [activities === 1 ? '1 demo activity' : `${activities} demo activities`],
  ].flat();
  return parts.length === 0 ? undefined : parts.join(', ');
}
