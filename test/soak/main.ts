/** `bun run soak --help`: checks that memory, files and response times stay stable under mixed load. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { toTable } from '../../src/cli/output';
import { startSandbox } from '../support/app';
import { createCommandLine } from '../support/command';
import { productionSettings, productionToken, startService } from '../support/processes';
import { cleanUp } from '../support/resources';
import { runHistory } from './history';
import { journeyOf, type Step } from './journey';

const { minutes, history } = new Command('soak')
  .description('Runs hundreds of users against a service with production settings, and checks memory, files and times.')
  .option('--minutes <count>', 'duration in minutes', (text) => Math.max(1, Number(text) || 1), 10)
  .option('--history', 'save, import, erase, check and back up at the same time, and compare all saves', false)
  .parse()
  .opts<{ minutes: number; history: boolean }>();

const sampledEveryMs = 5_000;
/** Shorter in a short run, so that each third has several values. */
const reportedEveryMs = Math.min(60_000, (minutes * 60_000) / 6);
/** Visits of one user sometimes overlap, and the load does not saturate two cores. */
const load = { people: 400, concurrentUsers: 12, pauseMs: 15, timeoutMs: 20_000 };

/** The factor and the margin by which each value may grow. */
const rules = [
  ['rssMb', 1.03, 2],
  ['descriptors', 1, 3],
  ['threads', 1, 2],
  ['walMb', 1.5, 4],
  ['p50Ms', 2, 5],
  ['p99Ms', 2, 20],
] as const;

let isInterrupted = false;
process.on('SIGINT', () => {
  isInterrupted = true;
});

try {
  const faults = history ? await compareHistory() : await watchLoad();
  for (const fault of faults) process.stdout.write(`${fault}\n`);
  process.exitCode = isInterrupted ? 130 : Number(faults.length > 0);
} finally {
  await cleanUp();
}
// The sandbox keeps the connections of the service open.
process.exit();

/** TMPDIR is the folder of the database. */
async function compareHistory(): Promise<readonly string[]> {
  const report = (figures: object) => void process.stderr.write(`${JSON.stringify(figures)}\n`);
  const { faults, ...figures } = await runHistory({ seconds: minutes * 60, report });
  report(figures);
  return faults;
}

/** Loads the service until the time is over, it ends, or the user presses Ctrl-C. Returns what went wrong. */
async function watchLoad(): Promise<string[]> {
  const service = await startLoadedService();
  const faults: string[] = [];
  const series: Series = { rssMb: [], descriptors: [], threads: [], walMb: [], p50Ms: [], p99Ms: [] };
  let timesMs: number[] = [];
  const endsAtMs = performance.now() + minutes * 60_000;
  const isOver = () => isInterrupted || service.hasEnded() || performance.now() >= endsAtMs;
  const visit = async () => {
    while (!isOver()) {
      const person = Math.trunc(Math.random() * load.people);
      for (const step of journeyOf(person)) {
        const startedAtMs = performance.now();
        const fault = await faultOf(step, service.address, person);
        timesMs.push(performance.now() - startedAtMs);
        if (fault !== undefined && faults.length < 100) faults.push(fault);
        if (isOver()) return;
        await Bun.sleep(Math.random() * 2 * load.pauseMs);
      }
    }
  };
  const visits = Array.from({ length: load.concurrentUsers }, visit);
  let requests = 0;
  let reportAtMs = performance.now() + reportedEveryMs;
  while (!isOver()) {
    await Bun.sleep(sampledEveryMs);
    if (isOver()) break;
    const { rssMb, descriptors, threads, walMb } = service.sample();
    series.rssMb.push(rssMb);
    series.descriptors.push(descriptors);
    series.threads.push(threads);
    series.walMb.push(walMb);
    if (performance.now() < reportAtMs) continue;
    reportAtMs += reportedEveryMs;
    const sorted = timesMs.toSorted((a, b) => a - b);
    timesMs = [];
    requests += sorted.length;
    series.p50Ms.push(sorted[sorted.length >> 1] ?? Number.NaN);
    series.p99Ms.push(sorted[Math.trunc(sorted.length * 0.99)] ?? Number.NaN);
    const latest = Object.entries(series).map(([name, values]) => `${name} ${values.at(-1)?.toFixed(1)}`);
    process.stderr.write(`${requests} requests: ${latest.join(', ')}, ${faults.length} faults\n`);
  }
  await Promise.all(visits);
  if (service.hasEnded()) faults.push('the service has ended');
  const judged = judge(series);
  process.stdout.write(
    `${toTable(
      ['', 'middle third', 'last third', 'rule', ''],
      judged.map(({ row }) => row),
    )}\n`,
  );
  return [...judged.flatMap(({ fault }) => fault ?? []), ...faults, ...service.errorLines()];
}

async function faultOf(step: Step, address: string, person: number): Promise<string | undefined> {
  const { name, method, path, headers, body, expected } = step;
  const isManager = name === 'glance';
  const token = await (isManager
    ? productionToken('demo-manager', ['salesManager'])
    : productionToken(`soak-${person}`));
  try {
    const response = await fetch(`${address}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...headers },
      ...(body === undefined ? {} : { body }),
      signal: AbortSignal.timeout(load.timeoutMs),
    });
    const text = await response.text();
    return expected.includes(response.status) ? undefined : `${name}: ${response.status} ${text.slice(0, 200)}`;
  } catch (error) {
    return `${name}: ${error}`;
  }
}

/** Starts the service with production settings and the demo rows, and a sandbox carrier in this process. */
async function startLoadedService() {
  const { cwd, planning } = await createCommandLine({ SEED_DEMO: 'true' }, { isEmpty: true });
  const migrated = await planning('migrate');
  if (migrated.exitCode !== 0) throw new Error(`The database cannot be migrated: ${migrated.stderr}`);
  const sandbox = await startSandbox(() => new Date());
  const limits = {
    // On, as in production, with a limit that no request reaches.
    RATE_LIMIT_PER_MINUTE: '1000000',
    CARRIER_APPLICATIONS_PER_DAY: '0',
  };
  const service = await startService({
    cwd,
    program: [join(import.meta.dirname, '../../src/main.ts')],
    environment: { ...productionSettings, CARRIER_URL: sandbox.url, ...limits },
    isDetached: true,
  });
  const { process: child } = service;
  return {
    address: service.address,
    errorLines: () => (service.output().match(/^{"level":"(?:error|fatal)".*$/gm) ?? []).slice(0, 20),
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    /** Reads the resources of the process from /proc, so on Linux only. */
    sample() {
      const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
      const number = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
      const wal = statSync(join(cwd, 'data/planning.db-wal'), { throwIfNoEntry: false });
      return {
        rssMb: number('VmRSS') / 1024,
        descriptors: readdirSync(`/proc/${child.pid}/fd`).length,
        threads: number('Threads'),
        walMb: (wal?.size ?? 0) / 1024 / 1024,
      };
    },
  };
}

type Series = Record<(typeof rules)[number][0], number[]>;

/**
 * Compares the median of the last third with that of the middle third. The first third is warm-up: caches fill and the
 * runtime compiles. The margins allow for other work on a shared machine.
 */
function judge(series: Series) {
  return rules.map(([name, factor, margin]) => {
    const third = Math.trunc(series[name].length / 3);
    const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
    const [middle, last] = [median(series[name].slice(third, 2 * third)), median(series[name].slice(-third))];
    const isGood = third > 0 && last <= middle * factor + margin;
    const rule = `last ≤ middle × ${factor} + ${margin}`;
    return {
      row: [name, middle.toFixed(1), last.toFixed(1), rule, isGood ? '' : 'missed'],
      fault: isGood ? undefined : `${name} grows from ${middle.toFixed(1)} to ${last.toFixed(1)}`,
    };
  });
}
