import { describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import fc from 'fast-check';
import * as v from 'valibot';
import { Settings } from '../../src/config/settings';
import { testSecret } from '../support/app';
import { createCommandLine } from '../support/command';
import { failToStart, startService } from '../support/processes';
import { amount, runToEnd, temporaryFolder } from '../support/resources';

const program = join(import.meta.dirname, '../support/child.ts');
const Printed = v.object({
  refused: v.array(v.string()),
  message: v.string(),
  hashes: v.record(v.string(), v.string()),
});
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

/** Runs a process in a folder with the files, and returns the settings that it reads from them. */
async function readSettings(
  files: Readonly<Record<string, string>>,
  options: readonly string[] = [],
  environment: Readonly<Record<string, string>> = {},
) {
  const child = Bun.spawn([process.execPath, ...options, program, 'print-settings'], {
    cwd: await folderOf(files),
    env: { PATH: process.env.PATH, ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  const { stdout, stderr } = await runToEnd(child);
  expect(stderr).toBe('');
  return v.parse(Printed, JSON.parse(stdout));
}

async function folderOf(files: Readonly<Record<string, string>>): Promise<string> {
  const cwd = temporaryFolder();
  for (const [name, content] of Object.entries(files)) await Bun.write(join(cwd, name), content);
  return cwd;
}

/** Settings that are read as written: a PEM may have escaped line breaks, and NODE_ENV selects the files. */
const keys = Object.keys(Settings.entries).filter((key) => key !== 'AUTH_PUBLIC_KEY' && key !== 'NODE_ENV');

/** Reads each text as its own file, many in one process. In a text, FIRST and SECOND stand for settings of its own. */
async function readEach(texts: readonly string[]) {
  const outcomes: { key: string; other: string; refused: string[]; hashes: Record<string, string> }[] = [];
  const size = Math.trunc(keys.length / 2);
  for (let start = 0; start < texts.length; start += size) {
    const batch = texts.slice(start, start + size).map((text, index) => {
      const [key = '', other = ''] = keys.slice(2 * index);
      return { key, other, content: text.replace(/\bFIRST\b/g, key).replace(/\bSECOND\b/, other) };
    });
    const files = Object.fromEntries(batch.map(({ content }, index) => [`${index}.env`, `${content}\nTZ=UTC\n`]));
    const { refused, message, hashes } = await readSettings(
      files,
      Object.keys(files).map((name) => `--env-file=${name}`),
    );
    for (const [index, { key, other }] of batch.entries()) {
      expect(message).not.toContain(texts[start + index]?.slice('FIRST='.length));
      outcomes.push({ key, other, refused, hashes });
    }
  }
  return outcomes;
}

describe('secret in a .env file', () => {
  const visible = fc.integer({ min: 33, max: 126 }).map((code) => String.fromCharCode(code));
  const special = fc.constantFrom('$', '#', "'", '"', '`', '\\', '\\n', '${', '}', '=', ':-', '\\$', 'A', '_');
  // A text between equal quotes has the value between them.
  const textOf = (part: fc.Arbitrary<string>) =>
    fc
      .array(part, { minLength: 32, maxLength: 47 })
      .map((parts) => parts.join(''))
      .filter((text) => !/^(["'`]).*\1$/.test(text));
  /** Half consist of any visible characters, half contain many special ones. A failure can be repeated. */
  const secrets = fc.sample(fc.oneof(textOf(visible), textOf(fc.oneof(visible, special))), {
    seed: 20_260_310,
    numRuns: amount({ long: 500, short: 44 }),
  });

  test.each(['', "'", '"', '`'])(
    'has its text as its value or is refused by name between the quotes %p',
    async (quote) => {
      const outcomes = await readEach(secrets.map((secret) => `FIRST=${quote}${secret}${quote}`));
      const read = outcomes.flatMap(({ key, refused, hashes }, index) =>
        refused.includes(key) ? [] : [{ secret: secrets[index] ?? '', hash: hashes[key] }],
      );
      // \$ is how to write a dollar sign.
      expect(read.filter(({ secret, hash }) => hash !== hashOf(secret.replaceAll('\\$', '$')))).toEqual([]);
      expect(read.length).toBeGreaterThan(secrets.length / 10);
    },
  );

  test('has its text as its value when it is written as the message says', async () => {
    const written = secrets.flatMap((secret) => {
      const text = secret.replaceAll('$', '\\$');
      if (!/^["'`]|#/.test(text)) return [{ secret, text }];
      const quote = text.endsWith('\\') ? undefined : ["'", '`'].find((each) => !text.includes(each));
      return quote === undefined ? [] : [{ secret, text: quote + text + quote }];
    });
    expect(written.length).toBeGreaterThan(secrets.length / 2);
    const outcomes = await readEach(written.map(({ text }) => `FIRST=${text}`));
    expect(outcomes.map(({ key, hashes }) => hashes[key])).toEqual(written.map(({ secret }) => hashOf(secret)));
  });
});

describe('line of a .env file', async () => {
  const base = 'abcdefghijklmnopqrstuvwxyz0123456789';
  const pem = '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----';
  const refused = Symbol('refused');
  /** The value of FIRST and SECOND, or the settings that are refused. */
  type Expected = Record<string, string | typeof refused>;
  const lines: [string, line: string, expected: Expected][] = [
    ['$ before a name', `FIRST=k$ecret9${base}`, { FIRST: refused }],
    ['$ between single quotes', `FIRST='k$ecret9${base}'`, { FIRST: refused }],
    ['$ before a brace', 'FIRST=https://$' + '{DOMAIN}', { FIRST: refused }],
    ['$ before no name', `FIRST=a$-${base}$`, { FIRST: `a$-${base}$` }],
    ['an escaped $', `FIRST=k\\$ecret9${base}`, { FIRST: `k$ecret9${base}` }],
    ['# in the value', `FIRST=a#${base}`, { FIRST: refused }],
    ['# as the value', `FIRST=#${base}`, { FIRST: refused }],
    ['# between quotes', `FIRST="a#${base}"`, { FIRST: `a#${base}` }],
    ['a comment after a space', 'FIRST=3000 # the port', { FIRST: '3000' }],
    ['a comment after quotes', `FIRST='3000' # "the" port`, { FIRST: '3000' }],
    ['a comment right after quotes', `FIRST="a"#b"`, { FIRST: refused }],
    ['\\n between double quotes', `FIRST="a\\nb${base}"`, { FIRST: refused }],
    ['\\n between single quotes', `FIRST='a\\nb${base}'`, { FIRST: `a\\nb${base}` }],
    ['an escaped quote', `FIRST="a\\"b"`, { FIRST: refused }],
    ['a quote that the next line closes', `FIRST="a${base}\nSECOND=b"`, { FIRST: refused, SECOND: refused }],
    ['a backslash before its last quote', `FIRST="a${base}\\"\nSECOND="b"`, { FIRST: refused, SECOND: refused }],
    ['the value on the next line', `FIRST=\n"b"`, { FIRST: refused }],
    ['export, a colon or spaces', `export FIRST = a\nSECOND: b`, { FIRST: 'a', SECOND: 'b' }],
    ['CRLF, a mark and accents', `\uFEFFFIRST=Łódź\r\nSECOND=b\r\n`, { FIRST: 'Łódź', SECOND: 'b' }],
    ['a setting that is set again', 'FIRST=$HOME\nFIRST=b', { FIRST: 'b' }],
    ['a PEM over lines', `AUTH_PUBLIC_KEY="${pem}"`, { AUTH_PUBLIC_KEY: pem }],
    ['a setting of another program', 'GREETING=$NAME#x', { FIRST: '' }],
    ['the new key of a rekey', `NEW_DATABASE_ENCRYPTION_KEY=a$b${base}`, { NEW_DATABASE_ENCRYPTION_KEY: refused }],
  ];
  const outcomes = await readEach(lines.map(([, line]) => line));

  test.each(lines.map(([name, , expected], index) => ({ name, expected, index })))(
    'has its text as its value or is refused with $name',
    ({ expected, index }) => {
      const outcome = outcomes[index];
      for (const [name, value] of Object.entries(expected)) {
        const key = { FIRST: outcome?.key, SECOND: outcome?.other }[name] ?? name;
        const isRefused = outcome?.refused.includes(key);
        const hash = typeof value === 'string' && value !== '' ? hashOf(value) : undefined;
        expect([isRefused, isRefused ? undefined : outcome?.hashes[key]]).toEqual([value === refused, hash]);
      }
    },
  );

  test('may be a PEM on one line', async () => {
    const { refused, hashes } = await readSettings({ '.env': `AUTH_PUBLIC_KEY="${pem.replaceAll('\n', '\\n')}"` });
    expect([refused, hashes.AUTH_PUBLIC_KEY]).toEqual([[], hashOf(pem)]);
  });
});

test.each<[condition: string, options: string[], environment: Record<string, string>, refused: string[]]>([
  ['by default', [], {}, ['LOCAL', 'SHARED']],
  ['in production', [], { NODE_ENV: 'production' }, ['LOCAL', 'PRODUCTION', 'SHARED']],
  ['in a test', [], { NODE_ENV: 'test' }, ['OVERRIDDEN', 'SHARED']],
  ['with a named file', ['--env-file', 'my.env'], {}, ['NAMED']],
  ['with two named files', ['--env-file=my.env,last.env'], {}, []],
  ['with --no-env-file', ['--no-env-file'], {}, []],
  ['with another value in the environment', [], { CHAT_ID: 'a$b' }, ['LOCAL']],
  ['with the same value in the environment', [], { CHAT_ID: 'a' }, ['LOCAL']],
])('the files that Bun reads are checked %s', async (_, options, environment, refused) => {
  const settings = {
    LOCAL: 'CORS_ORIGINS',
    NAMED: 'METRICS_TOKEN',
    OVERRIDDEN: 'CHAT_TOKEN',
    PRODUCTION: 'CARRIER_API_KEY',
    SHARED: 'CHAT_ID',
  };
  const text = (content: string) =>
    Object.entries(settings).reduce((all, [name, key]) => all.replace(name, key), content);
  const files = {
    '.env': text('LOCAL=a\nOVERRIDDEN=a#b\nSHARED=a#b'),
    '.env.local': text('LOCAL=a#b\nOVERRIDDEN=a'),
    '.env.production': text('PRODUCTION=a#b'),
    'my.env': text('NAMED=a#b'),
    'last.env': text('NAMED=a'),
  };
  expect((await readSettings(files, options, environment)).refused.sort()).toEqual(refused.map(text).sort());
});

describe('start with a .env file', () => {
  const key = 'k$ecret9abcdefghijklmnopqrstuvwxyz0123456789';

  test('refuses a changed secret by name and says how to write it', async () => {
    const { exitCode, stdout, stderr } = await failToStart({ cwd: await folderOf({ '.env': `AUTH_SECRET='${key}'` }) });
    expect(exitCode).toBe(1);
    expect(stderr).toContain('AUTH_SECRET in .env is not read as it is written: write \\$ for each $');
    expect(stdout + stderr).not.toContain('ecret9');
  });

  test('refuses a changed secret in a command', async () => {
    const line = await createCommandLine({}, { isProcess: true });
    await line.write('.env', `DATABASE_ENCRYPTION_KEY=${testSecret}#1\n`);
    const { exitCode, stderr } = await line.planning('migrate');
    expect(exitCode).toBe(1);
    expect(stderr).toContain('DATABASE_ENCRYPTION_KEY in .env is not read as it is written');
    expect(stderr).not.toContain(testSecret);
  });

  test('accepts the secret when it follows the message, and warns of a mistyped setting', async () => {
    const content = `AUTH_SECRET='${key.replace('$', '\\$')}'\nRATE_LIMIT_PER_MINTE=5\n`;
    const service = await startService({ cwd: await folderOf({ '.env': content }) });
    const { planning } = await createCommandLine({ AUTH_SECRET: key });
    const token = (await planning('token', '--sub', 'ada')).stdout.trim();
    const headers = { authorization: `Bearer ${token}` };
    expect((await fetch(`${service.address}/v2/private/healthAndCare/`, { headers })).status).toBe(200);
    expect(service.output()).toContain(
      '"setting":"RATE_LIMIT_PER_MINTE","rule":"is not a setting of this service; the nearest is RATE_LIMIT_PER_MINUTE"',
    );
  });

  test('a command warns of a mistyped setting on standard error, and doctor in its report', async () => {
    const mistyped = { DATABASE_ULR: 'file:other.db' };
    const doctor = await (await createCommandLine(mistyped)).planning('doctor');
    expect(doctor.stdout).toContain('DATABASE_ULR is not a setting of this service; the nearest is DATABASE_URL');
    const line = await createCommandLine(mistyped, { isProcess: true });
    expect((await line.planning('user', 'show', 'ada')).stderr).toContain('DATABASE_ULR is not a setting');
  });
});
