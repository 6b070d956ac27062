import { Command, InvalidArgumentError } from 'commander';
import { parseInstant } from '../calendar';
import type { Database } from '../db/client';
import { databaseClock } from '../db/clock';
import { OperatorError } from '../errors';
import { holdTexts } from '../modules/audit/retention';
import { confirmedState, dayMs, planRetention, type TrailFacts } from '../modules/audit/retention-plan';
import { createAuditStore } from '../modules/audit/store';
import { withDatabase } from './command-database';
import { confirm } from './confirm';
import { currentOperator } from './operator';
import type { Finding } from './print';
import { counted, printResult } from './print';
import { readSettings } from './settings';

interface PruneOptions {
  readonly today?: string;
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

export function pruneCommand(): Command {
  return new Command('prune')
    .description('Remove the events of the audit trail that are older than AUDIT_RETENTION_DAYS, and confirm the clock')
    .option('--today <date>', 'the date of today in UTC, which --yes needs if the clock is in doubt', date)
    .option('--dry-run', 'print what would be removed', false)
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The service removes expired events by itself. It asks for this command where that could be a mistake: after
AUDIT_RETENTION_DAYS was lowered, and where the clock differs from the time of the audit trail by more than a day.
Removed events cannot be restored. The command is recorded in the audit trail.`,
    )
    .action((options: PruneOptions) => {
      const config = readSettings('audit prune');
      const days = config.auditRetentionDays;
      return withDatabase(config, async (db) => {
        const store = createAuditStore(db);
        const now = await earlierClock(db);
        const facts = await store.findFacts();
        const doubt = doubtOf(facts, now);
        if (options.today !== undefined && options.today !== dateOf(now)) {
          throw new OperatorError(`${doubt ?? `The clock says ${dateOf(now)}.`} --today gives another date.`);
        }
        const before = now - days * dayMs;
        const events = await store.countExpired(before);
        const plan = { days, appliedDays: facts.state?.days ?? null, before: new Date(before).toISOString() };
        if (options.dryRun) {
          printResult(options, { ...plan, events, removed: 0 }, `Would remove ${describe(events, before)}.`);
          return;
        }
        if (!options.yes) await confirm(questionOf({ events, before, days, doubt }, facts), 'Nothing was removed');
        else if (doubt !== undefined && options.today === undefined) {
          throw new OperatorError(`${doubt} Set the clock right, or confirm its date with --today YYYY-MM-DD.`);
        }
        await store.confirm(confirmedState(facts, days, now), { operator: currentOperator(), now });
        const removed = await store.removeExpired({ before }, () => false);
        const sentence = `Removed ${describe(removed, before)}. Events are kept for ${days} days from now on.`;
        printResult(options, { ...plan, events, removed }, sentence);
      });
    });
}

/** Why the service does not remove all events that AUDIT_RETENTION_DAYS and the clock ask for. */
export async function retentionFindings(db: Database, days: number): Promise<Finding[]> {
  const facts = await createAuditStore(db).findFacts();
  // Before the first run of a service nothing is in force.
  if (facts.state === undefined) return [];
  const { holds, next, aheadMs } = planRetention(facts, days, await earlierClock(db));
  const difference = counted(Math.floor(Math.abs(aheadMs) / dayMs), 'day');
  return holds.map((hold): Finding => {
    const subject = hold === 'shortened' ? `AUDIT_RETENTION_DAYS (${days}, in force ${next.days})` : `${difference}:`;
    return { check: 'audit trail', result: 'warning', detail: `${subject} ${holdTexts[hold]}` };
  });
}

/** An event expires only when it is old by the clock of this machine and by that of the database. */
async function earlierClock(db: Database): Promise<number> {
  return Math.floor(Math.min(Date.now(), await databaseClock(db)));
}

function describe(events: number, before: number): string {
  return `${counted(events, 'event')} from before ${dateOf(before)}`;
}

function questionOf(
  { events, before, days, doubt }: { events: number; before: number; days: number; doubt: string | undefined },
  { state }: TrailFacts,
): string {
  const until = state === undefined || state.days === days ? '' : ` instead of ${state.days}`;
  const what = `Remove ${describe(events, before)} for good, and keep events for ${days} days${until} from now on?`;
  return doubt === undefined ? what : `${doubt} ${what}`;
}

/** Why the clock may be wrong. */
function doubtOf({ newest, state }: TrailFacts, now: number): string | undefined {
  const known = state?.asOf ?? newest;
  if (known === undefined || Math.abs(now - known) <= dayMs) return undefined;
  const days = counted(Math.floor(Math.abs(now - known) / dayMs), 'day');
  return `The clock says ${dateOf(now)}, which is ${days} ${now > known ? 'after' : 'before'} the time of the audit trail.`;
}

function date(text: string): string {
  if (!/^\d{4}-\d\d-\d\d$/.test(text) || parseInstant(text, 'UTC') === undefined) {
    throw new InvalidArgumentError('It must be a date that exists as YYYY-MM-DD.');
  }
  return text;
}

function dateOf(instant: number): string {
  return new Date(instant).toISOString().slice(0, 10);
}
