import { createHash } from 'node:crypto';
import { requireSettingsAsWritten } from '../../src/config/env-files';
import { ConfigError } from '../../src/config/settings';

// Prints the keys that a start rejects, and a hash of every other value that Bun read from files.
const { env, execArgv } = process;
let refused: string[] = [];
let message = '';
try {
  requireSettingsAsWritten(env, execArgv);
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  refused = error.faults.map(({ key }) => key);
  message = error.message;
}
const hashes = Object.entries(env)
  .filter(([key]) => !refused.includes(key))
  .map(([key, value = '']) => [key, createHash('sha256').update(value).digest('hex')]);
process.stdout.write(JSON.stringify({ refused, message, hashes: Object.fromEntries(hashes) }));
