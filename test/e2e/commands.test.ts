import { SQLiteError, Database as SqliteFile } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import packageJson from '../../package.json' with { type: 'json' };
import { examineCopy, UnusableFileError, withExclusiveLock } from '../../src/db/backup';
import { closeDatabase, openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { nextTurn } from '../../src/shared/async';
import { createTestApp } from '../support/app';
import { programOf } from '../support/artifacts';
import { createCommandLine, runInProcess } from '../support/command';
import { earlierMigrations, fillEvents, keys } from '../support/database';
import { failToStart, startService } from '../support/processes';
import { amount, cases, runToEnd, temporaryFolder, until } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const cli = await programOf('src/cli/main');
const [oldKey, newKey] = [keys.right, keys.wrong];
const person = (id: string) => `INSERT INTO users (id, version, created_at, updated_at) VALUES ('${id}', 1, 0, 0)`;
const ballast = (bytes: number) => ['CREATE TABLE ballast (bytes)', `INSERT INTO ballast VALUES (zeroblob(${bytes}))`];

/** A command line with a database that is encrypted if a key is set. */
async function setUp(environment: Record<string, string> = {}) {
  const line = await createCommandLine(environment, { isProcess: true });
  const database = join(line.cwd, 'data/planning.db');
  const env = { PATH: process.env.PATH, NODE_ENV: 'development', ...environment };
  return {
    ...line,
    database,
    backup: join(line.cwd, 'backup.db'),
    dataNames: () => readdirSync(dirname(database)).sort(),
    /** Runs a command in this process. */
    run: (...args: string[]) => runInProcess({ env: { ...env, DATABASE_URL: line.databaseUrl }, cwd: line.cwd }, args),
    /** Starts a command with other settings as a process. */
    spawn: (settings: Record<string, string>, args: string[], stdin?: Blob) =>
      Bun.spawn([process.execPath, cli, ...args], {
        cwd: line.cwd,
        env: { ...env, ...settings },
        stdin: stdin ?? 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
      }),
    /** Runs a command that cannot write more than about a megabyte to a file, as on a full disk. */
    onFullDisk: (...args: string[]) =>
      Bun.spawnSync(['sh', '-c', `trap '' XFSZ; ulimit -f 2000; exec "$@"`, 'sh', process.execPath, cli, ...args], {
        cwd: line.cwd,
        env,
      }),
  };
}

function change(path: string, ...statements: string[]): void {
  const db = new SqliteFile(path);
  for (const statement of statements) db.run(statement);
  db.close(true);
}

/** Takes the write lock in the first pause between two transactions, which the waits of SQLite could miss. */
async function lock(db: SqliteFile): Promise<void> {
  db.run('PRAGMA busy_timeout = 0');
  while (!db.inTransaction) {
    try {
      db.run('BEGIN IMMEDIATE');
    } catch (error) {
      if (!(error instanceof SQLiteError && error.code === 'SQLITE_BUSY')) throw error;
      // A transaction of this process may need it to end.
      await nextTurn();
    }
  }
}

function usersIn(path: string): string[] {
  const db = new SqliteFile(path);
  const users = db.query<{ id: string }, []>('SELECT id FROM users').all();
  db.close();
  return users.map(({ id }) => id).sort();
}

/** The key that opens a database: `old`, `new`, or undefined. */
async function openedBy(path: string): Promise<string | undefined> {
  for (const [name, key] of Object.entries({ old: oldKey, new: newKey })) {
    try {
      await examineCopy(path, key);
      return name;
    } catch (error) {
      if (!(error instanceof UnusableFileError)) throw error;
    }
  }
  return undefined;
}

/** The peak memory of a process until its exit, in bytes. Its resource usage would include the memory of this process. */
async function watchMemory(command: Bun.Subprocess): Promise<number> {
  let peak = 0;
  for (; command.exitCode === null; await Bun.sleep(5)) {
    const status = existsSync('/proc') ? await Bun.file(`/proc/${command.pid}/status`).text() : '';
    peak = Math.max(peak, 1024 * Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0));
  }
  return peak;
}

/** Sends a signal to a command once the condition is true, and waits for its exit. */
async function killWhen(
  command: Bun.Subprocess,
  isDue: () => boolean | Promise<boolean>,
  { signal = 'SIGKILL', delayMs = 0 }: { signal?: NodeJS.Signals; delayMs?: number } = {},
): Promise<void> {
  while (command.exitCode === null && !(await isDue())) await Bun.sleep(1);
  await Bun.sleep(delayMs);
  command.kill(signal);
  await command.exited;
}

test.each([
  ['a command', 'src/cli/main.ts', ['doctor'], 'src/cli/doctor.ts'],
  ['a start', 'src/main.ts', [], 'src/start/databases.ts'],
])('%s that ends while a promise is pending exits with 1', async (_, program, args, replaced) => {
  const pending = `import { Command } from '${join(root, 'node_modules/commander')}';
    const never = () => new Promise(() => undefined);
    export const doctorCommand = () => new Command('doctor').action(never);
    export { never as openPreparedDatabase, never as openConfiguredReplica, never as watchDatabase };`;
  const preload = join(temporaryFolder(), 'preload.ts');
  await Bun.write(
    preload,
    `Bun.plugin({ name: 'pending', setup: ({ onLoad }) => onLoad(
      { filter: new RegExp(${JSON.stringify(`/${replaced.replaceAll('.', '.')}$`)}) },
      () => ({ loader: 'js', contents: ${JSON.stringify(pending)} })) });`,
  );
  const command = [process.execPath, '--preload', preload, join(root, program), ...args];
  const env = { PATH: process.env.PATH, PORT: '0' };
  const child = Bun.spawn(command, { cwd: temporaryFolder(), env, stdio: ['ignore', 'pipe', 'pipe'] });
  expect(await runToEnd(child)).toMatchObject({ exitCode: 1, stderr: '' });
});

describe('a planning process', () => {
  test('runs through the package script', () => {
    const command = [process.execPath, 'run', '--silent', 'planning', '--version'];
    const { exitCode, stdout } = Bun.spawnSync(command, { cwd: root });
    expect([exitCode, stdout.toString()]).toEqual([0, expect.stringContaining(`${packageJson.version} (`)]);
  });

  test('exits with 1 for rejected settings, without a stack trace or standard output, and for a failed check', async () => {
    const { cwd, spawn } = await setUp();
    const settings = { DATABASE_TIMEOUT_MS: 'sesame', SEED_DEMO: 'sesame' };
    const [refused, unmigrated] = await Promise.all([
      runToEnd(spawn(settings, ['migrate'])),
      runToEnd(spawn({ DATABASE_URL: `file:${join(cwd, 'none.db')}` }, ['doctor'])),
    ]);
    const message =
      /^These settings cannot be used:\n {2}DATABASE_TIMEOUT_MS .*\n {2}SEED_DEMO .*\nThe mode is development\. .*\n$/;
    expect(refused).toEqual({ exitCode: 1, stdout: '', stderr: expect.stringMatching(message) });
    expect(refused.stderr).not.toMatch(/^\s+at |sesame/m);
    expect(unmigrated).toMatchObject({ exitCode: 1, stdout: expect.stringContaining('There is no database') });
  });

  test.skipIf(process.getuid?.() !== 0)('names a user of the system without a name by its number', () => {
    const script = `const { currentOperator } = await import(${JSON.stringify(join(root, 'src/cli/context.ts'))});
      process.setuid(54321);
      process.stdout.write(currentOperator().actorId);`;
    expect(Bun.spawnSync([process.execPath, '-e', script]).stdout.toString()).toBe('uid 54321');
  });

  /** A command line with a history of the given number of events. */
  async function withHistory(rows: number) {
    const line = await setUp();
    const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 5_000 });
    await fillEvents(db, rows, 'value');
    await closeDatabase(db);
    return line;
  }

  test('ends quietly when the reader of its output ends', async () => {
    const cut = (await withHistory(4_000)).start('audit', 'ada', '--json');
    const reader = cut.stdout.getReader();
    await reader.read();
    await reader.cancel();
    expect([await cut.exited, await new Response(cut.stderr).text()]).toEqual([1, '']);
  });

  test.each(cases([600_000], 0))('streams %i events to a slow reader with less than 400 MB', async (rows) => {
    const slow = (await withHistory(rows)).start('audit', 'ada', '--json');
    await Bun.sleep(300);
    const peak = watchMemory(slow);
    const { events } = JSON.parse(await new Response(slow.stdout).text());
    expect([await slow.exited, events.length]).toEqual([0, rows / 2 + 1]);
    expect(await peak).toBeLessThan(400_000_000);
  });
});

describe('planning import', () => {
  const staff = ['id,role,firstName,lastName,managerId', 'boss,salesManager,A,B,'].join('\n');
  const header = 'externalId,staffId,kind,amount,occurredAt';
  const activity = (index: number) => `a${index},boss,quote,${index % 100}.25,2026-03-${10 + (index % 20)}`;

  const rows = 6_000;
  const imported = ['import', 'activities', 'many.csv'] as const;

  /** A command line with the file of the import, and the number of its stored rows. */
  async function withActivities() {
    const line = await setUp();
    await line.run('import', 'staff', await line.write('staff.csv', staff));
    await line.write('many.csv', [header, ...Array.from({ length: rows }, (_, index) => activity(index))].join('\n'));
    const file = new SqliteFile(line.database);
    file.run('PRAGMA busy_timeout = 10000');
    const query = file.query<{ count: number }, []>('SELECT count(*) AS count FROM activities');
    const count = () => query.get()?.count ?? 0;
    return {
      ...line,
      file,
      count,
      /** Starts the import, and holds the write lock once a part of the rows is stored. */
      async startHeld() {
        const importing = line.start(...imported);
        while (importing.exitCode === null && count() === 0) await Bun.sleep(1);
        await lock(file);
        return importing;
      },
    };
  }

  test('keeps the stored rows on SIGINT, and ignores SIGUSR1 and SIGUSR2, while it waits for the lock', async () => {
    const { startHeld, file, count } = await withActivities();
    const importing = await startHeld();
    for (const signal of ['SIGUSR1', 'SIGUSR2', 'SIGINT'] as const) importing.kill(signal);
    file.run('ROLLBACK');
    expect(await importing.exited).toBe(130);
    expect(await new Response(importing.stderr).text()).toContain('run the command again to store the rest');
    expect(count()).toBeWithin(1, rows);
    file.close();
  });

  test('lets saves through, and the next run after SIGKILL stores the rest', async () => {
    const { run, startHeld, databaseUrl, file, count } = await withActivities();
    const db = await openDatabase({ url: databaseUrl, timeoutMs: 10_000 });
    const testApp = await createTestApp({ db });
    const statuses: number[] = [];
    let isHeld = false;
    const saveWhileImporting = async () => {
      while (!isHeld) {
        const body = { careCosts: statuses.length };
        statuses.push((await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'saver', body })).status);
      }
    };
    const saving = saveWhileImporting();
    const importing = await startHeld();
    isHeld = true;
    importing.kill('SIGKILL');
    await importing.exited;
    file.run('ROLLBACK');
    await saving;
    const stored = count();
    expect(stored).toBeWithin(1, rows);
    expect(new Set(statuses)).toEqual(new Set([200]));
    const again = await run(...imported, '--json');
    expect(JSON.parse(again.stdout)).toEqual({ rows, added: rows - stored, changed: 0, unchanged: stored });
    const { body } = await testApp.call('GET', '/v2/private/user', { as: 'saver' });
    expect(body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: statuses.length - 1 } } } });
    file.close();
    await closeDatabase(db);
  });

  test.each(cases([1_000_000], 0))('uses less than 300 MB for %i rows', async (rows) => {
    const { run, write, start, cwd } = await setUp();
    await run('import', 'staff', await write('staff.csv', staff));
    const writer = Bun.file(join(cwd, 'many.csv')).writer();
    writer.write(`${header}\n`);
    for (let index = 0; index < rows; index += 1) writer.write(`${activity(index)}\n`);
    await writer.end();
    const importing = start('import', 'activities', 'many.csv');
    const peak = watchMemory(importing);
    expect(await importing.exited).toBe(0);
    expect(await peak).toBeLessThan(300_000_000);
  });
});

describe('planning backup', () => {
  test('leaves no file when the disk is full or a signal ends it, and a partial one after SIGKILL', async () => {
    const line = await setUp();
    change(line.database, ...ballast(40_000_000));
    const names = (start = '') => readdirSync(line.cwd).filter((name) => name !== 'data' && name.startsWith(start));
    const limited = line.onFullDisk('backup', 'full.db');
    expect(limited.exitCode).toBe(1);
    expect(limited.stderr.toString()).toMatch(/^No backup was written: .* \(SQLITE_\w+\)\.\n$/);
    expect(names()).toEqual([]);
    const interrupt = async (signal: NodeJS.Signals) => {
      const command = line.start('backup', `${signal}.db`);
      await killWhen(command, () => names(signal).length > 0, { signal });
      return runToEnd(command);
    };
    const signals = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGKILL'] as const;
    const ended = await Promise.all(signals.map(interrupt));
    const stderr = 'Interrupted; nothing was changed.\n';
    expect(ended.slice(0, 3)).toEqual([143, 129, 131].map((exitCode) => ({ exitCode, stdout: '', stderr })));
    // The copy may have had its journal.
    const left = names().map((name) => name.replace(/[\w-]+\.partial(-journal)?$/, '….partial'));
    expect([...new Set(left)]).toEqual(['SIGKILL.db.….partial']);
  });
});

describe('planning migrate', () => {
  test('changes nothing when its backup fails on a full disk', async () => {
    const line = await setUp();
    rmSync(line.database);
    const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 5_000 });
    await migrateDatabase(db, await earlierMigrations(11));
    await closeDatabase(db);
    change(line.database, ...ballast(4_000_000));
    const { size } = statSync(line.database);
    const limited = line.onFullDisk('migrate');
    expect([limited.exitCode, limited.stderr.toString()]).toEqual([1, expect.stringContaining('nothing was migrated')]);
    expect(line.dataNames().filter((name) => name.includes('before'))).toEqual([]);
    expect((await examineCopy(line.database, undefined)).schema).toStartWith('0010');
    expect(statSync(line.database).size).toBe(size);
  });
});

describe('planning restore', () => {
  test('fails like rekey while a service runs, and replaces the database and WAL of a killed one', async () => {
    const line = await setUp();
    const service = await startService({ cwd: line.cwd });
    const headers = { authorization: `Bearer ${await service.token()}`, 'content-type': 'application/json' };
    const save = async (careCosts: number) => {
      const request = { method: 'POST', headers, body: JSON.stringify({ careCosts }) };
      expect((await fetch(`${service.address}/v2/private/ltc/lifetimeCare`, request)).status).toBe(200);
    };
    await save(1111);
    change(line.database, `VACUUM INTO '${line.backup}'`);
    const names = line.dataNames();
    const inUse = `another process has ${line.database} open. Stop the service first.\n`;
    const restored = await line.planning('restore', 'backup.db', '--yes');
    expect(restored).toEqual({ exitCode: 1, stdout: '', stderr: `Nothing was restored: ${inUse}` });
    const rekeyed = await runToEnd(line.spawn({ NEW_DATABASE_ENCRYPTION_KEY: newKey }, ['rekey', '--yes']));
    expect(rekeyed).toEqual({ exitCode: 1, stdout: '', stderr: `Nothing was changed: ${inUse}` });
    expect(line.dataNames()).toEqual(names);
    await save(2222);
    service.process.kill('SIGKILL');
    await service.process.exited;
    expect(statSync(`${line.database}-wal`).size).toBeGreaterThan(0);
    const { stdout } = await line.planning('restore', 'backup.db', '--yes', '--json');
    const { kept } = JSON.parse(stdout);
    expect(line.dataNames()).toContain(basename(kept));
    expect(existsSync(`${line.database}-wal`)).toBeFalse();
    const costsIn = (path: string) => {
      const db = new SqliteFile(path);
      const found = db.query("SELECT ltc_lifetime_care ->> 'careCosts' FROM users").values();
      db.close();
      return found;
    };
    // The save before the kill was only in the WAL.
    expect([costsIn(line.database), costsIn(kept)]).toEqual([[[1111]], [[2222]]]);
  });

  test('leaves the complete old or new database when it is killed at any step', async () => {
    const line = await setUp();
    copyFileSync(line.database, line.backup);
    change(line.backup, person('new'));
    change(line.database, person('old'), 'CREATE TABLE ballast (bytes)', 'PRAGMA journal_mode = WAL');
    for (const step of ['.partial', '.before-restore-']) {
      const command = line.start('restore', 'backup.db', '--yes');
      await killWhen(command, () => line.dataNames().some((name) => name.includes(step)));
      expect([['old'], ['new']]).toContainEqual(usersIn(line.database));
      expect(existsSync(`${line.database}-journal`)).toBeFalse();
    }
    expect(await line.run('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    expect(usersIn(line.database)).toEqual(['new']);
  });

  test('prevents writes by a process that opened the old file before it', async () => {
    const line = await setUp();
    copyFileSync(line.database, line.backup);
    change(line.backup, person('new'));
    // In WAL mode restore detects every open connection; in rollback mode only active reads and writes.
    change(line.database, person('old'), 'PRAGMA journal_mode = DELETE');
    const script = `
      import Connection from 'libsql';
      const connection = new Connection(${JSON.stringify(line.database)}, { timeout: 10_000 });
      connection.prepare('SELECT count(*) FROM users').all();
      process.stdout.write('open\\n');
      await Bun.stdin.text();
      let outcome = 'wrote';
      try { connection.exec('PRAGMA journal_mode = WAL'); } catch (error) { outcome = error.code; }
      process.stdout.write(outcome + '\\n');`;
    const late = Bun.spawn([process.execPath, '-e', script], { cwd: root, stdin: 'pipe', stdout: 'pipe' });
    const output = late.stdout.pipeThrough(new TextDecoderStream()).getReader();
    expect((await output.read()).value).toBe('open\n');
    expect(await line.run('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    late.stdin.end();
    expect((await output.read()).value).toBe('SQLITE_READONLY_DBMOVED\n');
    await late.exited;
    expect(line.dataNames().filter((name) => /-(wal|shm|journal)$/.test(name))).toEqual([]);
    expect(usersIn(line.database)).toEqual(['new']);
  });
});

describe('planning rekey', () => {
  test('reads the new key from a terminal and then asks for confirmation there', async () => {
    const line = await setUp();
    let output = '';
    const command = Bun.spawn([process.execPath, cli, 'rekey', '--new-key-file', '-'], {
      cwd: line.cwd,
      env: { PATH: process.env.PATH },
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
    expect(await openedBy(line.database)).toBe('new');
  });

  test('leaves a database that opens with the old or the new key when it is killed at any point', async () => {
    const line = await setUp({ DATABASE_ENCRYPTION_KEY: oldKey });
    const isPartial = (name: string) => name.endsWith('.partial');
    /** Starts the command, which reads the other key from its standard input. */
    const rekey = async () => {
      const isOld = (await openedBy(line.database)) === 'old';
      const [from, to] = isOld ? [oldKey, newKey] : [newKey, oldKey];
      const args = ['rekey', '--new-key-file', '-', '--yes'];
      return line.spawn({ DATABASE_ENCRYPTION_KEY: from }, args, new Blob([to]));
    };
    let unfinished = 0;
    const runs = amount({ long: 200, short: 4 });
    for (let index = 0; index < runs; index += 1) {
      const delayMs = (30 * index) / runs;
      await killWhen(await rekey(), () => line.dataNames().some(isPartial), { delayMs });
      expect(await openedBy(line.database)).toBeOneOf(['old', 'new']);
      if (line.dataNames().some(isPartial)) unfinished += 1;
      // Only unfinished copies under temporary names may remain.
      for (const name of line.dataNames().filter((file) => file !== 'planning.db')) {
        expect(name).toMatch(/^planning\.db(\.[0-9a-f-]{36}\.partial)?(-journal)?$/);
        rmSync(join(dirname(line.database), name));
      }
    }
    expect(unfinished).toBeGreaterThan(0);
    const before = await openedBy(line.database);
    expect(await (await rekey()).exited).toBe(0);
    expect(await openedBy(line.database)).toBe(before === 'old' ? 'new' : 'old');
  });

  test('blocks other processes while it works, and a service with the old key fails to start afterwards', async () => {
    const line = await setUp({ DATABASE_ENCRYPTION_KEY: oldKey, DATABASE_TIMEOUT_MS: '100' });
    const copy = join(temporaryFolder(), 'copy.db');
    const { during, started } = await withExclusiveLock(line.database, oldKey, async (copyTo) => {
      await copyTo(copy, newKey);
      const environment = { DATABASE_ENCRYPTION_KEY: oldKey, DATABASE_TIMEOUT_MS: '10000' };
      const started = failToStart({ cwd: line.cwd, environment });
      const during = await line.planning('user', 'show', 'ada');
      // The start waits for the lock meanwhile.
      await Bun.sleep(1_000);
      renameSync(copy, line.database);
      return { during, started };
    });
    expect(during).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('SQLITE_BUSY') });
    expect(await started).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('cannot be opened') });
    expect(await openedBy(line.database)).toBe('new');
    expect(line.dataNames().filter((name) => name.startsWith('planning.db'))).toEqual(['planning.db']);
  });
});
