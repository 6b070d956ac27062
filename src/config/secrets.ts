import { readFileSync, statSync } from 'node:fs';
import { errorCode } from '../errors';
import { type Environment, type Fault, NonEmpty, setting } from './validators';

/** Settings whose value may be in a file, named by the setting with the suffix `_FILE`. */
export const secretSettings = [
  'DATABASE_AUTH_TOKEN',
  'DATABASE_ENCRYPTION_KEY',
  'AUTH_SECRET',
  'AUTH_PUBLIC_KEY',
  'CARRIER_API_KEY',
  'CHAT_TOKEN',
  'METRICS_TOKEN',
  'OTEL_EXPORTER_OTLP_HEADERS',
] as const;
export type SecretSetting = (typeof secretSettings)[number];

const inFile = (key: SecretSetting) => setting(NonEmpty, `file with the value of \`${key}\``);

export const secretFileSettings = {
  DATABASE_AUTH_TOKEN_FILE: inFile('DATABASE_AUTH_TOKEN'),
  DATABASE_ENCRYPTION_KEY_FILE: inFile('DATABASE_ENCRYPTION_KEY'),
  AUTH_SECRET_FILE: inFile('AUTH_SECRET'),
  AUTH_PUBLIC_KEY_FILE: inFile('AUTH_PUBLIC_KEY'),
  CARRIER_API_KEY_FILE: inFile('CARRIER_API_KEY'),
  CHAT_TOKEN_FILE: inFile('CHAT_TOKEN'),
  METRICS_TOKEN_FILE: inFile('METRICS_TOKEN'),
  OTEL_EXPORTER_OTLP_HEADERS_FILE: inFile('OTEL_EXPORTER_OTLP_HEADERS'),
};

export function namesSecretFile(environment: Environment): boolean {
  return secretSettings.some((secret) => Boolean(environment[`${secret}_FILE`]));
}

/** A secret, or a function that returns the current value of a secret that can be replaced. */
export type SecretSource = string | undefined | (() => string | undefined);

export function currentSecret(source: SecretSource): string | undefined {
  return typeof source === 'function' ? source() : source;
}

const maxBytes = 64 * 1024;
const permission = { readByAll: 0o004, writtenByAll: 0o002 };
const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'names a file that does not exist',
  EACCES: 'names a file that this user cannot read',
  ENOTDIR: 'names a file in a folder that does not exist',
};

/**
 * Reads the secrets that are in files.
 *
 * @param isUsed whether a setting is needed; the files of the others are not read
 * @returns the environment with the values, the unusable files, and the files that every user can read or change
 */
export function withSecretFiles(given: Environment, isUsed: (key: string) => boolean = () => true) {
  const environment: Record<string, string | undefined> = { ...given };
  const faults: Fault[] = [];
  const warnings: Fault[] = [];
  for (const secret of secretSettings) {
    const key = `${secret}_FILE`;
    const path = given[key];
    // The schema reports an empty path.
    if (!path || !isUsed(secret)) continue;
    if (given[secret] !== undefined) {
      faults.push({ key, rule: `and ${secret} are both set: set one of them` });
      continue;
    }
    const found = readSecret(path);
    if ('rule' in found) {
      faults.push({ key, rule: found.rule });
      continue;
    }
    environment[secret] = found.text;
    const isPublic = secret === 'AUTH_PUBLIC_KEY';
    if ((found.mode & (isPublic ? 0 : permission.readByAll)) !== 0) {
      warnings.push({ key, rule: 'names a file that every user of this machine can read: set its mode to 0400' });
    } else if ((found.mode & permission.writtenByAll) !== 0) {
      warnings.push({ key, rule: 'names a file that every user of this machine can change: set its mode to 0400' });
    }
  }
  return {
    environment,
    faults,
    warnings,
    /** Whether the file of a secret is unusable, so that the secret is not also reported as missing. */
    isUnreadable: (secret: string) => faults.some(({ key }) => key === `${secret}_FILE`),
  };
}

/** Decodes a secret, without a byte order mark and one line break at the end. Returns undefined unless it is UTF-8. */
export function secretText(content: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(content).replace(/\r?\n$/, '');
  } catch {
    return undefined;
  }
}

function readSecret(path: string): { text: string; mode: number } | { rule: string } {
  try {
    const file = statSync(path);
    if (file.isDirectory()) return { rule: 'names a folder' };
    // A pipe can be read once, but SIGHUP reads the file again.
    if (!file.isFile()) return { rule: 'names a device or a pipe, not a file' };
    if (file.size > maxBytes) return { rule: `names a file of more than ${maxBytes / 1024} kB` };
    const text = secretText(readFileSync(path));
    if (text === undefined) return { rule: 'names a file that is not UTF-8 text' };
    if (text === '') return { rule: 'names an empty file' };
    // The lines of a PEM end with line breaks.
    const isPem = text.startsWith('-----BEGIN');
    if (!isPem && text !== text.trim()) {
      return { rule: 'names a file with white space before or after the secret: remove it' };
    }
    return { text, mode: file.mode };
  } catch (error) {
    const code = errorCode(error);
    return { rule: reasons[code] ?? `names a file that cannot be read (${code})` };
  }
}
