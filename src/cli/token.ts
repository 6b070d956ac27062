import { Command, Option } from 'commander';
import { developmentSecret } from '../auth/development-key';
import { signToken } from '../auth/sign-token';
import { parseInstant } from '../calendar';
import { OperatorError } from '../errors';
import { moment } from '../start/moment';
import { commaList, durationSeconds, subject } from './arguments';
import { printResult } from './print';
import { readSettings } from './settings';

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
