import { Command, InvalidArgumentError } from 'commander';
import { developmentSecret } from '../auth/development-key';
import { signToken } from '../auth/sign-token';
import { readConfig } from '../config';
import { OperatorError } from './operator-error';
import { printResult } from './print';

const secondsByUnit = new Map([
  ['s', 1],
  ['m', 60],
  ['h', 3600],
  ['d', 86_400],
]);
const maxTtlSeconds = 365 * 86_400;

export function tokenCommand(): Command {
  return new Command('token')
    .description('Sign a bearer token with AUTH_SECRET, or in development with the key kept in data/')
    .requiredOption('--sub <id>', 'the person that the token is for', nonEmpty)
    .option('--roles <roles>', 'roles, separated by commas', list, [])
    .option('--ttl <duration>', 'how long it is good for, such as 45s, 30m, 1h or 7d', ttlSeconds, 3600)
    .option('--json', 'print the token and its expiry as JSON', false)
    .action(async (options: { sub: string; roles: string[]; ttl: number; json: boolean }) => {
      const { key, ...claims } = readConfig(process.env).auth;
      if (key.kind === 'public-key' || key.kind === 'jwks') {
        throw new OperatorError('Tokens are signed by whoever holds the private key: only AUTH_SECRET can sign here.');
      }
      const secret = key.kind === 'secret' ? key.secret : developmentSecret();
      const now = new Date();
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

function nonEmpty(text: string): string {
  if (text === '' || text.length > 255) throw new InvalidArgumentError('It must have 1 to 255 characters.');
  return text;
}

function list(text: string): string[] {
  return text
    .split(',')
    .map((role) => role.trim())
    .filter((role) => role !== '');
}

function ttlSeconds(text: string): number {
  const match = /^(\d{1,9})([smhd])$/.exec(text);
  const seconds = Number(match?.[1]) * (secondsByUnit.get(match?.[2] ?? '') ?? Number.NaN);
  if (!(seconds > 0 && seconds <= maxTtlSeconds)) {
    throw new InvalidArgumentError('It must be a number with s, m, h or d, at most 365d.');
  }
  return seconds;
}
