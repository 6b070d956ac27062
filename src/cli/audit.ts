import { Argument, Command, InvalidArgumentError } from 'commander';
import { parseInstant } from '../calendar';
import { readConfig } from '../config';
import type { AuditEvent } from '../db/schema/audit';
import { createAuditStore } from '../modules/audit/store';
import { subject } from './arguments';
import { withDatabase } from './command-database';
import { currentOperator } from './operator';
import { OperatorError } from './operator-error';

interface AuditOptions {
  readonly since?: string;
  readonly limit?: number;
  readonly json: boolean;
}

export function auditCommand(): Command {
  return new Command('audit')
    .description('Print who did what to the data of a user when, the newest first')
    .addArgument(
      new Argument('<user>', 'id of a person or of one of the staff: the `sub` of the token').argParser(subject),
    )
    .option('--since <instant>', 'only what was done since this date, or date-time with Z or an offset')
    .option('--limit <count>', 'at most so many events', positiveInteger)
    .option('--json', 'print the events as JSON', false)
    .addHelpText(
      'after',
      `
Of one of the staff it is also what they read of others, and who changed their place. An actor that is “unknown” has
changed a record by other means than this build of the service. Events of an erased person are under the id that the
erasure printed. This look is an event of its own. It prints as it reads, however many events there are.`,
    )
    .action((userId: string, options: AuditOptions) => {
      const config = readConfig(process.env);
      const sinceMs = instantOf(options.since, config.reportTimeZone);
      return withDatabase(config, async (db) => {
        const store = createAuditStore(db);
        const look = { userId, action: 'read', actor: 'operator', section: 'audit' } as const;
        const isAny = await store.recordLook({ ...look, ...currentOperator(), now: Date.now() });
        if (!isAny) throw new OperatorError('The audit trail has nothing about this user.');
        const print = options.json ? printJson : printLines;
        await print(userId, store.pages(userId, { sinceMs, limit: options.limit }));
      });
    });
}

type Pages = AsyncIterable<readonly AuditEvent[]>;

async function printLines(_userId: string, pages: Pages): Promise<void> {
  await write(`${toLine(['time', 'action', 'section', 'actor', 'request', 'application'])}\n`);
  for await (const page of pages) {
    const lines = page.map(({ occurredAt, action, section, actor, actorId, requestId, applicationId }) =>
      toLine([
        new Date(occurredAt).toISOString(),
        action,
        section ?? '',
        actorId === null ? actor : `${actor} ${actorId}`,
        requestId ?? '',
        applicationId ?? '',
      ]),
    );
    await write(`${lines.join('\n')}\n`);
  }
}

/** One object, as other commands print it, but a line an event. */
async function printJson(userId: string, pages: Pages): Promise<void> {
  await write(`{\n  "user": ${JSON.stringify(userId)},\n  "events": [`);
  let separator = '\n';
  for await (const page of pages) {
    for (const event of page) {
      await write(`${separator}    ${JSON.stringify(toShown(event))}`);
      separator = ',\n';
    }
  }
  await write('\n  ]\n}\n');
}

/** An event as operators and the person read it. */
export function toShown({ occurredAt, actor, actorId, action, section, applicationId, requestId }: AuditEvent) {
  return { time: new Date(occurredAt).toISOString(), action, section, actor, actorId, requestId, applicationId };
}

/** Wide enough for what the service writes; only an operator's name, or a request's id of a caller's own, is longer. */
const widths = [24, 9, 21, 8, 36];

function toLine(cells: readonly string[]): string {
  return cells
    .map((cell, column) => cell.padEnd(widths[column] ?? 0))
    .join('  ')
    .trimEnd();
}

/** Waits for a reader who is slower than the database. */
async function write(text: string): Promise<void> {
  if (process.stdout.write(text)) return;
  await new Promise((resolve) => process.stdout.once('drain', resolve));
}

/** @throws OperatorError */
function instantOf(text: string | undefined, timeZone: string): number {
  if (text === undefined) return 0;
  const instant = parseInstant(text, timeZone);
  if (instant !== undefined) return instant;
  throw new OperatorError('--since must be a date that exists as YYYY-MM-DD, or such a date-time with Z or an offset.');
}

function positiveInteger(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1 on.');
  return Number(text);
}
