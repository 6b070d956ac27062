import { readFileSync } from 'node:fs';
import { InvalidArgumentError } from 'commander';
import * as v from 'valibot';
import { OperatorError } from '../errors';
import { Identifier, Subject } from '../fields';
import { secretText } from '../secret-files';

/** The id of a person: whatever a token's `sub` may be. */
export function subject(text: string): string {
  if (!v.is(Subject, text)) throw new InvalidArgumentError('It must have 1 to 255 characters.');
  return text;
}

/** An id that is not a token's. */
export function identifier(text: string): string {
  if (!v.is(Identifier, text)) {
    throw new InvalidArgumentError('It must have 1 to 255 characters, none of them a control character.');
  }
  return text;
}

const secondsByUnit = new Map([
  ['s', 1],
  ['m', 60],
  ['h', 3600],
  ['d', 86_400],
]);
const maxTtlSeconds = 365 * 86_400;

/** A duration such as `45s` or `7d`, in seconds. */
export function durationSeconds(text: string): number {
  const match = /^(\d{1,9})([smhd])$/.exec(text);
  const seconds = Number(match?.[1]) * (secondsByUnit.get(match?.[2] ?? '') ?? Number.NaN);
  if (!(seconds > 0 && seconds <= maxTtlSeconds)) {
    throw new InvalidArgumentError('It must be a number with s, m, h or d, at most 365d.');
  }
  return seconds;
}

/** Words separated by commas. */
export function commaList(text: string): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
}

/**
 * A secret from a variable of the environment or from a file, `-` for standard input; undefined if neither is there.
 *
 * @throws OperatorError
 */
export function readSecret(
  variable: string,
  option: string,
  file: string | undefined,
  form: v.GenericSchema<string, string>,
): string | undefined {
  const fromEnvironment = process.env[variable];
  if (file === undefined && fromEnvironment === undefined) return undefined;
  if (file !== undefined && fromEnvironment !== undefined) {
    throw new OperatorError(`${variable} and ${option} are both there: give one of the two.`);
  }
  const text = fromEnvironment ?? secretText(readFileSync(file === '-' ? 0 : String(file)));
  if (text === undefined) throw new OperatorError(`The content of ${option} is not UTF-8 text.`);
  const secret = v.safeParse(form, text);
  if (!secret.success) {
    const source = file === undefined ? variable : `The content of ${option}`;
    throw new OperatorError(`${source} ${secret.issues[0].message}.`);
  }
  return secret.output;
}
