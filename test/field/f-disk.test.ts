import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import {
  copyFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Glob } from 'bun';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import * as v from 'valibot';
import { closeDatabase, type Database, openServiceDatabase, toDatabase } from '../../src/db/client';
import { openFileClient } from '../../src/db/file-client';
import { migrationsFolder } from '../../src/db/migrations';
import { runHistory } from '../soak/history';
import { copyTemplate, keys } from '../support/database';
import { createSaveHistory, mountSmallDisk } from '../support/disks';
import { createProduction, type Production, productionToken, startWorker } from '../support/processes';
import { amount, atEnd, cases, isLong, temporaryFolder, until } from '../support/resources';
import { readSamples } from '../support/telemetry';

const ltc = '/v2/private/ltc/lifetimeCare';
const hasStrace = Bun.which('strace') !== null;
const source = join(import.meta.dirname, '../../src');

async function openTemporary(encryptionKey?: string, folder = temporaryFolder()) {
  const path = join(folder, 'planning.db');
  await copyTemplate(path, encryptionKey);
  const losses: string[] = [];
  const checkpoints: (string | undefined)[] = [];
  const settings = { url: `file:${path}`, timeoutMs: 5000, encryptionKey };
  const open = () =>
    openServiceDatabase(settings, {
      onLoss: ({ code }) => losses.push(code),
      onCheckpointChange: (code) => checkpoints.push(code),
    });
  return { path, losses, checkpoints, open, db: await open() };
}

/** Writes rows of a size into a separate table. */
async function fill({ $client }: Database, rows: number, bytes = 4000): Promise<void> {
  await $client.execute('CREATE TABLE IF NOT EXISTS ballast (bytes)');
  await Promise.all(
    Array.from({ length: rows }, () =>
      $client.execute({ sql: 'INSERT INTO ballast VALUES (randomblob(?))', args: [bytes] }),
    ),
  );
}

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

/** Reads in a transaction in another process until `end`. */
async function startReader(path: string, environment: Record<string, string> = {}) {
  const reader = Bun.spawn(
    [process.execPath, join(import.meta.dirname, '../support/child.ts'), 'work', `file:${path}`, 'read', ''],
    { env: { ...process.env, ...environment }, stdin: 'pipe', stdout: 'pipe' },
  );
  atEnd(() => reader.kill('SIGKILL'));
  await reader.stdout.getReader().read();
  return {
    async end() {
      reader.stdin.end();
      await reader.exited;
    },
  };
}

const disk = mountSmallDisk(8);

const sizeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

describe('A1 a checkpoint', () => {
  test('A1 runs only in the checkpointer, and no writing connection checkpoints automatically', async () => {
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
    expect(pathsOf(/manualCheckpoints/)).toEqual(['db/checkpointer.ts', 'db/connection.ts']);
    // These open a separate file, use no WAL, or do not write.
    const others = ['backup', 'database-file', 'replica', 'replica-sync'].map((name) => `db/${name}.ts`);
    expect(pathsOf(/\bnew (?:Async)?Connection\((?!':memory:')/)).toEqual(
      [...others, 'db/checkpointer.ts', 'db/connection.ts'].sort(),
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
          const worker = join(import.meta.dirname, '../support/child.ts');
          const strace = ['strace', '-f', '-qq', '--seccomp-bpf', '-e', 'trace=fcntl', '-o', trace];
          const child = Bun.spawn([...strace, process.execPath, worker, 'work', `file:${path}`, task, '400'], {
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
  ])('A1 bounds the WAL of %s, and continues after a reader of another process blocked it', async (_, key) => {
    const { path, db } = await openTemporary(key);
    const log = `${path}-wal`;
    await fill(db, 1500);
    await until(() => sizeOf(path) > 1000 * 4000);
    // The next generation of the WAL overwrites the file.
    await fill(db, 100);
    expect(sizeOf(log)).toBeLessThanOrEqual(16 * 1024 * 1024);
    const reader = await startReader(path, key === undefined ? {} : { DATABASE_ENCRYPTION_KEY: key });
    for (let round = 0; round < 4; round += 1) await fill(db, 1500);
    expect(sizeOf(log)).toBeGreaterThan(16 * 1024 * 1024);
    await reader.end();
    await until(async () => {
      await fill(db, 1);
      return sizeOf(log) <= 16 * 1024 * 1024;
    });
    expect((await db.$client.execute('SELECT count(*) AS n FROM ballast')).rows[0]?.n).toBeGreaterThanOrEqual(7601);
    expect((await db.$client.execute('PRAGMA integrity_check')).rows[0]?.integrity_check).toBe('ok');
    await closeDatabase(db);
  });

  test.skipIf(disk === undefined)(
    'A1 reports the first failure on a full disk and the next success, and keeps the WAL',
    async () => {
      if (disk === undefined) throw new Error('Cannot mount a small disk');
      const { path, losses, checkpoints, db } = await openTemporary(undefined, disk.folder);
      await fill(db, 200);
      disk.fill();
      expect(await db.$client.checkpoint?.().catch((error: unknown) => error)).toMatchObject({ code: 'SQLITE_FULL' });
      expect(await db.$client.checkpoint?.().catch((error: unknown) => error)).toMatchObject({ code: 'SQLITE_FULL' });
      disk.free();
      // Closes the connection of the statements after the failed checkpoints. The driver closes a connection with its
      // last statement, which the garbage collector frees.
      db.$client.reconnect();
      for (let round = 0; round < 3; round += 1) {
        await Bun.sleep(50);
        Bun.gc(true);
      }
      expect(existsSync(`${path}-wal`)).toBeTrue();
      await fill(db, 1);
      expect([losses, checkpoints]).toEqual([[], ['SQLITE_FULL']]);
      await db.$client.checkpoint?.();
      expect(checkpoints).toEqual(['SQLITE_FULL', undefined]);
      expect((await db.$client.execute('SELECT count(*) AS n FROM ballast')).rows[0]?.n).toBe(201);
      expect(await closeDatabase(db)).toBeUndefined();
    },
  );

  test.skipIf(!hasStrace)(
    'A1 reports I/O errors at once, and marks the database as lost after ten seconds',
    async () => {
      const metricsToken = 'a-token-for-the-scrapes-0123456789abc';
      const production = await createProduction({ METRICS_TOKEN: metricsToken });
      const service = await production.start();
      const { pid } = service.process;
      const inject = ['-P', production.databasePath, '-e', 'trace=pwrite64', '-e', 'inject=pwrite64:error=EIO'];
      const strace = Bun.spawn(['strace', '-f', '-qq', '-p', String(pid), '-o', '/dev/null', ...inject]);
      atEnd(() => strace.kill('SIGKILL'));
      await until(() => !readFileSync(`/proc/${pid}/status`, 'utf8').includes('TracerPid:\t0\n'));
      const history = createSaveHistory();
      const save = async (as: string) => {
        const customSelections = Array.from({ length: 60 }, (_, item) => ({ title: `${'long '.repeat(15)}${item}` }));
        const response = await service.call('POST', '/v2/private/deepDives/lifeInsurance', {
          as,
          body: { customSelections: [...customSelections, { title: `${history.acknowledged.length}` }] },
        });
        if (response.status === 200) history.note(as, response);
        return response.status;
      };
      const hasLine = (level: string, words: string) =>
        service.logLines().some((line) => line.level === level && line.msg.includes(words));
      const cannotWrite = 'the write-ahead log cannot be written to the database file';
      await until(async () => {
        const statuses = await Promise.all(Array.from({ length: 16 }, (_, index) => save(`saver-${index}`)));
        expect(statuses).toEqual(statuses.map(() => 200));
        return hasLine('warn', cannotWrite);
      });
      expect(await service.health()).toBe(200);
      const overdue = async () => {
        const headers = { authorization: `Bearer ${metricsToken}` };
        const { text } = await service.call('GET', '/metrics', { headers });
        return readSamples(text).find(({ name }) => name === 'planning_database_checkpoint_overdue_seconds')?.value;
      };
      await until(async () => Number(await overdue()) > 0);
      await until(async () => (await save('saver-0')) === 503);
      await until(() => hasLine('fatal', 'the disk fails to read or write'));
      expect(await service.health()).toBe(503);
      expect(service.logLines().filter(({ msg }) => msg.includes(cannotWrite))).toHaveLength(1);
      service.process.kill('SIGKILL');
      await service.process.exited;
      // The WAL has what the file lacks.
      expect(history.faultsOf(production.databasePath)).toEqual([]);
    },
    60_000,
  );
});

describe('A1 a history of saves', () => {
  test('A1 has every acknowledged save while commands import, erase, check and back up the same file', async () => {
    const figures = await runHistory({ seconds: 4, savers: 16, rows: 300, savesOfAUser: 5 });
    expect(figures.faults).toEqual([]);
    for (const count of [figures.saves, figures.restarts, figures.imports, figures.erasures, figures.backups]) {
      expect(count).toBeGreaterThan(0);
    }
  }, 60_000);
});

/** Saves as several users until `count` saves are acknowledged. */
async function saveMany(service: Production, history: ReturnType<typeof createSaveHistory>, count: number) {
  const savers = Array.from({ length: 16 }, async (_, index) => {
    for (let value = 1; history.acknowledged.length < count; value += 1) {
      const response = await service.call('POST', ltc, { as: `saver-${index}`, body: { careCosts: value } });
      expect(response.status).toBe(200);
      history.note(`saver-${index}`, response);
    }
  });
  await Promise.all(savers);
}

const keepLog = 'keep the -wal file with the database file';

describe('F4 a clean stop', () => {
  test('F4 leaves every acknowledged save in the database file, and removes the WAL', async () => {
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

  test('F4 leaves every acknowledged save in the database file while another instance has it open', async () => {
    const production = await createProduction();
    const [service, other] = await Promise.all([production.start(), production.start()]);
    const history = createSaveHistory();
    await saveMany(service, history, 200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(service.output()).not.toContain(keepLog);
    const copy = join(temporaryFolder(), 'copy.db');
    copyFileSync(production.databasePath, copy);
    expect(history.faultsOf(copy)).toEqual([]);
    const response = await other.call('POST', ltc, { as: 'saver-0', body: { careCosts: 77 } });
    expect(response.status).toBe(200);
    history.note('saver-0', response);
    expect(await other.health()).toBe(200);
    // The killed instance left its WAL.
    other.process.kill('SIGKILL');
    await other.process.exited;
    expect(history.faultsOf(production.databasePath)).toEqual([]);
  });

  test('F4 includes a command, which leaves its rows in the database file', async () => {
    const { planning, databasePath } = await createProduction();
    expect(await planning('seed')).toMatchObject({ exitCode: 0 });
    expect(existsSync(`${databasePath}-wal`)).toBeFalse();
  });

  test('F4 warns that the WAL is part of the database while another process reads, also in a command', async () => {
    const production = await createProduction();
    const service = await production.start();
    const reader = await startReader(production.databasePath);
    const history = createSaveHistory();
    await saveMany(service, history, 20);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const database = production.databasePath;
    expect(service.logLines()).toContainEqual(
      expect.objectContaining({ level: 'warn', code: 'SQLITE_BUSY', database, msg: expect.stringContaining(keepLog) }),
    );
    const copy = join(temporaryFolder(), 'copy.db');
    copyFileSync(production.databasePath, copy);
    // A checkpoint stops where the oldest reader began.
    expect(history.faultsOf(copy)).not.toEqual([]);
    expect(await production.planning('seed')).toMatchObject({ exitCode: 0, stderr: expect.stringContaining(keepLog) });
    await reader.end();
    expect(history.faultsOf(production.databasePath)).toEqual([]);
    expect(await production.planning('seed')).toMatchObject({
      exitCode: 0,
      stderr: expect.not.stringContaining(keepLog),
    });
    copyFileSync(production.databasePath, copy);
    expect(history.faultsOf(copy)).toEqual([]);
  }, 30_000);

  test('F4 loses nothing when the process is killed during checkpoints', async () => {
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

/** Requests the liveness probe every 10 ms from another process, and returns how long each response took. */
async function probeLive({ address }: Production, seconds: number): Promise<number[]> {
  const program = `const [, url, endsAt] = process.argv, times = [];
    while (Date.now() < Number(endsAt)) {
      const startedAtMs = performance.now();
      await (await fetch(url)).text();
      times.push(performance.now() - startedAtMs);
      await Bun.sleep(10);
    }
    console.log(JSON.stringify(times));`;
  const args = ['-e', program, `${address}/health/live`, String(Date.now() + seconds * 1000)];
  const child = Bun.spawn([process.execPath, ...args], { stdout: 'pipe' });
  return v.parse(v.array(v.number()), await new Response(child.stdout).json());
}

/** Saves as 128 users on a disk whose syncs take `delayMs` longer, until a checkpoint has synced the file. */
async function saveOnSlowDisk(delayMs: number, { seconds, timeoutMs }: { seconds: number; timeoutMs: number }) {
  const settings = { RATE_LIMIT_PER_MINUTE: '0', DATABASE_TIMEOUT_MS: String(timeoutMs) };
  const production = await createProduction(settings);
  const trace = join(temporaryFolder(), 'trace');
  const inject = `inject=fdatasync,fsync:delay_enter=${delayMs * 1000}`;
  const strace = ['strace', '-f', '-qq', '-y', '--seccomp-bpf', '-e', 'trace=fdatasync,fsync', '-e', inject];
  const service = await production.start({ under: [...strace, '-o', trace] });
  const readTrace = () => readFileSync(trace, 'utf8');
  const syncsOfStart = readTrace().length;
  const syncsUntilNow = () => readTrace().slice(syncsOfStart);
  const endsAtMs = performance.now() + seconds * 1000;
  const hasEnded = () => performance.now() >= endsAtMs && syncsUntilNow().includes('planning.db>');
  const saveMs: number[] = [];
  const failures: string[] = [];
  const title = 'A title that is long, so that saves fill the log. '.repeat(2);
  const savers = Array.from({ length: 128 }, async (_, index) => {
    const headers = { authorization: `Bearer ${await productionToken(`saver-${index}`)}` };
    for (let value = 1; !hasEnded(); value += 1) {
      const customSelections = Array.from({ length: 30 }, (_, item) => ({ title: `${title}${value} ${item}` }));
      const startedAtMs = performance.now();
      const path = '/v2/private/deepDives/lifeInsurance';
      const { status, text } = await service.call('POST', path, { headers, body: { customSelections } });
      saveMs.push(performance.now() - startedAtMs);
      if (status !== 200) failures.push(`${status} ${text}`);
    }
  });
  const [liveMs] = await Promise.all([probeLive(service, seconds), ...savers]);
  return { saveMs, liveMs, failures, syncs: syncsUntilNow() };
}

function percentile(times: readonly number[], share: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * share)] ?? Number.POSITIVE_INFINITY;
}

describe('F9 a slow disk', () => {
  test.skipIf(!hasStrace)(
    'F9 delays only saves, and fails none, when each sync takes 300 ms and 128 users save',
    async () => {
      // The baseline of the machine without the delay.
      const fast = isLong ? await saveOnSlowDisk(0, { seconds: 30, timeoutMs: 20_000 }) : undefined;
      const timeoutMs = fast === undefined ? 10_000 : 2000 + Math.ceil(Math.max(...fast.saveMs));
      const slow = await saveOnSlowDisk(300, { seconds: amount({ long: 30, short: 4 }), timeoutMs });
      expect(slow.failures).toEqual([]);
      // Each save waits for a sync, and some for a checkpoint.
      expect(percentile(slow.saveMs, 0.5)).toBeGreaterThan(250);
      // The start has already synced the folder, which would lengthen the first checkpoint.
      expect(slow.syncs).not.toMatch(/fsync\(\d+<[^>]+data>/);
      // A thread that waits for the disk would need 300 ms.
      if (fast === undefined) expect(percentile(slow.liveMs, 0.5)).toBeLessThan(200);
      else expect(percentile(slow.liveMs, 0.99)).toBeLessThan(Math.max(50, percentile(fast.liveMs, 0.99)));
    },
    120_000,
  );
});

/** Changes to the database files of a running service, with the code and the message of the log. */
const fileFaults = [
  {
    what: 'the file is removed',
    harm: (path: string) => rmSync(path),
    code: 'FILE_REMOVED',
    words: 'the database file was removed or moved',
  },
  {
    what: 'another file replaces it',
    harm: (path: string) => {
      copyFileSync(path, `${path}.copy`);
      renameSync(`${path}.copy`, path);
    },
    code: 'FILE_REPLACED',
    words: 'the database file was replaced by another file',
  },
  {
    what: 'the WAL is removed',
    harm: (path: string) => rmSync(`${path}-wal`),
    code: 'WAL_REMOVED',
    words: 'the write-ahead log (-wal) was removed, moved or replaced',
  },
  {
    what: 'the WAL is truncated',
    harm: (path: string) => truncateSync(`${path}-wal`, 0),
    code: 'WAL_TRUNCATED',
    words: 'the write-ahead log (-wal) was truncated or overwritten',
  },
  {
    what: 'the file is truncated',
    harm: (path: string) => truncateSync(path, 8192),
    code: 'FILE_TRUNCATED',
    words: 'the database file was truncated',
  },
  {
    what: 'a backup is copied over the file',
    harm: (path: string) => copyFileSync(`${path}.backup`, path),
    code: 'FILE_OVERWRITTEN',
    words: 'another program wrote to the database file',
  },
  {
    what: 'the file is moved',
    harm: (path: string) => renameSync(path, `${path}.moved`),
    code: 'FILE_REMOVED',
    words: 'the database file was removed or moved',
  },
  {
    what: 'the WAL is moved',
    harm: (path: string) => renameSync(`${path}-wal`, `${path}-wal.moved`),
    code: 'WAL_REMOVED',
    words: 'the write-ahead log (-wal) was removed, moved or replaced',
  },
  {
    what: 'a part of the WAL is cut off',
    harm: (path: string) => truncateSync(`${path}-wal`, 5000),
    code: 'WAL_TRUNCATED',
    words: 'the write-ahead log (-wal) was truncated or overwritten',
  },
  {
    what: 'the index of the WAL is removed',
    harm: (path: string) => rmSync(`${path}-shm`),
    code: 'WAL_INDEX_REMOVED',
    words: 'the index of the write-ahead log (-shm) was removed or replaced',
  },
] as const;

/** Checks that saves and the readiness probe return 503, with one fatal line, and that the liveness probe succeeds. */
async function expectLost(service: Production, words: string): Promise<void> {
  for (const careCosts of [2, 3]) {
    const response = await service.call('POST', ltc, { as: 'ada', body: { careCosts } });
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
  }
  const ready = await service.call('GET', '/health/ready');
  expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining(words) } });
  expect(await service.health('live')).toBe(200);
  const fatal = service.logLines().filter(({ level }) => level === 'fatal');
  expect(fatal.map(({ msg }) => msg.replace(/restarted\. .+\.$/, 'restarted.'))).toEqual([
    `${words}: no save is acknowledged until the service is restarted.`,
  ]);
}

describe('F3 a running service', () => {
  test.each(cases(fileFaults, 6))(
    'F3 acknowledges no save and is not ready after $what',
    async ({ harm, words }) => {
      const production = await createProduction();
      copyFileSync(production.databasePath, `${production.databasePath}.backup`);
      const service = await production.start();
      expect((await service.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } })).status).toBe(200);
      harm(production.databasePath);
      await expectLost(service, words);
      expect(await service.call('GET', '/v2/private/user', { as: 'ada' })).toMatchObject({ status: 200 });
      service.process.kill('SIGTERM');
      expect(await service.process.exited).toBe(0);
      // The service created no other file in its place.
      expect(existsSync(production.databasePath)).toBe(!words.includes('removed or moved'));
    },
    30_000,
  );

  test('F3 detects a removed file within seconds when nothing is written', async () => {
    const production = await createProduction();
    const service = await production.start();
    rmSync(production.databasePath);
    await until(() => service.logLines().some(({ level }) => level === 'fatal'));
    await expectLost(service, 'the database file was removed or moved');
  });

  test.each(fileFaults)('F3 reports $code when $what', async ({ harm, code }) => {
    const { path, db, losses } = await openTemporary();
    copyFileSync(path, `${path}.backup`);
    await fill(db, 5);
    harm(path);
    const failure = await db.$client.execute("INSERT INTO ballast VALUES ('lost')").catch((error: unknown) => error);
    expect(failure).toMatchObject({ code, isUnavailable: true });
    expect(losses).toEqual([code]);
    db.$client.close();
  });

  test('F3 a close after a loss changes no file, even when another WAL has the name', async () => {
    const { path, db } = await openTemporary();
    await fill(db, 5);
    renameSync(`${path}-wal`, `${path}-wal.moved`);
    writeFileSync(`${path}-wal`, 'the log of another process');
    const files = [path, `${path}-wal`, `${path}-wal.moved`];
    const before = files.map((file) => readFileSync(file, 'base64'));
    expect(await closeDatabase(db)).toBe('WAL_REMOVED');
    expect(files.map((file) => readFileSync(file, 'base64'))).toEqual(before);
  });

  test('F3 accepts a checkpoint, an erasure, a VACUUM and a backup by other programs', async () => {
    const { path, db, losses } = await openTemporary();
    const run = (...sql: string[]) => expect(Bun.spawnSync(['sqlite3', path, ...sql]).exitCode).toBe(0);
    await fill(db, 50);
    run('PRAGMA wal_checkpoint(TRUNCATE)');
    await fill(db, 50);
    run('DELETE FROM ballast', 'VACUUM', 'PRAGMA wal_checkpoint(TRUNCATE)');
    await fill(db, 1);
    run(`VACUUM INTO '${path}.backup'`);
    run('PRAGMA wal_checkpoint(PASSIVE)', 'INSERT INTO ballast VALUES (1)');
    await fill(db, 1);
    await db.$client.checkpoint?.();
    await fill(db, 1);
    expect(losses).toEqual([]);
    await closeDatabase(db);
    expect(sizeOf(`${path}-wal`)).toBe(0);
  });
});

/** Inverts the first page of a table, so that SQLite does not recognise its type. */
function corrupt(path: string, table: string): void {
  const file = new SqliteDatabase(path, { readonly: true });
  const root = file
    .query<{ rootpage: number }, [string]>('SELECT rootpage FROM sqlite_schema WHERE name = ?')
    .get(table)?.rootpage;
  file.close();
  if (root === undefined) throw new Error(`There is no table ${table}`);
  const bytes = readFileSync(path);
  for (let at = (root - 1) * 4096; at < root * 4096; at += 1) bytes.writeUInt8(bytes.readUInt8(at) ^ 0xff, at);
  writeFileSync(path, bytes);
}

const tables = (() => {
  const file = new SqliteDatabase(':memory:');
  for (const { sql } of readMigrationFiles({ migrationsFolder })) for (const statement of sql) file.run(statement);
  const rows = file.query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  file.close();
  return rows.map(({ name }) => name).filter((name) => !name.startsWith('sqlite_'));
})();

describe('F6 a corrupt page', () => {
  test('F6 makes the service not ready, with one fatal line, when it is in the users table; doctor names it', async () => {
    const production = await createProduction();
    const before = await production.start();
    expect((await before.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } })).status).toBe(200);
    before.process.kill('SIGTERM');
    await before.process.exited;
    corrupt(production.databasePath, 'users');
    const service = await production.start();
    await expectLost(service, 'the database file is corrupt');
    expect(await service.call('GET', '/v2/private/user', { as: 'ada' })).toMatchObject({ status: 503 });
    // Reads of other tables continue.
    expect(await service.call('GET', '/v2/private/cemetery/all', { as: 'ada' })).toMatchObject({ status: 200 });
    const { exitCode, stdout } = await production.planning('doctor', '--deep');
    expect(exitCode).toBe(1);
    expect(stdout).toMatch(/failed +pages .*corrupt/);
  }, 30_000);

  test.each(tables)('F6 stops every later write, while reads of other tables continue: %s', async (table) => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path);
    corrupt(path, table);
    const losses: string[] = [];
    const settings = { path, timeoutMs: 2000, onLoss: ({ code }: { code: string }) => losses.push(code) };
    const client = toDatabase(await openFileClient(settings)).$client;
    const failureOf = (sql: string) => client.execute(sql).catch((error: unknown) => error);
    expect(await failureOf(`SELECT * FROM ${table}`)).toMatchObject({ code: 'SQLITE_CORRUPT', isUnavailable: true });
    expect(await failureOf("DELETE FROM users WHERE id = ''")).toMatchObject({ code: 'SQLITE_CORRUPT' });
    expect(losses).toEqual(['SQLITE_CORRUPT']);
    const other = table === 'leases' ? 'users' : 'leases';
    expect(await failureOf(`SELECT count(*) FROM ${other}`)).toMatchObject({ rows: [expect.anything()] });
    client.close();
  });
});

describe('doctor', () => {
  test('F3 names a process with a removed or replaced file open, and one with the right file', async () => {
    const production = await createProduction();
    const service = await production.start();
    const doctor = async () => {
      const { stdout, exitCode } = await production.planning('doctor', '--json');
      const { findings } = v.parse(Findings, JSON.parse(stdout));
      return { exitCode, finding: findings.find(({ check }) => check === 'open file') };
    };
    const { pid } = service.process;
    expect((await doctor()).finding).toMatchObject({ result: 'ok', detail: `process ${pid} has it open` });
    copyFileSync(production.databasePath, `${production.databasePath}.backup`);
    rmSync(production.databasePath);
    const stale = {
      result: 'failed',
      detail: expect.stringContaining(`process ${pid} has a file open that was removed`),
    };
    expect(await doctor()).toMatchObject({ exitCode: 1, finding: stale });
    renameSync(`${production.databasePath}.backup`, production.databasePath);
    expect(await doctor()).toMatchObject({ exitCode: 1, finding: stale });
  }, 30_000);

  test('F6 checks every page of a sound database with --deep, and shows the SQLite version and the size of the WAL', async () => {
    const production = await createProduction();
    const { stdout } = await production.planning('doctor', '--deep');
    expect(stdout).toMatch(/ok +pages +no errors in \d+ tables/);
    expect(stdout).toMatch(/ok +sqlite +3\.\d+\.\d+ in the driver/);
    expect(stdout).toMatch(/ok +log +0\.0 MB/);
  });
});
