import { Command, InvalidArgumentError, Option } from 'commander';
import { developmentSecret, signToken } from '../auth/signing';
import { magicLastNames } from '../carrier-sandbox/server';
import { placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { errorCode, OperatorError } from '../errors';
import { type DemoData, findDemoData, removeDemoData } from '../modules/demo-data/store';
import { parseInstant } from '../shared/calendar';
import { moment } from '../start/flags';
import { type Context, confirm, durationSeconds, readSettings, subject } from './context';
import { withDatabase } from './database';
import { printResult } from './output';

export function carrierCommand(context: Context): Command {
  const names = Object.entries(magicLastNames).map(([name, { does }]) => `  ${name.padEnd(9)} ${does}`);
  return new Command('carrier')
    .description('Run the sandbox carrier alone, until SIGINT or SIGTERM')
    .option('--port <port>', 'port to listen on at 127.0.0.1', port, 3900)
    .addHelpText(
      'after',
      `
It stores its applications in SANDBOX_DATABASE_URL, which is file:data/carrier-sandbox.db in the working directory by
default. If CARRIER_API_KEY is set, every request must carry it. Applicants with these last names fail:
${names.join('\n')}`,
    )
    .action(async (options: { port: number }) => {
      const config = readSettings(context, 'carrier');
      const { apiKey } = config.carrier;
      // Only this command serves HTTP. Without the dynamic import, every other one would take twice as long to start.
      const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
      const listening = { config, clock: () => new Date(), apiKey, port: options.port };
      const sandbox = await listenCarrierSandbox(listening).catch((error: unknown) => {
        if (findDatabaseError(error) !== undefined) throw error;
        throw new OperatorError(`The sandbox carrier cannot listen on port ${options.port}: ${errorCode(error)}`);
      });
      context.stdout.write(`The sandbox carrier listens on ${sandbox.url}\n`);
      context.onSignals(['SIGTERM', 'SIGINT'], async () => {
        await sandbox.stop();
        context.exit(0);
      });
    });
}

function port(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) throw new InvalidArgumentError('It must be a port.');
  return Number(text);
}

interface TokenOptions {
  readonly sub: string;
  readonly roles: string[];
  readonly ttl: number;
  readonly now?: string;
  readonly json: boolean;
}

export function tokenCommand(context: Context): Command {
  return new Command('token')
    .description('Sign a bearer token with AUTH_SECRET, or in development with the key in data/')
    .requiredOption('--sub <id>', 'the user that the token is for', subject)
    .addOption(new Option('--roles <roles>', 'roles, separated by commas').argParser(commaList).default([], 'none'))
    .addOption(
      new Option('--ttl <duration>', 'how long the token is valid, such as 45s, 30m, 1h or 7d')
        .argParser(durationSeconds)
        .default(3600, '1h'),
    )
    .option('--now <time>', 'the date or date-time of issue, for a service with a stopped clock', moment)
    .option('--json', 'print the token and its expiry as JSON', false)
    .action(async (options: TokenOptions) => {
      const config = readSettings(context, 'token');
      const { key, ...claims } = config.auth;
      if (key.kind === 'public-key' || key.kind === 'jwks') {
        throw new OperatorError('The issuer signs the tokens with its private key. This command needs AUTH_SECRET.');
      }
      const secret = key.kind === 'secret' ? key.secret : developmentSecret();
      const givenMs = options.now === undefined ? undefined : parseInstant(options.now, config.reportTimeZone);
      const now = new Date(givenMs ?? Date.now());
      const { sub: id, roles, ttl: ttlSeconds } = options;
      const token = await signToken({ secret, ...claims, id, roles, ttlSeconds, now });
      const expiresAt = new Date(now.getTime() + ttlSeconds * 1000).toISOString();
      printResult(context, options, { token, expiresAt }, token);
    });
}

function commaList(text: string): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
}

interface RemoveOptions {
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

export function demoCommand(context: Context): Command {
  return new Command('demo').description('Remove demo data').addCommand(
    new Command('remove')
      .description('Remove the demo cemeteries, staff and activities, and the mark of a development database')
      .option('--dry-run', 'print the rows that would be removed, and remove nothing', false)
      .option('--yes', 'do not ask', false)
      .option('--json', 'print the counts as JSON', false)
      .addHelpText(
        'after',
        `
The command removes only rows that the service itself added. Demo staff stays while a user, another activity or other
staff refers to it: assign those users to another counselor, and run the command again. The audit log records each
removed member of staff. Records of demo-user and demo-manager stay; “planning user erase” erases them.`,
      )
      .action((options: RemoveOptions) => removeDemo(context, options)),
  );
}

async function removeDemo(context: Context, options: RemoveOptions): Promise<void> {
  const config = readSettings(context, 'demo remove');
  const place = placeOf(config.database.url);
  await withDatabase(context, config, async (db) => {
    const found = await findDemoData(db);
    const rows = describeDemoRows(found);
    const isRemoved = (rows !== undefined || found.isMarked) && !options.dryRun;
    if (isRemoved) {
      const question = `Remove ${rows ?? 'the mark of a development database'} from ${place}?`;
      if (!options.yes) await confirm(context, question, 'Nothing was removed');
      await removeDemoData(db, found, context.operator(), new Date());
    }
    const lines = [
      ...(rows === undefined ? [`There is no demo data to remove from ${place}.`] : []),
      ...(rows === undefined ? [] : [isRemoved ? `Removed ${rows} from ${place}.` : `${place} has ${rows}.`]),
      ...(found.isMarked && isRemoved ? ['The database is no longer marked for development.'] : []),
      ...(found.isMarked && !isRemoved ? ['The database is marked for development.'] : []),
      ...(found.referredStaff.length > 0
        ? [`Kept, because other rows refer to them: ${found.referredStaff.join(', ')}.`]
        : []),
      ...(found.users.length > 0 ? [`Kept, as records of users: ${found.users.join(', ')}.`] : []),
      ...(options.dryRun ? ['Nothing was removed (dry run).'] : []),
    ];
    printResult(context, options, { database: place, isRemoved, ...found }, lines.join('\n'));
  });
}

/** Describes the demo rows that can be removed; undefined if there are none. */
export function describeDemoRows({ cemeteries, staff, activities }: DemoData): string | undefined {
  const parts = [
    cemeteries === 0 ? [] : [cemeteries === 1 ? '1 demo cemetery' : `${cemeteries} demo cemeteries`],
    staff.length === 0 ? [] : [`${staff.length} demo staff`],
    activities === 0 ? [] : [activities === 1 ? '1 demo activity' : `${activities} demo activities`],
  ].flat();
  return parts.length === 0 ? undefined : parts.join(', ');
}
