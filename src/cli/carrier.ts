import { Command, InvalidArgumentError } from 'commander';
import { magicLastNames } from '../carrier-sandbox/faults';
import { findDatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
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
