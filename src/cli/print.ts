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
