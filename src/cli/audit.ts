import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import type { Database } from '../db/client';
import { databaseClock } from '../db/queries';
import { type AuditEvent, auditActions } from '../db/schema/people';
import { OperatorError } from '../errors';
import { type AuditLogFacts, confirmedState, dayMs, planRetention } from '../modules/audit/retention';
import { type AuditFilter, createAuditStore, holdTexts, noUserId, type Operator } from '../modules/audit/store';
import { parseInstant } from '../shared/calendar';
import { type Context, confirm, identifier, positiveInteger, readSettings, subject } from './context';
import { withDatabase } from './database';
import { counted, mapPages, printResult, streamJson, streamTable } from './output';

interface PruneOptions {
  readonly today?: string;
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

function pruneCommand(context: Context): Command {
  return new Command('prune')
    .description('Remove the audit events that are older than AUDIT_RETENTION_DAYS, and confirm the clock')
    .option('--today <date>', 'the date of today in UTC, which --yes needs if the clock may be wrong', date)
    .option('--dry-run', 'print the number of events that would be removed', false)
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The service removes expired events by itself. It asks for this command where that could be a mistake: after
AUDIT_RETENTION_DAYS was lowered, and where the clock differs from the time of the audit log by more than a day.
Removed events cannot be restored. The audit log records this command.`,
    )
    .action((options: PruneOptions) => prune(context, options));
}

async function prune(context: Context, options: PruneOptions): Promise<void> {
  const config = readSettings(context, 'audit prune');
  const days = config.auditRetentionDays;
  await withDatabase(context, config, async (db) => {
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
      printResult(context, options, { ...plan, events, removed: 0 }, `Would remove ${describe(events, before)}.`);
      return;
    }
    if (!options.yes) {
      await confirm(context, questionOf({ events, before, days, doubt }, facts), 'Nothing was removed');
    } else if (doubt !== undefined && options.today === undefined) {
      throw new OperatorError(`${doubt} Set the clock right, or confirm its date with --today YYYY-MM-DD.`);
    }
    await store.confirm(confirmedState(facts, days, now), { operator: context.operator(), now });
    const removed = await store.removeExpired({ before }, () => false);
    const sentence = `Removed ${describe(removed, before)}. Events are kept for ${days} days from now on.`;
    printResult(context, options, { ...plan, events, removed }, sentence);
  });
}

/** The reasons why the service keeps events that AUDIT_RETENTION_DAYS and the clock would remove. */
export async function retentionWarnings(db: Database, days: number): Promise<string[]> {
  const facts = await createAuditStore(db).findFacts();
  // No retention is in force before the first run of a service.
  if (facts.state === undefined) return [];
  const { holds, next, aheadMs } = planRetention(facts, days, await earlierClock(db));
  const difference = counted(Math.floor(Math.abs(aheadMs) / dayMs), 'day');
  return holds.map((hold) => {
    const subject = hold === 'shortened' ? `AUDIT_RETENTION_DAYS (${days}, in force ${next.days})` : `${difference}:`;
    return `${subject} ${holdTexts[hold]}`;
  });
}

/** An event expires only when it is old by the clock of this machine and by the clock of the database. */
async function earlierClock(db: Database): Promise<number> {
  return Math.floor(Math.min(Date.now(), await databaseClock(db)));
}

function describe(events: number, before: number): string {
  return `${counted(events, 'event')} from before ${dateOf(before)}`;
}

function questionOf(
  { events, before, days, doubt }: { events: number; before: number; days: number; doubt: string | undefined },
  { state }: AuditLogFacts,
): string {
  const until = state === undefined || state.days === days ? '' : ` instead of ${state.days}`;
  const question = `Remove ${describe(events, before)} for good, and keep events for ${days} days${until} from now on?`;
  return doubt === undefined ? question : `${doubt} ${question}`;
}

/** The reason why the clock may be wrong; undefined when it agrees with the audit log. */
function doubtOf({ newest, state }: AuditLogFacts, now: number): string | undefined {
  const known = state?.asOf ?? newest;
  if (known === undefined || Math.abs(now - known) <= dayMs) return undefined;
  const days = counted(Math.floor(Math.abs(now - known) / dayMs), 'day');
  return `The clock says ${dateOf(now)}, which is ${days} ${now > known ? 'after' : 'before'} the time of the audit log.`;
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

export function auditCommand(context: Context): Command {
  return new Command('audit')
    .description('Print audit events, newest first: by user, actor, action and time')
    .addArgument(new Argument('[user]', 'id of a user or member of staff: the `sub` of the token').argParser(subject))
    .option('--by <actor>', 'only events of this actor: login name of an operator, or id of a user', identifier)
    .addOption(new Option('--action <action>', 'only this action').choices(auditActions))
    .option('--since <instant>', 'only events from this date, or date-time with Z or an offset, on')
    .option('--until <instant>', 'only events before this date, or date-time with Z or an offset')
    .option('--limit <count>', 'at most this many events', positiveInteger)
    .option('--json', 'print the events as JSON', false)
    .addHelpText(
      'after',
      `
The conditions can be combined; at least one is needed. Without a user, each event has the id of its user, which is
empty where an event concerns no user in particular. The events of a member of staff include the data that they read.
An actor that is “unknown” has changed a record by other means than this build of the service. The events of an erased
user have the id that the erasure printed. The audit log records this command. The command streams the events and needs
little memory, however many there are.`,
    )
    .enablePositionalOptions()
    .addCommand(pruneCommand(context))
    .action((userId: string | undefined, options: AuditOptions) => {
      const config = readSettings(context, 'audit');
      const filter = filterOf(userId, options, config.reportTimeZone);
      return withDatabase(context, config, async (db) => {
        await recordAccess(db, userId, context.operator());
        const pages = createAuditStore(db).pages({ ...filter, limit: options.limit });
        await print(context, userId, pages, options);
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
async function recordAccess(db: Database, userId: string | undefined, operator: Operator): Promise<void> {
  const store = createAuditStore(db);
  const access = { action: 'read', actor: 'operator', section: 'audit', ...operator, now: Date.now() } as const;
  if (userId === undefined) return store.record({ ...access, userId: noUserId });
  const isRecorded = await store.recordAccess({ ...access, userId });
  if (!isRecorded) throw new OperatorError('The audit log has no events of this user.');
}

type Pages = AsyncIterable<readonly AuditEvent[]>;

/** Prints each event with its user, unless all are of one user. */
async function print(context: Context, userId: string | undefined, pages: Pages, options: AuditOptions): Promise<void> {
  const isOfMany = userId === undefined;
  if (options.json) {
    const toJson = (event: AuditEvent) => ({ ...toShown(event), ...(isOfMany && { user: event.userId }) });
    return streamJson(context, { user: userId ?? null }, 'events', mapPages(pages, toJson));
  }
  const header = ['time', 'action', 'section', 'actor', 'request', 'application', ...(isOfMany ? ['user'] : [])];
  const toCells = (event: AuditEvent) => [
    new Date(event.occurredAt).toISOString(),
    event.action,
    event.section ?? '',
    event.actorId === null ? event.actor : `${event.actor} ${event.actorId}`,
    event.requestId ?? '',
    event.applicationId ?? '',
    ...(isOfMany ? [event.userId] : []),
  ];
  return streamTable(context, widths, header, mapPages(pages, toCells));
}

/** The form of an event in JSON output and in the export of a user. */
export function toShown({ occurredAt, actor, actorId, action, section, applicationId, requestId }: AuditEvent) {
  return { time: new Date(occurredAt).toISOString(), action, section, actor, actorId, requestId, applicationId };
}

/** Wide enough for the values of the service. The name of an operator, or the request id of a client, may be longer. */
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
