/** Prints a command's result: as one JSON object with `--json`, else as a sentence. */
export function printResult(options: { json: boolean }, result: object, sentence: string): void {
  process.stdout.write(`${options.json ? JSON.stringify(result) : sentence}\n`);
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
