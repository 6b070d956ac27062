import { Command, InvalidArgumentError, Option } from 'commander';
import { developmentSecret, signToken } from '../auth/signing';
import { magicLastNames } from '../carrier-sandbox/server';
import { placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
import { type DemoData, findDemoData, removeDemoData } from '../modules/demo-data/store';
import { parseInstant } from '../shared/calendar';
import { moment } from '../start/flags';
import { commaList, confirm, currentOperator, durationSeconds, subject, withDatabase } from './context';
import { printResult } from './output';
import { readSettings } from './settings';

export function carrierCommand(): Command {
  const names = Object.entries(magicLastNames).map(([name, { does }]) => `  ${name.padEnd(9)} ${does}`);
  return new Command('carrier')
    .description('Run the sandbox carrier alone, until SIGINT or SIGTERM')
    .option('--port <port>', 'port to listen on at 127.0.0.1', port, 3900)
    .addHelpText(
      'after',
      `
It stores its applications in SANDBOX_DATABASE_URL, which is file:data/carrier-sandbox.db in the working directory by
default. If CARRIER_API_KEY is set, every caller must send it. Applicants with these last names fail:
${names.join('\n')}`,
    )
    .action(async (options: { port: number }) => {
      const config = readSettings('carrier');
      const { apiKey } = config.carrier;
      // The only command that serves: loading what serving takes would double the start of every other one.
      const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
      const listening = { config, clock: () => new Date(), apiKey, port: options.port };
      const sandbox = await listenCarrierSandbox(listening).catch((error: unknown) => {
        if (findDatabaseError(error) !== undefined) throw error;
        throw new OperatorError(`The sandbox carrier cannot listen on port ${options.port}: ${codeOf(error)}`);
      });
      process.stdout.write(`The sandbox carrier listens on ${sandbox.url}\n`);
      const stop = async () => {
        await sandbox.stop();
        process.exit(0);
      };
      process.on('SIGTERM', stop);
      process.on('SIGINT', stop);
    });
}

function port(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) throw new InvalidArgumentError('It must be a port.');
  return Number(text);
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
}

export function tokenCommand(): Command {
  return new Command('token')
    .description('Sign a bearer token with AUTH_SECRET, or in development with the key kept in data/')
    .requiredOption('--sub <id>', 'the person that the token is for', subject)
    .addOption(new Option('--roles <roles>', 'roles, separated by commas').argParser(commaList).default([], 'none'))
    .addOption(
      new Option('--ttl <duration>', 'how long it is good for, such as 45s, 30m, 1h or 7d')
        .argParser(durationSeconds)
        .default(3600, '1h'),
    )
    .option('--now <time>', 'made at this date or date-time, for a service whose clock is stopped', moment)
    .option('--json', 'print the token and its expiry as JSON', false)
    .action(async (options: { sub: string; roles: string[]; ttl: number; now?: string; json: boolean }) => {
      const config = readSettings('token');
      const { key, ...claims } = config.auth;
      if (key.kind === 'public-key' || key.kind === 'jwks') {
        throw new OperatorError('The issuer signs the tokens with its private key. This command needs AUTH_SECRET.');
      }
      const secret = key.kind === 'secret' ? key.secret : developmentSecret();
      const toldMs = options.now === undefined ? undefined : parseInstant(options.now, config.reportTimeZone);
      const now = new Date(toldMs ?? Date.now());
      const token = await signToken({
        secret,
        ...claims,
        id: options.sub,
        roles: options.roles,
        ttlSeconds: options.ttl,
        now,
      });
      const expiresAt = new Date(now.getTime() + options.ttl * 1000).toISOString();
      printResult(options, { token, expiresAt }, token);
    });
}

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
