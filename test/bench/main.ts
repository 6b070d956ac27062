/** The benchmark: speeds as ratios of baselines measured in the same run. */
import { cpus } from 'node:os';
import { Command, Option } from 'commander';
import { toTable } from '../../src/cli/output';
import { cleanUp } from '../support/resources';
import { compareStarts } from './cold-start';
import { measureCoverage } from './coverage';
import { compareEncryption } from './encryption';
import { type Figure, hasReached } from './figure';
import { compareServers } from './http';
import { measureMemory } from './memory';
import { compareLedgers } from './monthly-glance';
import { comparePages } from './pages';
import { compareRemoteSaves } from './remote';
import { compareReplicas } from './replica';
import { compareRequestCosts } from './request-cost';
import { startServers } from './servers';
import { requireWrk } from './wrk';

const groups = [
  'http',
  'coverage',
  'cost',
  'page',
  'remote',
  'replica',
  'cold',
  'memory',
  'glance',
  'encryption',
] as const;
const count = (text: string) => Math.max(1, Math.trunc(Number(text)) || 1);
const options = new Command('bench')
  .description(
    'Loads the service and other servers alternately and compares them. Needs wrk, Node.js and an idle machine.',
  )
  .option('--rounds <count>', 'rounds of each case; the median counts', count, 3)
  .option('--seconds <count>', 'seconds of each round', count, 5)
  .option('--warm-up <count>', 'seconds of load before the first round of a case', count, 6)
  .addOption(new Option('--only <groups...>', 'leave out the others').choices(groups))
  .option('--json <file>', 'write the figures to a file')
  .parse()
  .opts<{ rounds: number; seconds: number; warmUp: number; only?: (typeof groups)[number][]; json?: string }>();

const report = (name: string) => void process.stderr.write(`${name}\n`);
const isAsked = (group: (typeof groups)[number]) => options.only?.includes(group) ?? true;

async function measureAll(): Promise<Figure[]> {
  const figures: Figure[] = [];
  if (isAsked('http') || isAsked('coverage')) {
    const servers = await startServers();
    if (isAsked('http')) figures.push(...(await compareServers(servers, { ...options, report })));
    if (isAsked('coverage')) figures.push(await measureCoverage(servers.service, options.seconds));
    await cleanUp();
  }
  if (isAsked('cost')) {
    figures.push(...(await compareRequestCosts(report)));
    await cleanUp();
  }
  if (isAsked('page')) figures.push(...(await comparePages(options, report)));
  if (isAsked('remote')) figures.push(...(await compareRemoteSaves(options.rounds, report)));
  if (isAsked('replica')) {
    figures.push(...(await compareReplicas(options, report)));
    await cleanUp();
  }
  if (isAsked('cold')) figures.push(await compareStarts(report));
  if (isAsked('memory')) figures.push(...(await measureMemory(report)));
  if (isAsked('glance')) figures.push(...(await compareLedgers(report)));
  if (isAsked('encryption')) figures.push(...(await compareEncryption(options, report)));
  return figures;
}

function toRow(figure: Figure): string[] {
  const { name, requestsPerSecond, p50Ms, p99Ms, errors, beside = '', value, unit, atLeast, atMost } = figure;
  const number = (given: number | undefined, digits: number) => given?.toFixed(digits) ?? '';
  const goal = [atLeast === undefined ? [] : `≥ ${atLeast}`, atMost === undefined ? [] : `≤ ${atMost}`]
    .flat()
    .join(' ');
  return [
    name,
    number(requestsPerSecond, 0),
    number(p50Ms, 1),
    number(p99Ms, 1),
    String(errors ?? ''),
    beside,
    `${value.toFixed(unit === '×' ? 2 : 0)} ${unit}`,
    goal && !hasReached(figure) ? `${goal}, missed` : goal,
  ];
}

requireWrk();
try {
  const figures = await measureAll();
  const machine = `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, Bun ${Bun.version}`;
  const header = ['case', 'requests/s', 'p50 ms', 'p99 ms', 'errors', 'beside', 'result', 'goal'];
  process.stdout.write(`${machine}\n\n${toTable(header, figures.map(toRow))}\n`);
  if (options.json !== undefined) {
    await Bun.write(options.json, `${JSON.stringify({ machine, date: new Date(), ...options, figures }, null, 2)}\n`);
  }
} finally {
  await cleanUp();
}
