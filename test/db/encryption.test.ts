import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Connection from 'libsql';
import { copyDatabase, withExclusiveLock } from '../../src/db/backup';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { driverKey, encryptionOption } from '../../src/db/database-file';
import { causeChain } from '../../src/errors';
import { canaryApplicant } from '../support/app';
import { createCommandLine } from '../support/command';
import { copyTemplate, filesWith, keys, openFilesWith } from '../support/database';
import { failToStart, type Service, startService, startWorker } from '../support/processes';
import { amount, cases, temporaryFolder } from '../support/resources';

const encrypted = { DATABASE_ENCRYPTION_KEY: keys.right };
const canaries = [canaryApplicant.firstName, canaryApplicant.lastName, canaryApplicant.email, 'canary-note'];

async function post(service: Service, token: string, path: string, body: object): Promise<number> {
  const response = await fetch(`${service.address}/v2/private/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  await response.text();
  return response.status;
}

/** Stores a canary in each kind of record and keeps saving until `stop`. */
async function load(service: Service) {
  const token = await service.token();
  expect(await post(service, token, 'ltc/totalCoverage', canaryApplicant)).toBe(200);
  const hobbies = Array.from({ length: 100 }, (_, id) => ({ title: `canary-note ${id} ${'x'.repeat(150)}` }));
  let isOver = false;
  const saving = Promise.all(
    Array.from({ length: 8 }, async (_, saver) => {
      for (let count = 0; !isOver; count += 1) {
        const status = await post(service, token, 'deepDives/lifetimeCare', {
          hobbies: hobbies.slice((saver + count) % 50),
        }).catch(() => 0);
        if (status !== 200) return;
        // One request is always in flight; the pause leaves the machine to other processes.
        await Bun.sleep(10);
      }
    }),
  );
  return {
    async stop() {
      isOver = true;
      await saving;
    },
  };
}

describe('database encryption', () => {
  test.skipIf(process.platform !== 'linux').each([
    ['no canary with a key', encrypted, false],
    ['every canary without a key, as a control,', {}, true],
  ])(
    'exposes %s in its files, while written to, after kill -9, and in a backup',
    async (_, key, isShown) => {
      const line = await createCommandLine({ ...key }, { isEmpty: true, isProcess: true });
      const service = await startService({ cwd: line.cwd, environment: { ...key } });
      const saving = await load(service);
      const seen = new Set<string>();
      for (let scan = 0; scan < amount({ long: 100, short: 10 }); scan += 1) {
        for (const file of filesWith(line.cwd, canaries)) seen.add(file);
        for (const file of openFilesWith(service.process.pid, canaries)) seen.add(file.replace(`${line.cwd}/`, ''));
        await Bun.sleep(20);
      }
      expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0, stderr: '' });
      service.process.kill('SIGKILL');
      await service.process.exited;
      await saving.stop();
      for (const file of filesWith(line.cwd, canaries)) seen.add(file);
      expect(existsSync(join(line.cwd, 'data/planning.db-wal'))).toBeTrue();
      const places = ['backup.db', 'data/carrier-sandbox.db-wal', 'data/planning.db-wal'];
      expect([...seen].sort()).toEqual(isShown ? expect.arrayContaining(places) : []);
      // The encrypted data are complete.
      const { stdout } = await line.planning('user', 'export', 'demo-user');
      for (const canary of canaries) expect(stdout).toContain(canary);
    },
    60_000,
  );

  test.skipIf(process.platform !== 'linux')(
    'never writes plain text to a temporary file of a large statement',
    async () => {
      const folder = temporaryFolder();
      const spilt = (key: string | undefined) => {
        const path = join(folder, `${key === undefined ? 'plain' : 'encrypted'}.db`);
        const connection = new Connection(path, { timeout: 0, ...encryptionOption(key) });
        connection.exec(`PRAGMA journal_mode = DELETE; PRAGMA cache_size = 10; CREATE TABLE t (id INTEGER PRIMARY KEY, a);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
          INSERT INTO t SELECT i, 'canary-spilt ' || i || hex(zeroblob(300)) FROM n;
        BEGIN; SAVEPOINT s; UPDATE t SET a = 'canary-spilt again ' || a; CREATE INDEX i ON t (a)`);
        const open = openFilesWith(process.pid, ['canary-spilt']).map((file) => file.replace(`${folder}/`, ''));
        connection.exec('ROLLBACK; VACUUM');
        connection.close();
        return open;
      };
      expect(spilt(keys.right)).toEqual([]);
      expect(spilt(undefined)).toContain('plain.db-journal');
      expect(filesWith(folder, ['canary-spilt'])).toEqual(['plain.db']);
    },
  );

  test('opens the file only with the complete key', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path, keys.right);
    const open = (encryptionKey?: string) => openDatabase({ url: `file:${path}`, timeoutMs: 1000, encryptionKey });
    (await open(keys.right)).$client.close();
    expect(keys.wrong.slice(0, 32)).toBe(keys.right.slice(0, 32));
    await expect(open(keys.wrong)).rejects.toMatchObject({ code: 'WRONG_ENCRYPTION_KEY' });
    await expect(open()).rejects.toMatchObject({ code: 'ENCRYPTION_KEY_NEEDED' });
  });

  test('keeps the journal mode, fsync and secure delete, and truncates the WAL at a checkpoint', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path, keys.right);
    const settings = { url: `file:${path}`, timeoutMs: 1000, encryptionKey: keys.right };
    const db = (await openServiceDatabase(settings)).$client;
    for (const [pragma, value] of [
      ['journal_mode', 'wal'],
      ['secure_delete', 1],
      ['synchronous', 1],
    ] as const) {
      expect(Object.values((await db.execute(`PRAGMA ${pragma}`)).rows[0] ?? {})).toEqual([value]);
    }
    await db.execute("INSERT INTO users (id, version, created_at, updated_at) VALUES ('a', 1, 0, 0)");
    expect(statSync(`${path}-wal`).size).toBeGreaterThan(0);
    expect((await db.execute('PRAGMA wal_checkpoint(TRUNCATE)')).rows[0]?.busy).toBe(0);
    expect(statSync(`${path}-wal`).size).toBe(0);
    db.close();
  });
});

describe('a start with encryption settings', () => {
  const start = (cwd: string, key: object) => failToStart({ cwd, environment: { ...key } });

  test.each([
    ['another key', encrypted, { DATABASE_ENCRYPTION_KEY: keys.wrong }, 'DATABASE_ENCRYPTION_KEY does not open it'],
    ['no key', encrypted, {}, 'encrypted, and DATABASE_ENCRYPTION_KEY is not set'],
    ['a key for a plain file', {}, encrypted, 'not encrypted, but DATABASE_ENCRYPTION_KEY is set'],
  ])(
    'names the wrong setting with %s, and loses no acknowledged write of a killed service',
    async (_, key, other, reason) => {
      const line = await createCommandLine({ ...key }, { isProcess: true });
      const writer = startWorker(line.databaseUrl, 'pairs', 'w', { ...key });
      await writer.until(20);
      const acknowledged = (await writer.stop()).length;
      expect(statSync(join(line.cwd, 'data/planning.db-wal')).size).toBeGreaterThan(0);

      const { exitCode, stderr, stdout } = await start(line.cwd, other);
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
      expect(stderr).toContain(reason);
      const elsewhere = await createCommandLine(
        { ...other, DATABASE_URL: line.databaseUrl },
        { isEmpty: true, isProcess: true },
      );
      for (const args of cases([['user', 'show', 'w-1-a'], ['backup', 'b.db'], ['doctor'], ['migrate'], ['seed']], 3)) {
        const ended = await elsewhere.planning(...args);
        expect(ended.exitCode).toBe(1);
        expect(ended.stderr + ended.stdout).toContain(reason);
        expect(existsSync(join(elsewhere.cwd, 'b.db'))).toBeFalse();
      }
      const { stdout: shown, exitCode: isThere } = await line.planning('user', 'show', `w-${acknowledged}-b`, '--json');
      expect({ isThere, shown }).toMatchObject({ isThere: 0, shown: expect.stringContaining(`w-${acknowledged}-b`) });
    },
    60_000,
  );

  test('checks the database of the sandbox carrier too', async () => {
    const cwd = temporaryFolder();
    await copyTemplate(join(cwd, 'data/planning.db'), keys.right);
    await copyTemplate(join(cwd, 'data/carrier-sandbox.db'));
    const { exitCode, stderr } = await start(cwd, encrypted);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/SANDBOX_DATABASE_URL cannot be used \(NOT_ENCRYPTED\)/);
  });

  test('refuses an empty or short key without printing its value', async () => {
    for (const key of ['', 'a short canary']) {
      const { exitCode, stderr } = await start(temporaryFolder(), { DATABASE_ENCRYPTION_KEY: key });
      expect(exitCode).toBe(1);
      expect(stderr).toStartWith(
        'These settings cannot be used:\n  DATABASE_ENCRYPTION_KEY must be at least 32 characters\nThe mode is ',
      );
      expect(stderr).not.toContain('canary');
    }
  });
});

describe('a backup of an encrypted database', () => {
  test('fails without the key in the error, at any depth, when the target cannot be written', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path, keys.right);
    for (const copy of [
      (target: string) => copyDatabase(path, target, keys.right),
      (target: string) => withExclusiveLock(path, keys.right, (copyTo) => copyTo(target, keys.wrong)),
    ]) {
      const failure = await Promise.try(copy, join(temporaryFolder(), 'none/copy.db')).catch((error: unknown) => error);
      expect(failure).toMatchObject({ code: 'SQLITE_CANTOPEN', isUnavailable: true });
      const shown = [...causeChain(failure)].map(({ message, stack }) => `${message} ${stack}`).join('\n');
      for (const key of [keys.right, keys.wrong]) {
        expect(shown).not.toContain(key);
        expect(shown).not.toContain(driverKey(key));
      }
    }
  });

  test('restores only with its key, and is refused when a page is damaged', async () => {
    const line = await createCommandLine(encrypted, { isProcess: true });
    const backup = join(line.cwd, 'backup.db');
    expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0, stderr: '' });
    const oddly = "it's 100% a?key=x#1 &.db";
    expect(await line.planning('backup', oddly)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(statSync(join(line.cwd, oddly)).size).toBe(statSync(backup).size);
    const before = readFileSync(join(line.cwd, 'data/planning.db'));
    const restoreWith = async (key: object, file: string) => {
      const other = await createCommandLine({ ...key }, { isEmpty: true, isProcess: true });
      const { exitCode, stderr } = await other.planning('restore', file, '--yes');
      return { exitCode, stderr, isThere: existsSync(join(other.cwd, 'data/planning.db')) };
    };
    expect(await restoreWith(encrypted, backup)).toEqual({ exitCode: 0, stderr: '', isThere: true });
    for (const [key, reason] of [
      [{ DATABASE_ENCRYPTION_KEY: keys.wrong }, 'is encrypted with another key, or is not a database'],
      [{}, 'is encrypted, but DATABASE_ENCRYPTION_KEY is not set'],
    ] as const) {
      expect(await restoreWith(key, backup)).toEqual({
        exitCode: 1,
        stderr: expect.stringContaining(reason),
        isThere: false,
      });
    }
    const plain = join(line.cwd, 'plain.db');
    await copyTemplate(plain);
    expect(await restoreWith(encrypted, plain)).toMatchObject({ exitCode: 1, isThere: false });
    for (const page of [1, 2, 5]) {
      const damaged = join(line.cwd, `damaged-${page}.db`);
      copyFileSync(backup, damaged);
      const bytes = readFileSync(damaged);
      // The first block of a page holds its type and fill level.
      bytes[4096 * page] = (bytes[4096 * page] ?? 0) ^ 1;
      writeFileSync(damaged, bytes);
      expect(await restoreWith(encrypted, damaged)).toMatchObject({ exitCode: 1, isThere: false });
    }
    expect(readFileSync(join(line.cwd, 'data/planning.db'))).toEqual(before);
  }, 60_000);
});

test('doctor reports whether the database is encrypted', async () => {
  for (const [key, words] of [
    [encrypted, 'it is encrypted'],
    [{}, 'it is not encrypted'],
  ] as const) {
    const line = await createCommandLine({ ...key }, { isProcess: true });
    expect((await line.planning('doctor')).stdout).toContain(`; ${words}`);
  }
});
