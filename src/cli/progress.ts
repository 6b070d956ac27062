import cliProgress from 'cli-progress';

/** 128 and the number of the signal, as shells report it. */
const exitCodes = { SIGHUP: 129, SIGINT: 130, SIGQUIT: 131, SIGTERM: 143 } as const;
const signals = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const;

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
  const interrupt = (signal: keyof typeof exitCodes) => {
    bar.stop();
    process.stderr.write('Interrupted. The rows that were stored stay; run the command again to store the rest.\n');
    process.exit(exitCodes[signal]);
  };
  if (process.stderr.isTTY) bar.start(total, 0, { rows: 0, rate: 0 });
  for (const signal of signals) process.once(signal, interrupt);
  return {
    countRows(count: number) {
      rows += count;
    },
    advance(amount: number) {
      bar.increment(amount, { rows, rate: rate() });
    },
    stop() {
      for (const signal of signals) process.off(signal, interrupt);
      bar.stop();
    },
  };
}
