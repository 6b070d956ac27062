/** `bun run soak --help`: checks that memory, files and response times stay stable under mixed load. */
import { Command } from 'commander';
import { toTable } from '../../src/cli/output';
import { cleanUp } from '../support/resources';
import { runHistory } from './history';
import { type Load, type LoadFigures, startLoad } from './load';
import { type Sample, takeSample } from './sample';
import { type SoakedService, startSoakedService } from './service';
import { growthMbAnHour, judge } from './verdict';

const atLeastOne = (text: string) => Math.max(1, Number(text) || 1);
const options = new Command('soak')
  .description('Runs hundreds of users against a service with production settings, and checks memory, files and times.')
  .option('--minutes <count>', 'duration in minutes', atLeastOne, 10)
  .option(
    '--history',
    'save, import, erase, check and back up at the same time, and compare the history of saves',
    false,
  )
  .option('--json <file>', 'write samples and verdict to a file')
  .parse()
  .opts<{ minutes: number; history: boolean; json?: string }>();

const sampledEveryMs = 5_000;
/** Shorter in a short run, so that each third has a report. */
const reportedEveryMs = Math.min(60_000, (options.minutes * 60_000) / 6);

const interruption = Promise.withResolvers<void>();
let isInterrupted = false;
process.on('SIGINT', () => {
  isInterrupted = true;
  interruption.resolve();
});

try {
  process.exitCode = await (options.history ? soakHistory() : soak());
} finally {
  await cleanUp();
}
// The sandbox keeps the connections of the service open.
process.exit();

async function soak(): Promise<number> {
  const service = await startSoakedService();
  const load = await startLoad(service.address);
  const { samples, minutes } = await watch(service, load);
  await load.stop();

  const errors = [...load.errors].map(([what, times]) => `${times} × ${what}`);
  if (service.hasEnded()) errors.push('the service has ended');
  const findings = judge({ samples, minutes, errors: errors.length + service.errorLines.length });
  const growth = growthMbAnHour(samples, sampledEveryMs);
  const isGood = findings.every((finding) => finding.isGood);

  const rows = findings.map(({ name, rule, middle, last, isGood }) => [
    name,
    middle.toFixed(1),
    last.toFixed(1),
    rule,
    isGood ? '' : 'missed',
  ]);
  const requests = minutes.reduce((sum, minute) => sum + minute.requests, 0);
  process.stdout.write(`${toTable(['', 'middle third', 'last third', 'rule', ''], rows)}\n`);
  process.stdout.write(`${requests} requests; memory grows by ${growth.toFixed(1)} MB per hour\n`);
  for (const line of [...errors, ...service.errorLines]) process.stdout.write(`${line}\n`);
  if (options.json !== undefined) {
    const result = { date: new Date(), ...options, requests, growth, findings, errors, minutes, samples };
    await Bun.write(options.json, `${JSON.stringify(result, null, 2)}\n`);
  }
  if (isInterrupted) return 130;
  return isGood ? 0 : 1;
}

/** Runs the history test and prints its figures and faults. TMPDIR is the folder of the database. */
async function soakHistory(): Promise<number> {
  const report = (figures: object) => void process.stderr.write(`${JSON.stringify(figures)}\n`);
  const { faults, ...figures } = await runHistory({ seconds: options.minutes * 60, report });
  report(figures);
  for (const fault of faults) process.stdout.write(`${fault}\n`);
  process.stdout.write(`${faults.length} faults\n`);
  if (options.json !== undefined) await Bun.write(options.json, `${JSON.stringify({ ...figures, faults }, null, 2)}\n`);
  return faults.length === 0 ? 0 : 1;
}

/** Takes samples until the time is over, the service ends, or the user presses Ctrl-C. */
async function watch(service: SoakedService, load: Load) {
  const samples: Sample[] = [];
  const minutes: LoadFigures[] = [];
  const startedAtMs = performance.now();
  const endsAtMs = startedAtMs + options.minutes * 60_000;
  let reportAtMs = startedAtMs + reportedEveryMs;
  while (!isInterrupted && !service.hasEnded() && performance.now() < endsAtMs) {
    await Promise.race([Bun.sleep(sampledEveryMs), interruption.promise]);
    if (isInterrupted || service.hasEnded()) break;
    const sample = takeSample(service.pid, service.databasePath);
    samples.push(sample);
    if (performance.now() < reportAtMs) continue;
    reportAtMs += reportedEveryMs;
    const minute = load.take();
    minutes.push(minute);
    const { rssMb, descriptors, threads, walMb } = sample;
    const elapsed = ((performance.now() - startedAtMs) / 60_000).toFixed(1);
    process.stderr.write(
      `${elapsed} min: ${minute.requests} requests, p50 ${minute.p50Ms.toFixed(1)} ms, p99 ${minute.p99Ms.toFixed(1)} ms, ` +
        `${rssMb.toFixed(0)} MB, ${descriptors} files, ${threads} threads, WAL ${walMb.toFixed(1)} MB, ` +
        `${[...load.errors.values()].reduce((sum, times) => sum + times, 0)} errors\n`,
    );
  }
  return { samples, minutes };
}
