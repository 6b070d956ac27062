import { describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import * as v from 'valibot';
import { mistypedSettings, Settings } from '../../src/config/settings';
import { createCommandLine } from '../support/command';
import { failToStart, startService } from '../support/processes';
import { runToEnd, temporaryFolder } from '../support/resources';

const program = join(import.meta.dirname, '../support/child.ts');
const Printed = v.object({
  refused: v.array(v.string()),
  message: v.string(),
  hashes: v.record(v.string(), v.string()),
});
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

interface Run {
  readonly cwd?: string;
  readonly options?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/** Runs a process and returns the settings that it reads from files. */
async function readSettings({ cwd = temporaryFolder(), options = [], environment = {} }: Run) {
  const child = Bun.spawn([process.execPath, ...options, program, 'print-settings'], {
    cwd,
    env: { PATH: process.env.PATH, ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  const { stdout, stderr } = await runToEnd(child);
  expect(stderr).toBe('');
  return v.parse(Printed, JSON.parse(stdout));
}

/** Creates a working directory with the files. */
async function folderOf(files: Readonly<Record<string, string>>): Promise<string> {
  const cwd = temporaryFolder();
  for (const [name, content] of Object.entries(files)) await Bun.write(join(cwd, name), content);
  return cwd;
}

const visible = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index));
const special = ['$', '#', "'", '"', '`', '\\', '\\n', '${', '}', '=', ':-', '\\$', 'A', '_'];
/** A fixed seed, so that a failure can be repeated. */
let state = 20_260_310;
const below = (count: number) => {
  state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
  return (state >>> 8) % count;
};
const pick = (texts: readonly string[]) => texts[below(texts.length)] ?? '';
/** Half consist of any visible characters, half contain many special ones. */
const secrets = Array.from({ length: 500 }, (_, index) =>
  Array.from({ length: 32 + below(16) }, () => pick(index % 2 === 0 || below(2) === 0 ? visible : special)).join(''),
);

const plainly = (secret: string) => secret;
const inSingle = (secret: string) => `'${secret}'`;
const inDouble = (secret: string) => `"${secret}"`;
const inBackticks = (secret: string) => `\`${secret}\``;
/** Writes a secret as the error message advises; undefined when no quote fits. */
const asAdvised = (secret: string) => {
  const text = secret.replaceAll('$', '\\$');
  if (!/^["'`]|#/.test(text)) return text;
  const quote = text.endsWith('\\') ? undefined : ["'", '`'].find((each) => !text.includes(each));
  return quote === undefined ? undefined : `${quote}${text}${quote}`;
};

/** Settings that are read as written: a PEM may have escaped line breaks, and NODE_ENV selects the files. */
const keys = Object.keys(Settings.entries).filter((key) => key !== 'AUTH_PUBLIC_KEY' && key !== 'NODE_ENV');

/** Reads each text from its own file, many in one process, so that an open quote affects only its own file. */
async function readEach(texts: readonly string[]) {
  const outcomes: { readonly isRefused: boolean; readonly hash: string | undefined }[] = [];
  for (let start = 0; start < texts.length; start += keys.length) {
    const batch = texts.slice(start, start + keys.length);
    const files = Object.fromEntries(batch.map((text, index) => [`${index}.env`, `${keys[index]}=${text}\nTZ=UTC\n`]));
    const options = Object.keys(files).map((name) => `--env-file=${name}`);
    const { refused, message, hashes } = await readSettings({ cwd: await folderOf(files), options });
    for (const [index, text] of batch.entries()) {
      const key = keys[index] ?? '';
      expect(message).not.toContain(text);
      outcomes.push({ isRefused: refused.includes(key), hash: hashes[key] });
    }
  }
  return outcomes;
}

describe('C6 a secret in a .env file', () => {
  test.each([
    ['plainly', plainly, 100],
    ['between single quotes', inSingle, 100],
    ['between double quotes', inDouble, 100],
    ['between backticks', inBackticks, 100],
  ] as const)(
    'C6 reads as written or fails by name when written %s',
    async (_, write, leastRead) => {
      const outcomes = await readEach(secrets.map(write));
      // \$ is how to write a dollar sign.
      const changed = outcomes.filter(
        ({ isRefused, hash }, index) =>
          !isRefused && hash !== hashOf(secrets[index]?.replaceAll('\\$', '$') ?? '') && hash !== undefined,
      );
      expect(changed).toEqual([]);
      expect(outcomes.filter(({ isRefused, hash }) => !isRefused && hash === undefined)).toEqual([]);
      expect(outcomes.filter(({ isRefused }) => !isRefused).length).toBeGreaterThan(leastRead);
    },
    60_000,
  );

  test('C6 reads as written when it follows the message', async () => {
    const written = secrets.flatMap((secret) => {
      const text = asAdvised(secret);
      return text === undefined ? [] : [{ secret, text }];
    });
    expect(written.length).toBeGreaterThan(300);
    const outcomes = await readEach(written.map(({ text }) => text));
    expect(outcomes.map(({ hash }) => hash)).toEqual(written.map(({ secret }) => hashOf(secret)));
  }, 60_000);
});

const base = 'abcdefghijklmnopqrstuvwxyz0123456789';
const pem = '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----';

describe('C6 a line of a .env file', () => {
  test.each<[string, line: string, expected: Record<string, string> | string[]]>([
    ['with $ before a name', `AUTH_SECRET=k$ecret9${base}`, ['AUTH_SECRET']],
    ['with $ between single quotes', `AUTH_SECRET='k$ecret9${base}'`, ['AUTH_SECRET']],
    ['with $ before a brace', 'PUBLIC_URL=https://$' + '{DOMAIN}', ['PUBLIC_URL']],
    ['with $ before no name', `AUTH_SECRET=a$-${base}$`, { AUTH_SECRET: `a$-${base}$` }],
    ['with an escaped $', `AUTH_SECRET=k\\$ecret9${base}`, { AUTH_SECRET: `k$ecret9${base}` }],
    ['with # in the value', `AUTH_SECRET=a#${base}`, ['AUTH_SECRET']],
    ['with # as the value', `AUTH_SECRET=#${base}`, ['AUTH_SECRET']],
    ['with # between quotes', `AUTH_SECRET="a#${base}"`, { AUTH_SECRET: `a#${base}` }],
    ['with a comment after a space', 'PORT=3000 # the port', { PORT: '3000' }],
    ['with a comment after quotes', `PORT='3000' # "the" port`, { PORT: '3000' }],
    ['with a comment right after quotes', `CHAT_ID="a"#b"`, ['CHAT_ID']],
    ['with \\n between double quotes', `AUTH_SECRET="a\\nb${base}"`, ['AUTH_SECRET']],
    ['with \\n between single quotes', `AUTH_SECRET='a\\nb${base}'`, { AUTH_SECRET: `a\\nb${base}` }],
    ['with an escaped quote', `CHAT_TOKEN="a\\"b"`, ['CHAT_TOKEN']],
    ['with a quote that the next line closes', `AUTH_SECRET="a${base}\nCHAT_ID=b"`, ['AUTH_SECRET', 'CHAT_ID']],
    ['with a backslash before its last quote', `AUTH_SECRET="a${base}\\"\nCHAT_ID="b"`, ['AUTH_SECRET', 'CHAT_ID']],
    ['with the value on the next line', `CHAT_ID=\n"b"`, ['CHAT_ID']],
    ['with export, a colon or spaces', `export CHAT_ID = a\nCHAT_TOKEN: b`, { CHAT_ID: 'a', CHAT_TOKEN: 'b' }],
    ['with CRLF, a mark and accents', `\uFEFFCHAT_ID=Łódź\r\nCHAT_TOKEN=b\r\n`, { CHAT_ID: 'Łódź', CHAT_TOKEN: 'b' }],
    ['set twice', 'CHAT_ID=$HOME\nCHAT_ID=b', { CHAT_ID: 'b' }],
    ['with a PEM over lines', `AUTH_PUBLIC_KEY="${pem}"`, { AUTH_PUBLIC_KEY: pem }],
    ['with a PEM on one line', `AUTH_PUBLIC_KEY="${pem.replaceAll('\n', '\\n')}"`, { AUTH_PUBLIC_KEY: pem }],
    ['with a setting of another program', 'GREETING=$NAME#x', {}],
    ['with the new key of a rekey', `NEW_DATABASE_ENCRYPTION_KEY=a$b${base}`, ['NEW_DATABASE_ENCRYPTION_KEY']],
  ])('C6 reads as written or fails: %s', async (_, line, expected) => {
    const { refused, hashes } = await readSettings({ cwd: await folderOf({ '.env': `${line}\n` }) });
    const values = Array.isArray(expected) ? {} : expected;
    expect(refused).toEqual(Array.isArray(expected) ? expected : []);
    for (const [key, value] of Object.entries(values)) expect(hashes[key]).toBe(hashOf(value));
  });

  test.each<[string, files: Record<string, string>, run: Omit<Run, 'cwd'>, refused: string[]]>([
    ['.env.local before .env', { '.env': 'CHAT_ID=a', '.env.local': 'CHAT_ID=a#b' }, {}, ['CHAT_ID']],
    ['.env.local instead of .env', { '.env': 'CHAT_ID=a#b', '.env.local': 'CHAT_ID=a' }, {}, []],
    [
      'the file of production',
      { '.env.production': 'CHAT_ID=a#b' },
      { environment: { NODE_ENV: 'production' } },
      ['CHAT_ID'],
    ],
    ['no file of production in development', { '.env.production': 'CHAT_ID=a#b' }, {}, []],
    ['no .env.local in tests', { '.env.local': 'CHAT_ID=a#b' }, { environment: { NODE_ENV: 'test' } }, []],
    ['a named file', { 'my.env': 'CHAT_ID=a#b' }, { options: ['--env-file', 'my.env'] }, ['CHAT_ID']],
    ['no .env beside a named file', { '.env': 'CHAT_ID=a#b', 'my.env': '' }, { options: ['--env-file=my.env'] }, []],
    ['the last of named files', { a: 'CHAT_ID=a#b', b: 'CHAT_ID=b' }, { options: ['--env-file=a,b'] }, []],
    ['no file with --no-env-file', { '.env': 'CHAT_ID=a#b' }, { options: ['--no-env-file'] }, []],
    ['no file for a variable of the environment', { '.env': 'CHAT_ID=a#b' }, { environment: { CHAT_ID: 'a$b' } }, []],
    [
      'no file for a variable of the environment with the same value',
      { '.env': 'CHAT_ID=a#b' },
      { environment: { CHAT_ID: 'a' } },
      [],
    ],
  ])('C6 reads %s', async (_, files, run, refused) => {
    expect((await readSettings({ ...run, cwd: await folderOf(files) })).refused).toEqual(refused);
  });
});

describe('C6 a start', () => {
  const key = `k$ecret9${base}`;

  test('C6 refuses a changed secret by name and says how to write it', async () => {
    const cwd = await folderOf({ '.env': `AUTH_SECRET='${key}'\nPORT=0\n` });
    const { exitCode, stdout, stderr } = await failToStart({ cwd });
    expect(exitCode).toBe(1);
    expect(stderr).toContain('AUTH_SECRET in .env is not read as it is written: write \\$ for each $');
    expect(stdout + stderr).not.toContain('ecret9');
    const line = await createCommandLine({}, { isProcess: true });
    await line.write('.env', `DATABASE_ENCRYPTION_KEY=${base}#1\n`);
    const refused = await line.planning('migrate');
    expect(refused.exitCode).toBe(1);
    expect(refused.stderr).toContain('DATABASE_ENCRYPTION_KEY in .env is not read as it is written');
    expect(refused.stderr).not.toContain(base);
  });

  test('C6 accepts the secret when it follows the message', async () => {
    const cwd = await folderOf({ '.env': `AUTH_SECRET='${key.replace('$', '\\$')}'\nRATE_LIMIT_PER_MINTE=5\n` });
    const service = await startService({ cwd });
    const line = await createCommandLine({ AUTH_SECRET: key }, { isProcess: true });
    const token = (await line.planning('token', '--sub', 'ada')).stdout.trim();
    const lists = await fetch(`${service.address}/v2/private/healthAndCare/`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(lists.status).toBe(200);
    expect(service.output()).toContain(
      '"setting":"RATE_LIMIT_PER_MINTE","rule":"is not a setting of this service; the nearest is RATE_LIMIT_PER_MINUTE"',
    );
  });

  test('C6 warns of a mistyped setting on standard error for a command', async () => {
    const line = await createCommandLine({ DATABASE_ULR: 'file:other.db' }, { isProcess: true });
    const { stdout, stderr } = await line.planning('doctor');
    expect(stdout).toContain('DATABASE_ULR is not a setting of this service; the nearest is DATABASE_URL');
    expect(stderr).not.toContain('DATABASE_ULR');
    expect((await line.planning('user', 'show', 'ada')).stderr).toContain('DATABASE_ULR is not a setting');
  });

  test.each<[name: string, nearest: string | undefined]>([
    ['RATE_LIMIT_PER_MINTE', 'RATE_LIMIT_PER_MINUTE'],
    ['AUTH_JWKS_URI', 'AUTH_JWKS_URL'],
    ['AUTH_AUDIENCES', 'AUTH_AUDIENCE'],
    ['database_url', 'DATABASE_URL'],
    ['CORS_ORIGIN', 'CORS_ORIGINS'],
    ['LOGLEVEL', 'LOG_LEVEL'],
    ['PORTS', 'PORT'],
    ['DATABASE_ENCRYPTION_PASSPHRASE', 'DATABASE_ENCRYPTION_KEY'],
    ['PATH', undefined],
    ['HOME', undefined],
    ['HOSTNAME', undefined],
    ['OTEL_RESOURCE_ATTRIBUTES', undefined],
    ['AUTH_PORT_80_TCP_ADDR', undefined],
    ['DATABASE_SERVICE_HOST', undefined],
    ['NEW_DATABASE_ENCRYPTION_KEY', undefined],
    ['constructor', undefined],
  ])('C6 pairs %s with %p', (name, nearest) => {
    expect(mistypedSettings({ [name]: 'x' })).toEqual(
      nearest === undefined ? [] : [{ key: name, rule: `is not a setting of this service; the nearest is ${nearest}` }],
    );
  });
});
