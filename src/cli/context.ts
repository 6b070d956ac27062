import { existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import { InvalidArgumentError } from 'commander';
import * as v from 'valibot';
import { secretText } from '../config/secrets';
import type { Config } from '../config/settings';
import {
  absenceOf,
  closeDatabase,
  type Database,
  type DatabaseSettings,
  keptLogWarning,
  openDatabase,
  placeOf,
} from '../db/client';
import { damageMessage, reportSchema } from '../db/migrate';
import { schemaFit, unfitMessage, unfitOf } from '../db/schema-gate';
import { OperatorError } from '../errors';
import type { Operator } from '../modules/audit/store';
import { commandName } from '../shared/build';
import { Identifier, Subject } from '../shared/fields';

const migrateFirst = ` Run \`${commandName} migrate\` first.`;

/**
 * Opens the configured database for one command and closes it afterwards. The database must exist and be migrated: with a
 * mistyped path, the command would create an empty one, and a dry run would migrate that of a running service.
 */
export async function withDatabase<Result>(
  config: Pick<Config, 'database'>,
  work: (db: Database) => Promise<Result>,
): Promise<Result> {
  const absence = absenceOf(config.database.url);
  if (absence !== undefined) throw new OperatorError(`${absence}${migrateFirst}`);
  const db = await openOwnDatabase(config.database);
  try {
    const fit = await schemaFit(db.$client);
    if (fit !== 'fit') throw new OperatorError(unfitMessage(fit, placeOf(config.database.url)));
    const { blocking } = await reportSchema(db);
    if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
    return await work(db);
  } finally {
    await closeOfCommand(db, config.database.url);
  }
}

/**
 * Opens a database of this service, or one without tables.
 *
 * @throws OperatorError for a file of another program, which stays as it is
 */
export function openOwnDatabase(settings: DatabaseSettings): Promise<Database> {
  return openDatabase({ ...settings, isOwn: true }).catch((error: unknown) => {
    throw toOperatorError(error, placeOf(settings.url));
  });
}

/** Names the database and the remedy if the error says that its schema does not fit; any other error stays. */
export function toOperatorError(error: unknown, place: string): unknown {
  const fit = unfitOf(error);
  return fit === undefined ? error : new OperatorError(unfitMessage(fit, place));
}

/** Closes the database, and prints a line where the database file alone does not hold all rows. */
export async function closeOfCommand(db: Database, url: string): Promise<void> {
  const code = await closeDatabase(db);
  if (code !== undefined) process.stderr.write(`${placeOf(url)}: ${keptLogWarning(code)}.\n`);
}

const idProgram = '/usr/bin/id';
let operator: Operator | undefined;

/** Who runs this command, as the machine knows them, and an id of this one run. */
export function currentOperator(): Operator {
  operator ??= { actorId: loginName(), requestId: Bun.randomUUIDv7() };
  return operator;
}

/** Asked of the system: what Bun's `userInfo` says is the variable USER, which anybody can set (bun#39859). */
function loginName(): string {
  const found = existsSync(idProgram) ? Bun.spawnSync([idProgram, '-un'], { env: {}, stderr: 'ignore' }) : undefined;
  // In a container a user may have a number alone.
  return found?.success ? found.stdout.toString().trim() : `uid ${process.getuid?.() ?? 'unknown'}`;
}

/**
 * Asks at the terminal.
 *
 * @param refusal what to say when the answer is no, without a full stop
 * @throws OperatorError when the answer is anything but yes, or there is no terminal
 */
export async function confirm(question: string, refusal: string): Promise<void> {
  if (!process.stdin.isTTY) throw new OperatorError(`${refusal}: use --yes where there is no terminal.`);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // An interrupt closes the terminal, and the question would never be answered.
  const closed = new Promise<string>((resolve) => terminal.once('close', () => resolve('')));
  const answer = await Promise.race([terminal.question(`${question} [y/N] `), closed]);
  terminal.close();
  if (!/^\s*y(es)?\s*$/i.test(answer)) throw new OperatorError(`${refusal}.`);
}

/** The id of a person: whatever a token's `sub` may be. */
export function subject(text: string): string {
  if (!v.is(Subject, text)) throw new InvalidArgumentError('It must have 1 to 255 characters.');
  return text;
}

/** An id that is not a token's. */
export function identifier(text: string): string {
  if (!v.is(Identifier, text)) {
    throw new InvalidArgumentError('It must have 1 to 255 characters, none of them a control character.');
  }
  return text;
}

const secondsByUnit = new Map([
  ['s', 1],
  ['m', 60],
  ['h', 3600],
  ['d', 86_400],
]);
const maxTtlSeconds = 365 * 86_400;

/** A duration such as `45s` or `7d`, in seconds. */
export function durationSeconds(text: string): number {
  const match = /^(\d{1,9})([smhd])$/.exec(text);
  const seconds = Number(match?.[1]) * (secondsByUnit.get(match?.[2] ?? '') ?? Number.NaN);
  if (!(seconds > 0 && seconds <= maxTtlSeconds)) {
    throw new InvalidArgumentError('It must be a number with s, m, h or d, at most 365d.');
  }
  return seconds;
}

/** Words separated by commas. */
export function commaList(text: string): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
}

/**
 * A secret from a variable of the environment or from a file, `-` for standard input; undefined if neither is there.
 *
 * @throws OperatorError
 */
export function readSecret(
  variable: string,
  option: string,
  file: string | undefined,
  form: v.GenericSchema<string, string>,
): string | undefined {
  const fromEnvironment = process.env[variable];
  if (file === undefined && fromEnvironment === undefined) return undefined;
  if (file !== undefined && fromEnvironment !== undefined) {
    throw new OperatorError(`${variable} and ${option} are both there: give one of the two.`);
  }
  const text = fromEnvironment ?? secretText(readFileSync(file === '-' ? 0 : String(file)));
  if (text === undefined) throw new OperatorError(`The content of ${option} is not UTF-8 text.`);
  const secret = v.safeParse(form, text);
  if (!secret.success) {
    const source = file === undefined ? variable : `The content of ${option}`;
    throw new OperatorError(`${source} ${secret.issues[0].message}.`);
  }
  return secret.output;
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or folder',
  EEXIST: 'it exists already; name a new file',
  EISDIR: 'it is a folder',
  EACCES: 'it may not be read or written',
  ENOSPC: 'the disk is full',
};

/** What the system refuses, by the file and the reason; undefined for any other error. */
export function systemSentence(error: unknown): string | undefined {
  if (!(error instanceof Error && 'code' in error && 'syscall' in error)) return undefined;
  const code = String(error.code);
  const file = 'path' in error ? `${error.path}: ` : '';
  return `${file}${reasons[code] ?? error.message} (${code}).`;
}
