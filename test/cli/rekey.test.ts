import { describe, expect, test } from 'bun:test';
import { readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import Connection from 'libsql';
import { examineCopy, UnusableFileError, withExclusiveLock } from '../../src/db/backup';
import { encryptionOption } from '../../src/db/database-file';
import { programOf } from '../support/artifacts';
import { createCommandLine, refusalOf } from '../support/command';
import { filesWith, keys } from '../support/database';
import { failToStart, startService } from '../support/processes';
import { amount, until } from '../support/resources';

const cli = await programOf('src/cli/main');
const [oldKey, newKey] = [keys.right, keys.wrong];
const person = 'canary-person';

/** A database with one person, and a command line with the current and the new key. */
async function setUp(key: string | undefined) {
  const current = key === undefined ? {} : { DATABASE_ENCRYPTION_KEY: key };
  const line = await createCommandLine(current, { isProcess: true });
  const path = join(line.cwd, 'data/planning.db');
  // Without an open prepared statement the driver releases the file at once.
  const connection = new Connection(path, { timeout: 0, ...encryptionOption(key) });
  connection.exec(`INSERT INTO users (id, version, created_at, updated_at) VALUES ('${person}', 1, 0, 0)`);
  connection.close();
  const settings = { ...current, DATABASE_URL: `file:${path}` };
  return {
    ...line,
    path,
    files: () => readdirSync(join(line.cwd, 'data')).sort(),
    rekey: async (more: Record<string, string>, ...args: string[]) => {
      const { planning } = await createCommandLine({ ...settings, ...more }, { isEmpty: true, isProcess: true });
      return planning('rekey', ...args);
    },
  };
}

/** The key that opens the database, or undefined. */
async function openedBy(path: string): Promise<string | undefined> {
  for (const [name, key] of [
    ['old', oldKey],
    ['new', newKey],
    ['none', undefined],
  ] as const) {
    try {
      if ((await examineCopy(path, key)).persons === 1) return name;
    } catch (error) {
      if (!(error instanceof UnusableFileError)) throw error;
    }
  }
  return undefined;
}

describe('planning rekey', () => {
  test.each([
    ['replaces the key of a database', oldKey, { NEW_DATABASE_ENCRYPTION_KEY: newKey }, [], 'new'],
    ['encrypts a plain database', undefined, { NEW_DATABASE_ENCRYPTION_KEY: newKey }, [], 'new'],
    ['decrypts a database', oldKey, {}, ['--decrypt'], 'none'],
  ] as const)('%s and leaves no other file', async (_, key, more, args, expected) => {
    const line = await setUp(key);
    const { exitCode, stdout, stderr } = await line.rekey({ ...more }, ...args, '--yes', '--json');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(JSON.parse(stdout)).toMatchObject({ database: line.path, isEncrypted: expected === 'new', persons: 1 });
    expect(await openedBy(line.path)).toBe(expected);
    expect(line.files()).toEqual(['planning.db']);
    expect(statSync(line.path).mode & 0o777).toBe(0o600);
    expect(filesWith(line.cwd, [person])).toEqual(expected === 'none' ? ['data/planning.db'] : []);
  });

  test('reads the new key from a terminal and then asks for confirmation there', async () => {
    const line = await setUp(undefined);
    let output = '';
    const command = Bun.spawn([process.execPath, cli, 'rekey', '--new-key-file', '-'], {
      cwd: line.cwd,
      env: { PATH: process.env.PATH, DATABASE_URL: `file:${line.path}` },
      terminal: {
        cols: 200,
        data: (_, bytes) => {
          output += new TextDecoder().decode(bytes);
        },
      },
    });
    // The line ends with its break, which a secret file may have; end of transmission ends the input.
    command.terminal?.write(`${newKey}\n\x04`);
    await until(() => output.includes('[y/N]'));
    command.terminal?.write('y\n');
    expect(await command.exited).toBe(0);
    expect(await openedBy(line.path)).toBe('new');
  });

  test('reads the new key from a file or from standard input', async () => {
    const line = await setUp(oldKey);
    await line.write('key', `${newKey}\n`);
    expect(await line.rekey({}, '--new-key-file', join(line.cwd, 'key'), '--yes')).toMatchObject({ exitCode: 0 });
    expect(await openedBy(line.path)).toBe('new');
    const command = Bun.spawn([process.execPath, cli, 'rekey', '--new-key-file', '-', '--yes'], {
      cwd: line.cwd,
      env: { PATH: process.env.PATH, NODE_ENV: 'development', DATABASE_ENCRYPTION_KEY: newKey },
      stdin: new Blob([oldKey]),
      stdout: 'ignore',
    });
    expect(await command.exited).toBe(0);
    expect(await openedBy(line.path)).toBe('old');
  });

  test('rejects invalid keys and options without printing keys and changes nothing', async () => {
    const line = await setUp(oldKey);
    const before = readFileSync(line.path);
    const next = { NEW_DATABASE_ENCRYPTION_KEY: newKey };
    const cases: [Record<string, string>, string[], string][] = [
      [{}, [], 'There is no new key'],
      [
        { NEW_DATABASE_ENCRYPTION_KEY: 'canary too short' },
        [],
        'NEW_DATABASE_ENCRYPTION_KEY must be at least 32 characters',
      ],
      [{ NEW_DATABASE_ENCRYPTION_KEY: '' }, [], 'NEW_DATABASE_ENCRYPTION_KEY must be at least 32 characters'],
      [{ NEW_DATABASE_ENCRYPTION_KEY: oldKey }, [], 'The new key is the current key'],
      [next, ['--decrypt'], 'give one of the two'],
      [next, ['--new-key-file', 'x'], 'give one of the two'],
      [{ ...next, DATABASE_ENCRYPTION_KEY: `another ${oldKey}` }, [], 'DATABASE_ENCRYPTION_KEY does not open it'],
      [{ ...next, DATABASE_URL: `file:${line.path}.none` }, [], 'There is no database'],
      [{ ...next, DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: 'r.db' }, [], 'is a libSQL server'],
    ];
    for (const [more, args, reason] of cases) {
      const settings = { DATABASE_URL: `file:${line.path}`, DATABASE_ENCRYPTION_KEY: oldKey, ...more };
      const message = await refusalOf(settings, 'rekey', ...args, '--yes');
      expect(message).toContain(reason);
      expect(message).not.toMatch(/horse|canary/);
    }
    expect(readFileSync(line.path)).toEqual(before);
    expect(line.files()).toEqual(['planning.db']);
  }, 60_000);

  test('fails while a service has the database open, and the service continues', async () => {
    const line = await setUp(oldKey);
    const service = await startService({ cwd: line.cwd, environment: { DATABASE_ENCRYPTION_KEY: oldKey } });
    const { exitCode, stderr } = await line.rekey({ NEW_DATABASE_ENCRYPTION_KEY: newKey }, '--yes');
    expect(exitCode).toBe(1);
    expect(stderr).toContain('another process has');
    const headers = { authorization: `Bearer ${await service.token()}`, 'content-type': 'application/json' };
    const save = { method: 'POST', headers, body: '{"careCosts":1}' };
    expect((await fetch(`${service.address}/v2/private/ltc/lifetimeCare`, save)).status).toBe(200);
  });

  test('leaves a database that opens with the old or the new key when it is killed at any point', async () => {
    const line = await setUp(oldKey);
    const run = async () => {
      const isOld = (await openedBy(line.path)) === 'old';
      return Bun.spawn([process.execPath, cli, 'rekey', '--yes'], {
        cwd: line.cwd,
        env: {
          PATH: process.env.PATH,
          NODE_ENV: 'development',
          DATABASE_ENCRYPTION_KEY: isOld ? oldKey : newKey,
          NEW_DATABASE_ENCRYPTION_KEY: isOld ? newKey : oldKey,
        },
        stdout: 'ignore',
        stderr: 'ignore',
      });
    };
    expect(await (await run()).exited).toBe(0);
    let unfinished = 0;
    const runs = amount({ long: 200, short: 8 });
    for (let index = 0; index < runs; index += 1) {
      const command = await run();
      while (command.exitCode === null && !line.files().some((name) => name.endsWith('.partial'))) await Bun.sleep(1);
      await Bun.sleep((30 * index) / runs);
      command.kill('SIGKILL');
      await command.exited;
      expect(await openedBy(line.path)).toBeOneOf(['old', 'new']);
      if (line.files().some((name) => name.endsWith('.partial'))) unfinished += 1;
      // Only unfinished copies under temporary names may remain.
      for (const name of line.files().filter((file) => file !== 'planning.db')) {
        expect(name).toMatch(/^planning\.db(\.[0-9a-f-]{36}\.partial)?(-journal)?$/);
        rmSync(join(line.cwd, 'data', name));
      }
    }
    expect(unfinished).toBeGreaterThan(0);
    expect(await (await run()).exited).toBe(0);
  }, 120_000);

  test('rejects a key that production would reject at start', async () => {
    const line = await setUp(oldKey);
    const production = {
      ...{ NODE_ENV: 'production', DATABASE_URL: `file:${line.path}`, DATABASE_ENCRYPTION_KEY: oldKey },
      ...{ AUTH_SECRET: 'Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8Ls3Hc5Pg3', AUTH_ISSUER: 'https://issuer.example', AUTH_AUDIENCE: 'a' },
      ...{ CARRIER_URL: 'https://carrier.example', CARRIER_API_KEY: 'k', CHAT_ID: 'room', CHAT_TOKEN: 't' },
    };
    for (const [key, reason] of [
      ['ab'.repeat(20), 'it repeats a few characters'],
      [production.AUTH_SECRET, 'must differ from AUTH_SECRET'],
    ] as const) {
      const message = await refusalOf({ ...production, NEW_DATABASE_ENCRYPTION_KEY: key }, 'rekey', '--yes');
      expect(message).toStartWith('Nothing was changed: as DATABASE_ENCRYPTION_KEY, the new key must ');
      expect(message).toContain(reason);
      expect(message).not.toContain(key);
    }
    expect(await openedBy(line.path)).toBe('old');
    expect(await line.rekey({ ...production, NEW_DATABASE_ENCRYPTION_KEY: newKey }, '--yes')).toMatchObject({
      exitCode: 0,
    });
    expect(await openedBy(line.path)).toBe('new');
  });

  test('converts a backup with the old key to the current key by the documented steps', async () => {
    const line = await setUp(oldKey);
    const next = { NEW_DATABASE_ENCRYPTION_KEY: newKey };
    expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0 });
    expect(await line.rekey(next, '--yes')).toMatchObject({ exitCode: 0 });
    // The old key cannot show whether the current database is in use.
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('move the file away'),
    });
    expect(await openedBy(line.path)).toBe('new');
    renameSync(line.path, `${line.path}.away`);
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    expect(await line.rekey(next, '--yes')).toMatchObject({ exitCode: 0 });
    expect(await openedBy(line.path)).toBe('new');
  });

  test('blocks other processes while it works, and a service with the old key fails to start afterwards', async () => {
    const line = await setUp(oldKey);
    const copy = `${line.path}.copy`;
    const { during, started } = await withExclusiveLock(line.path, oldKey, async (copyTo) => {
      copyTo(copy, newKey);
      const during = await line.planning('user', 'show', person);
      const started = failToStart({
        cwd: line.cwd,
        environment: { DATABASE_ENCRYPTION_KEY: oldKey, DATABASE_TIMEOUT_MS: '10000' },
      });
      await Bun.sleep(1_500);
      renameSync(copy, line.path);
      return { during, started };
    });
    expect(during).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('SQLITE_BUSY') });
    const { exitCode, stderr } = await started;
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining('cannot be opened') });
    expect(await openedBy(line.path)).toBe('new');
    expect(line.files().filter((name) => name.startsWith('planning.db'))).toEqual(['planning.db']);
  }, 30_000);
});
