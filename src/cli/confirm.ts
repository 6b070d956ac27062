import { createInterface } from 'node:readline/promises';
import { OperatorError } from '../errors';

/**
 * Asks at the terminal.
 *
 * @param refusal what to say when the answer is no, without a full stop
 * @throws OperatorError when the answer is anything but yes, or there is no terminal
 */
export async function confirm(question: string, refusal: string): Promise<void> {
  if (!process.stdin.isTTY) throw new OperatorError(`${refusal}: use --yes where there is no terminal.`);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // An interrupt closes the terminal, and the question would never be answered.
  const closed = new Promise<string>((resolve) => terminal.once('close', () => resolve('')));
  const answer = await Promise.race([terminal.question(`${question} [y/N] `), closed]);
  terminal.close();
  if (!/^\s*y(es)?\s*$/i.test(answer)) throw new OperatorError(`${refusal}.`);
}
