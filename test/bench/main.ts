/** `bun run bench [--rounds N] [--seconds N] [--json FILE]`: speeds as ratios of what is measured in the same run. */
import { cpus } from 'node:os';
import { Command } from 'commander';
import { toTable } from '../../src/cli/print';
import { cleanUp } from '../support/cleanup';
import { compareServers } from './http';
import { compareLedgers } from './monthly-glance';
import { compareRemoteSaves } from './remote';
import { requireWrk } from './wrk';

const count = (text: string) => Math.max(1, Math.trunc(Number(text)) || 1);
const options = new Command('bench')
  .option('--rounds <count>', 'rounds of each case, of which the middle one counts', count, 3)
  .option('--seconds <count>', 'seconds of each round', count, 5)
  .option('--skip-ledger', 'leave out the report beside 999,000 activities, which take two minutes to store', false)
  .option('--json <file>', 'write the figures to a file')
  .parse()
  .opts<{ rounds: number; seconds: number; skipLedger: boolean; json?: string }>();

requireWrk();
try {
  const servers = await compareServers(options);
  const others = [...(await compareRemoteSaves()), ...(options.skipLedger ? [] : await compareLedgers())];
  const machine = `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, Bun ${Bun.version}`;
  const number = (value: number, digits = 0) => value.toFixed(digits);
  const rows = [
    ...servers.map((each) => [
      `${each.name}, ${each.connections} connections`,
      number(each.requestsPerSecond),
      number(each.p50Ms, 1),
      number(each.p99Ms, 1),
      String(each.errors),
      number(each.besideRequestsPerSecond),
      number(each.ratio, 2),
      `≥ ${each.atLeast}`,
    ]),
    ...others.map(({ name, ratio, goal }) => [name, '', '', '', '', '', number(ratio, 2), goal]),
  ];
  const table = toTable(['case', 'requests/s', 'p50 ms', 'p99 ms', 'errors', 'beside/s', 'ratio', 'goal'], rows);
  process.stdout.write(`${machine}\n\n${table}\n`);
  if (options.json !== undefined) {
    await Bun.write(options.json, `${JSON.stringify({ machine, servers, others }, null, 2)}\n`);
  }
} finally {
  await cleanUp();
}
