import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { errorCode } from '../errors';
import { isBundle } from '../shared/build';
import { ConfigError, Settings } from './settings';
import type { Environment, Fault } from './validators';

/** A setting as a file has it. */
interface Written {
  readonly file: string;
  /** The rest of the line after `KEY=`. */
  readonly text: string;
  /** The value by the file's own text; undefined when the quotes are ambiguous. */
  readonly value: string | undefined;
}

/** The sources of the settings of this process. */
export interface SettingSources {
  readonly mode: string;
  /** The folder in which Bun looks for `.env`. */
  readonly folder: string;
  /** Absolute paths of the files that were read, the one that takes precedence first. */
  readonly files: readonly string[];
}

let loaded: SettingSources | undefined;

/** Returns undefined before the settings are loaded. */
export function settingSources(): SettingSources | undefined {
  return loaded;
}

interface SettingOptions {
  /** The options of the Bun process, which may name the files. */
  readonly execArgv: readonly string[];
  /** The file that replaces those that Bun reads by itself. */
  readonly envFile?: string | undefined;
  readonly isDemo?: boolean | undefined;
}

/**
 * Completes an environment with the file that `--env-file` names and with the mode: the bundle is in production unless a
 * setting or `--demo` says otherwise, the sources are in development.
 *
 * @throws ConfigError
 */
export function loadSettings(
  environment: Record<string, string | undefined>,
  { execArgv, envFile, isDemo = false }: SettingOptions,
): SettingSources {
  const byBun = filesThatBunReads(execArgv, inheritedEnvironment() ?? environment);
  for (const file of envFile === undefined ? namedFiles(execArgv) : [envFile]) requireReadable(file);
  if (envFile === undefined) {
    requireSettingsAsWritten(environment, execArgv);
    if (isBundle && !isDemo && environment.NODE_ENV === undefined) requireNoFilesOfAMode(execArgv);
  } else {
    replaceFiles(environment, byBun, envFile);
  }
  environment.NODE_ENV ??= isBundle && !isDemo ? 'production' : 'development';
  const files = envFile === undefined ? byBun.filter((file) => existsSync(file)) : [envFile];
  loaded = { mode: environment.NODE_ENV, folder: process.cwd(), files: files.map((file) => resolve(file)) };
  return loaded;
}

/** Returns the message of a ConfigError with a line about the sources of the settings. */
export function describeConfigError({ message }: ConfigError): string {
  if (loaded === undefined) return message;
  const { mode, folder, files } = loaded;
  const from = files.length > 0 ? ` and ${files.join(', ')}` : `; there is no .env file in ${folder}`;
  const modeSentence = mode === 'production' || mode === 'development' ? `The mode is ${mode}. ` : '';
  return `${message}\n${modeSentence}Settings came from the environment${from}.`;
}

/** Bun ignores a file that does not exist, and reads a folder as an empty file. */
function requireReadable(file: string): void {
  const refuse = (reason: string) =>
    new ConfigError([{ key: '--env-file', rule: `names ${resolve(file)}, ${reason}` }]);
  try {
    accessSync(file, constants.R_OK);
  } catch (error) {
    throw refuse(`which cannot be read (${errorCode(error)})`);
  }
  if (statSync(file).isDirectory()) throw refuse('which is a folder');
}

/** Without NODE_ENV, Bun reads the development files, although the bundle is in production. */
function requireNoFilesOfAMode(execArgv: readonly string[]): void {
  if (execArgv.includes('--no-env-file') || namedFiles(execArgv).length > 0) return;
  const faults = ['production', 'development']
    .flatMap((mode) => [`.env.${mode}`, `.env.${mode}.local`])
    .filter((file) => existsSync(file))
    .map((file) => ({ key: 'NODE_ENV', rule: `must be set in the environment, because ${resolve(file)} is there` }));
  if (faults.length > 0) throw new ConfigError(faults);
}

/** Replaces the values from the files that Bun has read by those of one file. The environment has precedence over both. */
function replaceFiles(environment: Record<string, string | undefined>, byBun: readonly string[], file: string): void {
  const inherited = inheritedEnvironment();
  for (const [key, { value }] of byBun.flatMap((path) => [...readEnvFile(path)])) {
    // The values that `bun run` has read from files look inherited in its script.
    if (environment[key] === value || (inherited !== undefined && inherited[key] === undefined))
      delete environment[key];
  }
  const faults: Fault[] = [];
  for (const [key, written] of readEnvFile(file)) {
    if (environment[key] !== undefined) continue;
    if (written.value === undefined) faults.push({ key, rule: ruleFor(written, '') });
    else environment[key] = written.value;
  }
  if (faults.length > 0) throw new ConfigError(faults);
}

const keys = [...Object.keys(Settings.entries), 'NEW_DATABASE_ENCRYPTION_KEY'];

/**
 * Refuses settings that Bun reads differently from the text in the file. Bun expands `$NAME`, cuts a value at `#`, and ends
 * it at the next quote, which may be some lines below.
 *
 * @param options the options of the Bun process, which may name the files
 * @throws ConfigError that names each such key, its file, and how to write it
 */
export function requireSettingsAsWritten(environment: Environment, options: readonly string[]): void {
  const inherited = inheritedEnvironment();
  const written = new Map<string, Written>();
  for (const file of filesThatBunReads(options, inherited ?? environment)) {
    for (const [key, found] of readEnvFile(file)) if (!written.has(key)) written.set(key, found);
  }
  const faults = keys.flatMap((key): Fault[] => {
    const found = written.get(key);
    if (found === undefined || isSame(key, found.value, environment[key])) return [];
    // Bun changes no text without these characters, so a different value came from the inherited environment.
    const isOverridden = inherited === undefined ? !/[$#'"`\\]/.test(found.text) : inherited[key] !== undefined;
    return isOverridden ? [] : [{ key, rule: ruleFor(found, environment[key]) }];
  });
  if (faults.length > 0) throw new ConfigError(faults);
}

/** The environment before Bun added values from files; undefined without /proc. */
function inheritedEnvironment(): Environment | undefined {
  try {
    const entries = readFileSync('/proc/self/environ', 'utf8').split('\0');
    return Object.fromEntries(entries.map((entry) => entry.split(/=(.*)/s, 2)));
  } catch {
    return undefined;
  }
}

/** The file with the highest precedence is first: https://bun.com/docs/runtime/environment-variables. */
function filesThatBunReads(options: readonly string[], { BUN_ENV, NODE_ENV }: Environment): string[] {
  if (options.includes('--no-env-file')) return [];
  const named = namedFiles(options);
  if (named.length > 0) return named.reverse();
  const mode = /^(?:production|test)$/.exec(BUN_ENV ?? NODE_ENV ?? '')?.[0] ?? 'development';
  return [`.env.${mode}.local`, ...(mode === 'test' ? [] : ['.env.local']), `.env.${mode}`, '.env'];
}

/** The files that the options of Bun name, in their order. */
function namedFiles(options: readonly string[]): string[] {
  return options.flatMap((option, index) => {
    if (option === '--env-file') return options[index + 1]?.split(',') ?? [];
    return option.startsWith('--env-file=') ? option.slice('--env-file='.length).split(',') : [];
  });
}

function readEnvFile(file: string): Map<string, Written> {
  let content: string;
  try {
    content = readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
  } catch {
    return new Map();
  }
  const lines = content.matchAll(/^[\t\v\f ]*(?:export[\t\v\f ]+)?([\w.-]+)[\t\v\f ]*(?:=|:(?=[\t\v\f ]))(.*)/gm);
  return new Map(
    [...lines].map(({ 0: line, 1: key = '', 2: text = '', index }) => {
      const value = valueAt(content.slice(index + line.length - text.length));
      // A PEM has line breaks. A line break in any other value shows a stray quote.
      return [key, { file, text, value: key !== pemKey && value?.includes('\n') ? undefined : value }];
    }),
  );
}

/** Reads a value from what follows `KEY=`: between quotes, or up to the end of the line or a comment after a space. */
function valueAt(source: string): string | undefined {
  const quoted = /^[\t\v\f ]*(["'`])((?:\\.|(?!\1)[^\\])*)\1([^\r\n]*)/s.exec(source);
  if (quoted !== null) {
    const [, quote = '', inner = '', rest = ''] = quoted;
    const isWhole = /^(?:[\t\v\f ]+(?:#.*)?)?$/.test(rest) && !inner.includes(`\\${quote}`);
    return isWhole ? withoutEscapes(inner) : undefined;
  }
  const line = /^[^\r\n]*/.exec(source)?.[0] ?? '';
  if (/^[\t\v\f ]*["'`]/.test(line)) return undefined;
  return withoutEscapes(line.replace(/[\t\v\f ]#.*/, '').replace(/^[\t\v\f ]+|[\t\v\f ]+$/g, ''));
}

/** `\$` stands for a dollar sign. */
function withoutEscapes(text: string): string {
  return text.replaceAll('\\$', '$');
}

const pemKey = 'AUTH_PUBLIC_KEY';

function isSame(key: string, written: string | undefined, read: string | undefined): boolean {
  if (written === undefined) return false;
  return key === pemKey && read !== undefined ? lines(written) === lines(read) : written === read;
}

/** The line breaks of a PEM may be written out. */
function lines(pem: string): string {
  return pem.replaceAll('\\n', '\n').replace(/\\r|\r/g, '');
}

function ruleFor({ file, text, value }: Written, read: string | undefined): string {
  if (read === undefined) return `in ${file} is not read: a quote in a line before it is not closed`;
  const remedies = [
    ...(/\$/.test(text) ? ['write \\$ for each $'] : []),
    ...(value === undefined || /#/.test(text) ? ['put it between quotes (\' " or `) that it does not contain'] : []),
    ...(/\\/.test(text) ? ['put a value with a backslash between single quotes'] : []),
  ];
  return `in ${file} is not read as it is written: ${remedies.join(', ')}, or set it in the environment`;
}
