import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { buffer } from 'node:stream/consumers';
import { Command, InvalidArgumentError } from 'commander';
import * as v from 'valibot';
import { secretText } from '../config/secrets';
import { type Config, readConfig } from '../config/settings';
import { OperatorError } from '../errors';
import type { Operator } from '../modules/audit/store';
import { buildName } from '../shared/build';
import { parseInstant } from '../shared/calendar';
import { Identifier, Subject } from '../shared/fields';

export type Environment = Record<string, string | undefined>;
export type Signal = 'SIGHUP' | 'SIGINT' | 'SIGQUIT' | 'SIGTERM';

/** The environment, streams and signals of a command. `main.ts` takes them from the process; tests pass their own. */
export interface Context {
  readonly env: Environment;
  /** Relative file arguments start here. */
  readonly cwd: string;
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** The operator as the audit log names them, with an id of this run. */
  readonly operator: () => Operator;
  /** The exit code of a command that does not fail. */
  exitCode: number;
  /** Replaces the default handling of these signals, which ends the process; returns a function that restores it. */
  onSignals(signals: readonly Signal[], listener: (signal: Signal) => void): () => void;
  /** Ends the process. */
  exit(code: number): void;
}

/** The parts of a Config, each with the settings that it is read from. */
const parts = {
  database: {
    in: 'database',
    settings: ['DATABASE_URL', 'DATABASE_AUTH_TOKEN', 'DATABASE_TIMEOUT_MS', 'DATABASE_ENCRYPTION_KEY'],
  },
  migrationBackup: { in: 'database', settings: ['DATABASE_MIGRATION_BACKUP'] },
  auth: {
    in: 'auth',
    settings: [
      'AUTH_SECRET',
      'AUTH_PUBLIC_KEY',
      'AUTH_JWKS_URL',
      'AUTH_ISSUER',
      'AUTH_AUDIENCE',
      'AUTH_AUDIENCE_CLAIM',
      'AUTH_ROLES_CLAIM',
    ],
  },
  carrierCalls: { in: 'carrier', settings: ['CARRIER_URL', 'CARRIER_TIMEOUT_MS', 'CARRIER_ATTEMPTS'] },
  carrierKey: { in: 'carrier', settings: ['CARRIER_API_KEY'] },
  auditRetentionDays: { in: 'auditRetentionDays', settings: ['AUDIT_RETENTION_DAYS'] },
  reportTimeZone: { in: 'reportTimeZone', settings: ['REPORT_TIME_ZONE'] },
  sandboxDatabaseUrl: { in: 'sandboxDatabaseUrl', settings: ['SANDBOX_DATABASE_URL'] },
  seedDemo: { in: 'seedDemo', settings: ['SEED_DEMO'] },
} as const satisfies Readonly<Record<string, { in: keyof Config; settings: readonly string[] }>>;

/**
 * The parts of a Config that each command uses. A command checks no other setting, so that a backup runs without the key of
 * the carrier. `doctor` reads all settings, and `catalog schema` none.
 */
export const partsOf = {
  migrate: ['database', 'migrationBackup', 'seedDemo'],
  seed: ['database', 'seedDemo'],
  token: ['auth', 'reportTimeZone'],
  'import cemeteries': ['database', 'reportTimeZone'],
  'import products': ['database'],
  'import staff': ['database', 'reportTimeZone'],
  'import activities': ['database', 'reportTimeZone'],
  'user show': ['database'],
  'user export': ['database'],
  'user erase': ['database'],
  'user assign': ['database'],
  'applications list': ['database'],
  'applications settle': ['database', 'carrierCalls'],
  'applications abandon': ['database', 'carrierCalls'],
  audit: ['database', 'reportTimeZone'],
  'audit prune': ['database', 'auditRetentionDays'],
  'catalog show': ['database'],
  'catalog diff': ['database'],
  'catalog try': ['database', 'reportTimeZone'],
  'demo remove': ['database'],
  backup: ['database'],
  restore: ['database'],
  copy: ['database'],
  rekey: ['database'],
  carrier: ['carrierKey', 'database', 'sandboxDatabaseUrl'],
} as const satisfies Readonly<Record<string, readonly (keyof typeof parts)[]>>;

export type CommandName = keyof typeof partsOf;

/** The settings that a command uses, by key. */
export function settingsFor(command: CommandName): string[] {
  return partsOf[command].flatMap((part) => parts[part].settings);
}

/** @throws ConfigError that names every invalid setting of those that the command uses */
export function readSettings<Name extends CommandName>(
  { env }: Pick<Context, 'env'>,
  command: Name,
): Pick<Config, (typeof parts)[(typeof partsOf)[Name][number]]['in'] | 'isProduction'> {
  return readConfig(env, undefined, settingsFor(command));
}

const idProgram = '/usr/bin/id';

/** The login name of the user who runs this process, with a new id. */
export function currentOperator(): Operator {
  return { actorId: loginName(), requestId: Bun.randomUUIDv7() };
}

/** Asks the system, because Bun's `userInfo` returns the variable USER, which anyone can set (bun#39859). */
function loginName(): string {
  const found = existsSync(idProgram) ? Bun.spawnSync([idProgram, '-un'], { env: {}, stderr: 'ignore' }) : undefined;
  // In a container a user may have a number and no name.
  return found?.success ? found.stdout.toString().trim() : `uid ${process.getuid?.() ?? 'unknown'}`;
}

/**
 * Asks a yes-or-no question at the terminal.
 *
 * @param refusal the message for no, without a full stop
 * @throws OperatorError for any reply except yes, and without a terminal
 */
export async function confirm({ stdin, stderr }: Context, question: string, refusal: string): Promise<void> {
  if (!stdin.isTTY) throw new OperatorError(`${refusal}: use --yes where there is no terminal.`);
  const terminal = createInterface({ input: stdin, output: stderr });
  // An interrupt closes the terminal, after which `question` never settles.
  const closed = new Promise<string>((done) => terminal.once('close', () => done('')));
  const reply = await Promise.race([terminal.question(`${question} [y/N] `), closed]);
  terminal.close();
  if (!/^\s*y(es)?\s*$/i.test(reply)) throw new OperatorError(`${refusal}.`);
}

/**
 * A secret from an environment variable or from a file, `-` for standard input; undefined without either.
 *
 * @throws OperatorError
 */
export async function readSecret(
  { env, cwd, stdin }: Context,
  variable: string,
  option: string,
  file: string | undefined,
  form: v.GenericSchema<string, string>,
): Promise<string | undefined> {
  const fromEnvironment = env[variable];
  if (file === undefined && fromEnvironment === undefined) return undefined;
  if (file !== undefined && fromEnvironment !== undefined) {
    throw new OperatorError(`${variable} and ${option} are both set: give one of the two.`);
  }
  const readFile = async (path: string) => {
    if (path !== '-') return readFileSync(resolve(cwd, path));
    // A stream that was read to its end at a terminal cannot ask a question afterwards.
    return stdin.isTTY ? readFileSync(0) : buffer(stdin);
  };
  const text = fromEnvironment ?? secretText(await readFile(file ?? ''));
  if (text === undefined) throw new OperatorError(`The content of ${option} is not UTF-8 text.`);
  const secret = v.safeParse(form, text);
  if (!secret.success) {
    const source = file === undefined ? variable : `The content of ${option}`;
    throw new OperatorError(`${source} ${secret.issues[0].message}.`);
  }
  return secret.output;
}

/**
 * Reads a file of one JSON value in UTF-8.
 *
 * @throws OperatorError
 */
export async function readJsonFile({ cwd }: Context, path: string): Promise<unknown> {
  const file = Bun.file(resolve(cwd, path));
  if (!(await file.exists())) throw new OperatorError(`${path} is not a readable file.`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.bytes());
  } catch {
    throw new OperatorError(`${path} is not UTF-8 text.`);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new OperatorError(`${path} is not well-formed JSON.`);
  }
}

/** Parses the `sub` of a token. */
export function subject(text: string): string {
  if (!v.is(Subject, text)) throw new InvalidArgumentError('It must have 1 to 255 characters.');
  return text;
}

/** Parses an id that does not come from a token. */
export function identifier(text: string): string {
  if (!v.is(Identifier, text)) {
    throw new InvalidArgumentError('It must have 1 to 255 characters, none of them a control character.');
  }
  return text;
}

const unitSeconds = { s: 1, m: 60, h: 3600, d: 86_400 } as const;
const DurationUnit = v.picklist(['s', 'm', 'h', 'd']);
const maxTtlSeconds = 365 * 86_400;

/** Parses a duration such as `45s` or `7d`, in seconds. */
export function durationSeconds(text: string): number {
  const unit = v.safeParse(DurationUnit, text.slice(-1));
  const count = /^\d{1,9}$/.test(text.slice(0, -1)) ? Number(text.slice(0, -1)) : 0;
  const seconds = unit.success ? count * unitSeconds[unit.output] : 0;
  if (seconds === 0 || seconds > maxTtlSeconds) {
    throw new InvalidArgumentError('It must be a number with s, m, h or d, at most 365d.');
  }
  return seconds;
}

/** Parses a whole number from 1. */
export function positiveInteger(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1.');
  return Number(text);
}

/** Years in which the demo user has an insurable age. */
const years = { first: 2000, last: 2045 };

/** Parses the argument of `--now`: a date or a date-time with an offset. Returns it unchanged. */
export function instantArgument(text: string): string {
  if (parseInstant(text, 'UTC') === undefined) {
    throw new InvalidArgumentError(
      'It must be a valid date such as 2026-01-15, or a date-time with Z or an offset, such as 2026-01-15T09:30:00Z.',
    );
  }
  const year = Number(text.slice(0, 4));
  if (year < years.first || year > years.last) {
    throw new InvalidArgumentError(`It must be between ${years.first} and ${years.last}.`);
  }
  return text;
}

export interface StartFlags {
  readonly demo?: boolean;
  /** A date or a date-time. */
  readonly now?: string;
  /** The file that settings come from instead of `.env`. */
  readonly envFile?: string;
}

/** Parses the arguments of a start. Ends the process after `--help` and after an error. */
export function readStartFlags(args: readonly string[]): StartFlags {
  const command = new Command('bun start')
    .description('Starts the personal planning service. Settings come from the environment or .env: see README.md.')
    .version(buildName)
    .option('--env-file <path>', 'read settings from this file instead of .env in the working directory')
    .option('--demo', 'serve demo data from separate files, which each start creates again; other data stays unchanged')
    .option('--now <time>', 'with --demo: freeze the clock at a date or date-time, such as 2026-01-15', instantArgument)
    .showHelpAfterError()
    .parse(args, { from: 'user' });
  const flags = command.opts<StartFlags>();
  if (flags.now !== undefined && flags.demo !== true) command.error('error: --now requires --demo');
  return flags;
}
