import { constants } from 'node:os';
import cliProgress from 'cli-progress';
import type { Context, Signal } from './context';

/** Prints the result of a command: as JSON with `--json`, else as a sentence. */
export function printResult(
  { stdout }: Context,
  options: { readonly json: boolean },
  result: object,
  sentence: string,
): void {
  stdout.write(`${options.json ? JSON.stringify(result, null, 2) : sentence}\n`);
}

/** Writes to standard output, and waits for `drain` when the reader is slower. */
export async function writeOut({ stdout }: Context, text: string): Promise<void> {
  if (stdout.write(text)) return;
  await new Promise((resolve) => stdout.once('drain', resolve));
}

/** Streams one JSON object with an array of rows, one row a line. */
export async function streamJson(
  context: Context,
  head: object,
  name: string,
  pages: AsyncIterable<readonly object[]>,
): Promise<void> {
  const members = Object.entries(head).map(([key, value]) => `  ${JSON.stringify(key)}: ${JSON.stringify(value)},\n`);
  await writeOut(context, `{\n${members.join('')}  ${JSON.stringify(name)}: [`);
  let separator = '\n';
  for await (const page of pages) {
    for (const row of page) {
      await writeOut(context, `${separator}    ${JSON.stringify(row)}`);
      separator = ',\n';
    }
  }
  await writeOut(context, '\n  ]\n}\n');
}

/** Streams a table whose columns have fixed widths. */
export async function streamTable(
  context: Context,
  widths: readonly number[],
  header: readonly string[],
  pages: AsyncIterable<readonly (readonly string[])[]>,
): Promise<void> {
  const toLine = (cells: readonly string[]) => `${padded(cells, widths)}\n`;
  await writeOut(context, toLine(header));
  for await (const page of pages) await writeOut(context, page.map(toLine).join(''));
}

/** Maps every row of every page. */
export async function* mapPages<Row, Mapped>(
  pages: AsyncIterable<readonly Row[]>,
  map: (row: Row) => Mapped,
): AsyncGenerator<Mapped[]> {
  for await (const page of pages) yield page.map(map);
}

/** Formats a table whose columns are as wide as their widest cell. */
export function toTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines.map((line) => padded(line, widths)).join('\n');
}

function padded(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, column) => cell.padEnd(widths[column] ?? 0))
    .join('  ')
    .trimEnd();
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** `512 B`, `1.4 MB`. */
export function readableSize(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const step = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`;
}

const endingSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/** As shells report it. */
function exitCodeOf(signal: Signal): number {
  return 128 + constants.signals[signal];
}

/** Shows a bar with share and rate on a terminal. A signal ends the command, with a message that rows are stored. */
export function createProgress({ stderr, onSignals, exit }: Context, label: string, total: number) {
  const bar = new cliProgress.SingleBar({
    format: `${label} [{bar}] {percentage}% | {rows} rows | {rate} rows/s`,
    hideCursor: true,
    clearOnComplete: true,
    gracefulExit: false,
    noTTYOutput: false,
    stream: stderr,
  });
  const startedAtMs = performance.now();
  let rows = 0;
  const rate = () => Math.round(rows / Math.max(0.001, (performance.now() - startedAtMs) / 1000));
  if (stderr.isTTY) bar.start(total, 0, { rows: 0, rate: 0 });
  const restoreSignals = onSignals(endingSignals, (signal) => {
    bar.stop();
    stderr.write('Interrupted. The stored rows stay; run the command again to store the rest.\n');
    exit(exitCodeOf(signal));
  });
  return {
    countRows(count: number) {
      rows += count;
    },
    /** Moves the bar by a part of `total`. */
    advance(amount: number) {
      bar.increment(amount, { rows, rate: rate() });
    },
    stop() {
      restoreSignals();
      bar.stop();
    },
  };
}

/** The time in which a thread of the driver opens the files of a copy. */
const openingMs = 150;

/**
 * Prints the steps of a long command on a terminal. Until `commit`, a signal runs `cleanUp` and ends the process: the work
 * runs on threads of the driver and of Bun, so the event loop is free to receive it.
 */
export function createSteps({ stderr, onSignals, exit }: Context, cleanUp: () => void) {
  const print = (step: string) => {
    if (stderr.isTTY) stderr.write(`${step} …\n`);
  };
  let isCommitted = false;
  const restoreSignals = onSignals(endingSignals, (signal) => {
    if (isCommitted) return;
    cleanUp();
    // A thread of the driver that was about to open the file creates it again.
    Bun.sleepSync(openingMs);
    cleanUp();
    stderr.write('Interrupted; nothing was changed.\n');
    exit(exitCodeOf(signal));
  });
  return {
    begin: print,
    /** Begins the step that makes the result visible. Signals are ignored from here on. */
    commit(step: string): void {
      print(step);
      isCommitted = true;
    },
    stop: restoreSignals,
  };
}

export type Steps = ReturnType<typeof createSteps>;
