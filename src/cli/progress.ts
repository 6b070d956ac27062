import cliProgress from 'cli-progress';

/** A bar on a terminal with share and rate; nothing where standard error is a file or a pipe. */
export function createProgress(label: string, total: number) {
  const bar = new cliProgress.SingleBar({
    format: `${label} [{bar}] {percentage}% | {rows} rows | {rate} rows/s`,
    hideCursor: true,
    clearOnComplete: true,
    gracefulExit: false,
    noTTYOutput: false,
    stream: process.stderr,
  });
  const startedAtMs = performance.now();
  let rows = 0;
  const rate = () => Math.round(rows / Math.max(0.001, (performance.now() - startedAtMs) / 1000));
  const interrupt = () => {
    bar.stop();
    process.stderr.write('Interrupted; what was stored stays, and running it again finishes it.\n');
    process.exit(130);
  };
  if (process.stderr.isTTY) bar.start(total, 0, { rows: 0, rate: 0 });
  process.once('SIGINT', interrupt);
  return {
    countRows(count: number) {
      rows += count;
    },
    advance(amount: number) {
      bar.increment(amount, { rows, rate: rate() });
    },
    stop() {
      process.off('SIGINT', interrupt);
      bar.stop();
    },
  };
}
