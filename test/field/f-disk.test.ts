import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Glob } from 'bun';
import { closeDatabase, type Database, openServiceDatabase } from '../../src/db/client';
import { copyTemplate, temporaryFolder } from '../support/database';
import { keys } from '../support/encryption';
import { createProduction, type Production } from '../support/production';
import { createSaveHistory } from '../support/save-history';
import { until } from '../support/until';
import { startWorker } from '../support/worker';

const ltc = '/v2/private/ltc/lifetimeCare';
const hasStrace = Bun.which('strace') !== null;
const source = join(import.meta.dirname, '../../src');

async function openTemporary(encryptionKey?: string) {
  const path = join(temporaryFolder(), 'planning.db');
  await copyTemplate(path, encryptionKey);
  const losses: string[] = [];
  const settings = { url: `file:${path}`, timeoutMs: 5000, encryptionKey };
  const open = () => openServiceDatabase(settings, { onLoss: ({ code }) => losses.push(code) });
  return { path, losses, open, db: await open() };
}

/** Writes a row of a size, in a table of the test's own. */
async function fill({ $client }: Database, rows: number, bytes = 4000): Promise<void> {
  await $client.execute('CREATE TABLE IF NOT EXISTS ballast (bytes)');
  await Promise.all(
    Array.from({ length: rows }, () =>
      $client.execute({ sql: 'INSERT INTO ballast VALUES (randomblob(?))', args: [bytes] }),
    ),
  );
}

const sizeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

describe('A1 a checkpoint', () => {
  test('A1 is issued by the checkpointer alone, and every connection that writes has no automatic one', async () => {
    const files = await Promise.all(
      [...new Glob('**/*.ts').scanSync(source)].map(async (path) => ({
        path,
        text: await Bun.file(join(source, path)).text(),
      })),
    );
    const pathsOf = (pattern: RegExp) =>
      files
        .filter(({ text }) => pattern.test(text))
        .map(({ path }) => path)
        .sort();
    expect(pathsOf(/wal_checkpoint/i)).toEqual(['db/checkpointer.ts']);
    expect(pathsOf(/wal_autocheckpoint/i)).toEqual(['db/checkpointer.ts']);
    expect(pathsOf(/manualCheckpoints/)).toEqual(['db/checkpointer.ts', 'db/local-connection.ts']);
    // A copy, a replica and a lock file: a file of its own, or no WAL mode, or no writes.
    const others = ['db/backup.ts', 'db/held-file.ts', 'db/replica-file.ts', 'db/replica-sync.ts'];
    expect(pathsOf(/\bnew (?:Async)?Connection\(/)).toEqual(
      [...others, 'db/checkpointer.ts', 'db/local-connection.ts'].sort(),
    );
    expect(pathsOf(/@libsql\/client\/sqlite3|bun:sqlite/)).toEqual(['db/errors.ts']);
  });

  test.skipIf(!hasStrace)(
    'A1 runs only while its process holds the write lock, in two processes that write to one file',
    async () => {
      const { path, db } = await openTemporary();
      await db.$client.execute(`INSERT INTO users (id, version, created_at, updated_at) VALUES ('shared', 1, 0, 0)`);
      db.$client.close();
      const traces = await Promise.all(
        ['careCosts', 'careSafety'].map(async (task) => {
          const trace = `${path}.${task}`;
          const worker = join(import.meta.dirname, '../support/process-worker.ts');
          const strace = ['strace', '-f', '-qq', '--seccomp-bpf', '-e', 'trace=fcntl', '-o', trace];
          const child = Bun.spawn([...strace, process.execPath, worker, `file:${path}`, task, '400'], {
            stdout: 'pipe',
          });
          expect((await new Response(child.stdout).text()).trim()).toBe('400');
          return Bun.file(trace).text();
        }),
      );
      for (const trace of traces) {
        const held = new Set<string>();
        let checkpoints = 0;
        for (const [, kind, lock] of trace.matchAll(
          /F_SETLK, \{l_type=F_(\w+), l_whence=SEEK_SET, l_start=(120|121), l_len=1\}\) = 0/g,
        )) {
          if (lock === undefined) continue;
          if (kind === 'WRLCK') held.add(lock);
          else held.delete(lock);
          // 120 is WAL_WRITE_LOCK, 121 is WAL_CKPT_LOCK.
          if (held.has('121')) expect(held.has('120')).toBeTrue();
          if (kind === 'WRLCK' && lock === '121') checkpoints += 1;
        }
        expect(checkpoints).toBeGreaterThan(0);
      }
      const file = new SqliteDatabase(path);
      expect(file.query('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
      expect(file.query("SELECT version FROM users WHERE id = 'shared'").get()).toEqual({ version: 801 });
      file.close();
    },
    60_000,
  );

  test.each([
    ['a plain file', undefined],
    ['an encrypted file', keys.right],
  ])('A1 bounds the log of %s, and continues after a reader of another process has blocked it', async (_, key) => {
    const { path, db } = await openTemporary(key);
    const log = `${path}-wal`;
    await fill(db, 1500);
    await until(() => sizeOf(path) > 1000 * 4000);
    // The next generation of the log overwrites the file of the last one.
    await fill(db, 100);
    expect(sizeOf(log)).toBeLessThanOrEqual(16 * 1024 * 1024);
    const reader = Bun.spawn(
      [process.execPath, join(import.meta.dirname, '../support/process-worker.ts'), `file:${path}`, 'read', ''],
      { env: { ...process.env, ...(key && { DATABASE_ENCRYPTION_KEY: key }) }, stdin: 'pipe', stdout: 'pipe' },
    );
    const output = reader.stdout.getReader();
    await output.read();
    for (let round = 0; round < 4; round += 1) await fill(db, 1500);
    expect(sizeOf(log)).toBeGreaterThan(16 * 1024 * 1024);
    reader.stdin.end();
    await reader.exited;
    await until(async () => {
      await fill(db, 1);
      return sizeOf(log) <= 16 * 1024 * 1024;
    });
    expect((await db.$client.execute('SELECT count(*) AS n FROM ballast')).rows[0]?.n).toBeGreaterThanOrEqual(7601);
    expect((await db.$client.execute('PRAGMA integrity_check')).rows[0]?.integrity_check).toBe('ok');
    await closeDatabase(db);
  });
});

/** Saves for some people until `count` saves are acknowledged. */
async function saveMany(service: Production, history: ReturnType<typeof createSaveHistory>, count: number) {
  const savers = Array.from({ length: 16 }, async (_, index) => {
    for (let value = 1; history.acknowledged.length < count; value += 1) {
      const answer = await service.call('POST', ltc, { as: `saver-${index}`, body: { careCosts: value } });
      expect(answer.status).toBe(200);
      history.note(`saver-${index}`, answer);
    }
  });
  await Promise.all(savers);
}

describe('F4 a clean stop', () => {
  test('F4 leaves every acknowledged save in the file alone, and removes the log', async () => {
    const production = await createProduction();
    const service = await production.start();
    const history = createSaveHistory();
    await saveMany(service, history, 200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(['-wal', '-shm'].filter((suffix) => existsSync(`${production.databasePath}${suffix}`))).toEqual([]);
    const copy = join(temporaryFolder(), 'copy.db');
    copyFileSync(production.databasePath, copy);
    expect(history.faultsOf(copy)).toEqual([]);
  });

  test('F4 leaves every acknowledged save in the file alone while another instance has it open', async () => {
    const production = await createProduction();
    const [service, other] = await Promise.all([production.start(), production.start()]);
    const history = createSaveHistory();
    await saveMany(service, history, 200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const copy = join(temporaryFolder(), 'copy.db');
    copyFileSync(production.databasePath, copy);
    expect(history.faultsOf(copy)).toEqual([]);
    const answer = await other.call('POST', ltc, { as: 'saver-0', body: { careCosts: 77 } });
    expect(answer.status).toBe(200);
    history.note('saver-0', answer);
    expect(await other.health()).toBe(200);
    // The instance that was killed left its log.
    other.process.kill('SIGKILL');
    await other.process.exited;
    expect(history.faultsOf(production.databasePath)).toEqual([]);
  });

  test('F4 holds for a command, which leaves its rows in the file alone', async () => {
    const { planning, databasePath } = await createProduction();
    expect(await planning('seed')).toMatchObject({ exitCode: 0 });
    expect(existsSync(`${databasePath}-wal`)).toBeFalse();
  });

  test('F4 loses nothing when the process is killed within checkpoints', async () => {
    const { path, db, open } = await openTemporary();
    await closeDatabase(db);
    for (let round = 1; round <= 3; round += 1) {
      const worker = startWorker(`file:${path}`, 'pairs', `r${round}`);
      await worker.until(300 * round);
      const acknowledged = (await worker.stop()).length;
      const next = await open();
      const { rows } = await next.$client.execute(`SELECT count(*) AS n FROM users WHERE id GLOB 'r${round}-*'`);
      expect(Number(rows[0]?.n)).toBeGreaterThanOrEqual(2 * acknowledged);
      expect((await next.$client.execute('PRAGMA integrity_check')).rows[0]?.integrity_check).toBe('ok');
      next.$client.close();
    }
  }, 60_000);
});
