import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import type { Database } from '../db/client';
import { type AuditEvent, auditActions } from '../db/schema/people';
import { databaseClock } from '../db/statements';
import { OperatorError } from '../errors';
import { confirmedState, dayMs, planRetention, type TrailFacts } from '../modules/audit/retention';
import { type AuditFilter, createAuditStore, holdTexts, noUserId } from '../modules/audit/store';
import { parseInstant } from '../shared/calendar';
import { confirm, currentOperator, identifier, subject, withDatabase } from './context';
import { counted, type Finding, printResult, toLine, writeOut } from './output';
import { readSettings } from './settings';

interface PruneOptions {
  readonly today?: string;
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

function pruneCommand(): Command {
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

interface AuditOptions {
  readonly by?: string;
  readonly action?: AuditEvent['action'];
  readonly since?: string;
  readonly until?: string;
  readonly limit?: number;
  readonly json: boolean;
}

export function auditCommand(): Command {
  return new Command('audit')
    .description('Print who did what to whose data, newest first: by user, actor, action and time')
    .addArgument(new Argument('[user]', 'id of a person or member of staff: the `sub` of the token').argParser(subject))
    .option('--by <actor>', 'only what this actor did: login name of an operator, or id of a user', identifier)
    .addOption(new Option('--action <action>', 'only this action').choices(auditActions))
    .option('--since <instant>', 'only events from this date, or date-time with Z or an offset, on')
    .option('--until <instant>', 'only events before this date, or date-time with Z or an offset')
    .option('--limit <count>', 'at most this many events', positiveInteger)
    .option('--json', 'print the events as JSON', false)
    .addHelpText(
      'after',
      `
The conditions can be combined; at least one is needed. Without a user, each event has the id of its user, which is
empty where an event concerns no user in particular. The events of a member of staff include what the person read.
An actor that is “unknown” has changed a record by other means than this build of the service. Events of an erased
person are under the id that the erasure printed. This look is recorded as an event of its own. The command prints
as it reads and needs little memory, however many events there are.`,
    )
    .enablePositionalOptions()
    .addCommand(pruneCommand())
    .action((userId: string | undefined, options: AuditOptions) => {
      const config = readSettings('audit');
      const filter = filterOf(userId, options, config.reportTimeZone);
      return withDatabase(config, async (db) => {
        await recordLook(db, userId);
        const pages = createAuditStore(db).pages({ ...filter, limit: options.limit });
        await (options.json ? printJson : printLines)(userId, pages);
      });
    });
}

/** @throws OperatorError */
function filterOf(userId: string | undefined, { by, action, since, until }: AuditOptions, zone: string): AuditFilter {
  const sinceMs = instantOf('--since', since, zone);
  const untilMs = instantOf('--until', until, zone);
  const filter = { userId, by, action, sinceMs, untilMs };
  if (Object.values(filter).every((value) => value === undefined)) {
    throw new OperatorError('Name a user, or one of --by, --action, --since and --until.');
  }
  if (untilMs !== undefined && untilMs <= (sinceMs ?? 0)) {
    throw new OperatorError('--until must be later than --since.');
  }
  return filter;
}

/** @throws OperatorError when the user has no events */
async function recordLook(db: Database, userId: string | undefined): Promise<void> {
  const store = createAuditStore(db);
  const look = { action: 'read', actor: 'operator', section: 'audit', ...currentOperator(), now: Date.now() } as const;
  if (userId === undefined) return store.record({ ...look, userId: noUserId });
  const isAny = await store.recordLook({ ...look, userId });
  if (!isAny) throw new OperatorError('The audit trail has nothing about this user.');
}

type Pages = AsyncIterable<readonly AuditEvent[]>;

async function printLines(userId: string | undefined, pages: Pages): Promise<void> {
  const userCell = (user: string) => (userId === undefined ? [user] : []);
  await writeOut(
    `${toLine(['time', 'action', 'section', 'actor', 'request', 'application', ...userCell('user')], widths)}\n`,
  );
  for await (const page of pages) {
    const lines = page.map((event) =>
      toLine(
        [
          new Date(event.occurredAt).toISOString(),
          event.action,
          event.section ?? '',
          event.actorId === null ? event.actor : `${event.actor} ${event.actorId}`,
          event.requestId ?? '',
          event.applicationId ?? '',
          ...userCell(event.userId),
        ],
        widths,
      ),
    );
    await writeOut(`${lines.join('\n')}\n`);
  }
}

/** One object, as other commands print it, but a line for each event. */
async function printJson(userId: string | undefined, pages: Pages): Promise<void> {
  await writeOut(`{\n  "user": ${JSON.stringify(userId ?? null)},\n  "events": [`);
  let separator = '\n';
  for await (const page of pages) {
    for (const event of page) {
      const user = userId === undefined ? { user: event.userId } : {};
      await writeOut(`${separator}    ${JSON.stringify({ ...toShown(event), ...user })}`);
      separator = ',\n';
    }
  }
  await writeOut('\n  ]\n}\n');
}

/** An event as operators and the person read it. */
export function toShown({ occurredAt, actor, actorId, action, section, applicationId, requestId }: AuditEvent) {
  return { time: new Date(occurredAt).toISOString(), action, section, actor, actorId, requestId, applicationId };
}

/** Wide enough for what the service writes. An operator's name, or a request id of a caller, may be longer. */
const widths = [24, 9, 21, 8, 36, 36];

/** @throws OperatorError */
function instantOf(option: string, text: string | undefined, timeZone: string): number | undefined {
  if (text === undefined) return undefined;
  const instant = parseInstant(text, timeZone);
  if (instant !== undefined) return instant;
  throw new OperatorError(
    `${option} must be a date that exists as YYYY-MM-DD, or such a date-time with Z or an offset.`,
  );
}

function positiveInteger(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1 on.');
  return Number(text);
}
