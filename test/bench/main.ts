/** The benchmark: speeds as ratios of baselines measured in the same run. */
import { cpus } from 'node:os';
import { Command, Option } from 'commander';
import { toTable } from '../../src/cli/output';
import { cleanUp } from '../support/resources';
import { hasSqld } from '../support/servers';
import { comparePages, compareRemoteSaves, compareReplicas, compareStarts } from './databases';
import { compareGrowth, compareMemory, compareUnits } from './growth';
import type { Figure, Settings } from './load';
import { compareServers } from './routes';

const groups = {
  http: compareServers,
  units: compareUnits,
  page: comparePages,
  growth: compareGrowth,
  ...(hasSqld ? { remote: compareRemoteSaves, replica: compareReplicas } : {}),
  cold: compareStarts,
  memory: compareMemory,
} satisfies Record<string, (settings: Settings) => Promise<Figure[]>>;

const count = (text: string) => Math.max(1, Math.trunc(Number(text)) || 1);
const options = new Command('bench')
  .description(
    'Loads the service and other servers alternately and compares them. Needs wrk, Node.js and an idle machine.',
  )
  .option('--rounds <count>', 'rounds of each case; the median counts', count, 3)
  .option('--seconds <count>', 'seconds of each round', count, 5)
  .option('--warm-up <count>', 'seconds of load before the first round of a case', count, 6)
  .option('--quick', 'one round of a second, to see that everything runs')
  .addOption(new Option('--only <groups...>', 'leave out the others').choices(Object.keys(groups)))
  .option('--json <file>', 'write the figures to a file')
  .parse()
  .opts<{ rounds: number; seconds: number; warmUp: number; quick?: true; only?: string[]; json?: string }>();
const sizes = options.quick ? { rounds: 1, seconds: 1, warmUp: 1 } : options;
const report = (name: string) => void process.stderr.write(`${name}\n`);

function toRow({
  name,
  requestsPerSecond,
  p50Ms,
  p99Ms,
  cpuUs,
  errors,
  beside,
  value,
  atLeast,
  atMost,
}: Figure): string[] {
  const goal = atLeast === undefined ? (atMost === undefined ? '' : `≤ ${atMost}`) : `≥ ${atLeast}`;
  const isMissed = value < (atLeast ?? value) || value > (atMost ?? value);
  const numbers = [
    requestsPerSecond?.toFixed(0),
    p50Ms?.toFixed(1),
    p99Ms?.toFixed(1),
    cpuUs?.toFixed(0),
    errors?.toString(),
  ];
  return [
    name,
    ...numbers.map((text) => text ?? ''),
    beside,
    `${value.toFixed(2)} ×`,
    isMissed ? `${goal}, missed` : goal,
  ];
}

for (const program of ['wrk', 'node']) if (Bun.which(program) === null) throw new Error(`${program} is not installed`);
try {
  const figures: Figure[] = [];
  for (const [name, compare] of Object.entries(groups)) {
    if (options.only?.includes(name) === false) continue;
    figures.push(...(await compare({ ...sizes, report })));
    await cleanUp();
  }
  const machine = `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, Bun ${Bun.version}`;
  const header = ['case', 'requests/s', 'p50 ms', 'p99 ms', 'CPU µs', 'errors', 'beside', 'result', 'goal'];
  process.stdout.write(`${machine}\n\n${toTable(header, figures.map(toRow))}\n`);
  if (options.json !== undefined) {
    await Bun.write(options.json, `${JSON.stringify({ machine, date: new Date(), ...sizes, figures }, null, 2)}\n`);
  }
} finally {
  await cleanUp();
}
