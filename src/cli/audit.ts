import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { parseInstant } from '../calendar';
import type { Database } from '../db/client';
import { type AuditEvent, auditActions } from '../db/schema/audit';
import { OperatorError } from '../errors';
import { type AuditFilter, createAuditStore, noUserId } from '../modules/audit/store';
import { identifier, subject } from './arguments';
import { pruneCommand } from './audit-retention';
import { withDatabase } from './command-database';
import { currentOperator } from './operator';
import { toLine, writeOut } from './print';
import { readSettings } from './settings';

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
