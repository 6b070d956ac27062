import { constants } from 'node:os';
import cliProgress from 'cli-progress';

/** Prints a command's result: as JSON with `--json`, else as a sentence. */
export function printResult(options: { json: boolean }, result: object, sentence: string): void {
  process.stdout.write(`${options.json ? JSON.stringify(result, null, 2) : sentence}\n`);
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Columns of text, each as wide as its widest cell. */
export function toTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** `512 B`, `1.4 MB`. */
export function readableSize(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const step = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`;
}

/** A line of a table that is printed while its rows are read: each cell is padded to a fixed width. */
export function toLine(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, column) => cell.padEnd(widths[column] ?? 0))
    .join('  ')
    .trimEnd();
}

/** Writes to standard output, and waits for a reader that is slower than the database. */
export async function writeOut(text: string): Promise<void> {
  if (process.stdout.write(text)) return;
  await new Promise((resolve) => process.stdout.once('drain', resolve));
}

export interface Finding {
  readonly check:
    | 'settings'
    | 'database'
    | 'open file'
    | 'service'
    | 'log'
    | 'sqlite'
    | 'pages'
    | 'replica'
    | 'schema'
    | 'demo data'
    | 'writes'
    | 'catalogue'
    | 'audit trail'
    | 'clock'
    | 'token keys'
    | 'token'
    | 'proxy'
    | 'carrier';
  readonly result: 'ok' | 'warning' | 'failed';
  readonly detail: string;
}

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

/** The time in which a thread of the driver opens the files of a copy. */
const openingMs = 150;
const endingSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Prints the steps of a long command on a terminal. Until `commit`, a signal that ends the process does so at once, after
 * `cleanUp`: the work runs on threads of the driver and of Bun, so the event loop is free to receive it.
 */
export function createSteps(cleanUp: () => void) {
  const print = (step: string) => {
    if (process.stderr.isTTY) process.stderr.write(`${step} …\n`);
  };
  let isCommitted = false;
  const end = (signal: (typeof endingSignals)[number]) => {
    if (isCommitted) return;
    cleanUp();
    // A thread of the driver that was about to open the file creates it again.
    Bun.sleepSync(openingMs);
    cleanUp();
    process.stderr.write('Interrupted; nothing was changed.\n');
    process.exit(128 + constants.signals[signal]);
  };
  for (const signal of endingSignals) process.on(signal, end);
  return {
    begin: print,
    /** Begins the step that makes the result visible: signals are ignored from here on. */
    commit(step: string): void {
      print(step);
      isCommitted = true;
    },
    stop() {
      for (const signal of endingSignals) process.off(signal, end);
    },
  };
}

export type Steps = ReturnType<typeof createSteps>;
