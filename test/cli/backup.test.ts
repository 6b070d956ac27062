import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { withExclusiveLock } from '../../src/db/backup';
import { knownSchemas } from '../../src/db/schema-check';
import { programOf } from '../support/artifacts';
import { createCommandLine, refusalOf } from '../support/command';
import { startService, startWorker } from '../support/processes';
import { temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const cli = await programOf('src/cli/main');

/** A command line with a database, and its paths. */
async function setUp(environment: Record<string, string> = {}) {
  const line = await createCommandLine(environment, { isProcess: true });
  const database = join(line.cwd, 'data/planning.db');
  return {
    ...line,
    database,
    backup: join(line.cwd, 'backup.db'),
    names: () => readdirSync(line.cwd).sort(),
    dataNames: () => readdirSync(join(line.cwd, 'data')).sort(),
    kept: () =>
      readdirSync(join(line.cwd, 'data'))
        .filter((name) => name.includes('.before-restore-'))
        .map((name) => join(line.cwd, 'data', name)),
  };
}

function change(path: string, ...statements: string[]): void {
  const db = new SqliteDatabase(path);
  for (const statement of statements) db.run(statement);
  db.close(true);
}

/** An answer in a printed row; the bare number could also be part of a time or an id. */
const stored = (careCosts: number) => `careCosts\\":${careCosts}`;
const person = (id: string) => `INSERT INTO users (id, version, created_at, updated_at) VALUES ('${id}', 1, 0, 0)`;

/** Every row of every table, and the schema. */
function contentOf(path: string): Record<string, unknown[]> {
  const db = new SqliteDatabase(path);
  const tables = db.query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  const content = Object.fromEntries(tables.map(({ name }) => [name, db.query(`SELECT * FROM "${name}"`).values()]));
  const schema = db.query('SELECT name, sql FROM sqlite_schema ORDER BY name').values();
  db.close();
  return { ...content, schema };
}

const usersIn = (path: string): string[] =>
  (contentOf(path).users ?? []).map((row) => String(Object.values(row ?? {})[0]));
const modeOf = (path: string) => statSync(path).mode & 0o777;
const refusal = (databaseUrl: string, ...args: string[]) => refusalOf({ DATABASE_URL: databaseUrl }, ...args);

describe('planning backup', () => {
  test('has all earlier commits and only whole transactions under write load, and restores to equal content', async () => {
    const line = await setUp();
    const service = await startService({ cwd: line.cwd });
    const token = await service.token();
    const save = async (careCosts: number) => {
      const response = await fetch(`${service.address}/v2/private/ltc/lifetimeCare`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ careCosts }),
      });
      return response.status;
    };
    const writers = ['w0', 'w1'].map((name) => startWorker(line.databaseUrl, 'pairs', name));
    await Promise.all(writers.map((writer) => writer.until(20)));
    expect(await save(1111)).toBe(200);

    const before = writers.map((writer) => writer.lines().length);
    const { exitCode, stdout, stderr } = await line.planning('backup', 'backup.db', '--json');
    const after = writers.map((writer) => writer.lines().length);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(await save(2222)).toBe(200);
    await Promise.all(writers.map((writer, index) => writer.until((after[index] ?? 0) + 5)));
    await Promise.all(writers.map((writer) => writer.stop()));

    const ids = usersIn(line.backup);
    const acknowledgedAtMost = usersIn(line.database);
    for (const [writer, least] of before.entries()) {
      const halves = (half: string) => ids.filter((id) => id.startsWith(`w${writer}-`) && id.endsWith(half)).length;
      const whole = halves('-a');
      expect(halves('-b')).toBe(whole);
      expect(whole).toBeGreaterThanOrEqual(least);
      // The writers continued during the backup, and later rows are not in it.
      expect(after[writer]).toBeGreaterThan(least);
      const numbers = ids
        .filter((id) => id.startsWith(`w${writer}-`) && id.endsWith('-a'))
        .map((id) => id.split('-')[1]);
      expect(numbers.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: whole }, (_, index) => index + 1));
    }
    expect(acknowledgedAtMost.length).toBeGreaterThan(ids.length);
    const content = contentOf(line.backup);
    expect(JSON.stringify(content.users)).toContain(stored(1111));
    expect(JSON.stringify(content.users)).not.toContain(stored(2222));
    expect(JSON.parse(stdout)).toEqual({
      file: line.backup,
      bytes: statSync(line.backup).size,
      persons: ids.length,
      schema: knownSchemas.at(-1)?.name,
      startedAt: expect.stringMatching(/^\d{4}-.*Z$/),
      tookMs: expect.any(Number),
    });
    expect(modeOf(line.backup)).toBe(0o600);
    expect(line.names()).toEqual(['backup.db', 'data']);

    const folder = temporaryFolder();
    const elsewhere = await createCommandLine(
      { DATABASE_URL: `file:${folder}/new/planning.db` },
      { isEmpty: true, isProcess: true },
    );
    expect(await elsewhere.planning('restore', line.backup)).toEqual({
      exitCode: 0,
      stdout: `${folder}/new/planning.db is restored: ${ids.length} persons, schema ${knownSchemas.at(-1)?.name}.\n`,
      stderr: '',
    });
    expect(contentOf(`${folder}/new/planning.db`)).toEqual(content);
    expect(modeOf(`${folder}/new/planning.db`)).toBe(0o600);
    expect(readdirSync(`${folder}/new`)).toEqual(['planning.db']);
  });

  test('does not wait for an open write transaction and excludes its rows', async () => {
    const line = await setUp();
    const writer = new SqliteDatabase(line.database);
    writer.run('PRAGMA journal_mode = WAL');
    writer.run(person('committed'));
    writer.run('BEGIN IMMEDIATE');
    writer.run(person('not-yet'));
    expect(await line.planning('backup', 'backup.db')).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(
        /^The backup is in \S+backup\.db: [\d.]+ kB, 1 person, schema \S+, as of .*Z; it took [\d.]+ s\.\n$/,
      ),
    });
    writer.run('COMMIT');
    writer.close();
    expect(usersIn(line.backup)).toEqual(['committed']);
    expect(usersIn(line.database).sort()).toEqual(['committed', 'not-yet']);
  });

  test('replaces a file only with --replace, and never a file of the database itself', async () => {
    const line = await setUp();
    await line.write('backup.db', 'something else');
    expect(await refusal(line.databaseUrl, 'backup', line.backup)).toBe(
      `${line.backup} exists already: name a new file, or use --replace.`,
    );
    expect(readFileSync(line.backup, 'utf8')).toBe('something else');

    symlinkSync(line.database, join(line.cwd, 'link.db'));
    symlinkSync(join(line.cwd, 'data'), join(line.cwd, 'folder'));
    linkSync(line.database, join(line.cwd, 'hard.db'));
    const before = readFileSync(line.database);
    const own = [
      'data/planning.db',
      'data/planning.db-wal',
      'link.db',
      'folder/planning.db',
      'folder/planning.db-shm',
      'hard.db',
    ];
    for (const file of own.map((name) => join(line.cwd, name))) {
      expect(await refusal(line.databaseUrl, 'backup', file, '--replace')).toBe(
        `${file} belongs to the database itself: name another file.`,
      );
    }
    await line.write('other.db-wal', 'of a database that is gone');
    mkdirSync(join(line.cwd, 'a-folder'));
    const others: [string, string][] = [
      ['nowhere/backup.db', `There is no folder ${line.cwd}/nowhere: create it first.`],
      ['backup.db/backup.db', `There is no folder ${line.backup}: create it first.`],
      ['a-folder', `${line.cwd}/a-folder is not a file: name another one.`],
      [
        'other.db',
        `${line.cwd}/other.db-wal exists, and would be read as part of the backup: move it away, or name another file.`,
      ],
    ];
    for (const [file, message] of others) {
      expect(await refusal(line.databaseUrl, 'backup', join(line.cwd, file), '--replace')).toBe(message);
    }
    expect(readFileSync(line.database)).toEqual(before);
    expect(line.dataNames()).toEqual(['planning.db']);

    expect(await line.planning('backup', 'backup.db', '--replace')).toMatchObject({ exitCode: 0 });
    // The database records the time of the backup after the backup.
    const content: Record<string, unknown[]> = { ...contentOf(line.database), completed_tasks: [] };
    expect(contentOf(line.backup)).toEqual(content);
    expect(modeOf(line.backup)).toBe(0o600);
    expect(line.names().filter((name) => name.endsWith('.partial'))).toEqual([]);
  });

  test('backs up and restores a newer schema that this build can read', async () => {
    const line = await setUp();
    change(
      line.database,
      `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('later', ${Date.now() * 2})`,
      person('ada'),
    );
    expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0 });
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    expect(usersIn(line.database)).toEqual(['ada']);
  });

  test('leaves no backup file when the disk is full or the command is interrupted or killed', async () => {
    const line = await setUp();
    change(line.database, 'CREATE TABLE ballast (bytes)', 'INSERT INTO ballast VALUES (randomblob(30000000))');
    // A file size limit acts like a full disk.
    const limited = Bun.spawnSync(
      ['sh', '-c', `trap '' XFSZ; ulimit -f 2000; exec "$@"`, 'sh', process.execPath, cli, 'backup', 'full.db'],
      { cwd: line.cwd, env: { PATH: process.env.PATH, NODE_ENV: 'development' } },
    );
    expect(limited.exitCode).toBe(1);
    expect(limited.stderr.toString()).toMatch(/^No backup was written: .* \(SQLITE_\w+\)\.\n$/);
    expect(line.names()).toEqual(['data']);

    const stopWhenBegun = async (signal: NodeJS.Signals) => {
      const command = line.start('backup', 'backup.db');
      while (!line.names().some((name) => name.endsWith('.partial')) && command.exitCode === null) await Bun.sleep(1);
      command.kill(signal);
      await command.exited;
      return { stderr: await new Response(command.stderr).text(), exitCode: command.exitCode };
    };
    expect(await stopWhenBegun('SIGINT')).toEqual({ exitCode: 130, stderr: 'Interrupted; nothing was changed.\n' });
    expect(line.names()).toEqual(['data']);
    await stopWhenBegun('SIGKILL');
    expect(line.names()).toEqual([expect.stringMatching(/^backup\.db\.[\w-]+\.partial$/), 'data']);
  });

  test('fails for a file that is not a database of this service', async () => {
    const foreign = join(temporaryFolder(), 'foreign.db');
    change(foreign, 'CREATE TABLE users (id)');
    const text = join(temporaryFolder(), 'text.db');
    writeFileSync(text, 'This is no database. '.repeat(100));
    const cases: [string, string | RegExp][] = [
      ['http://user:secret@127.0.0.1:1', /^http:\/\/127\.0\.0\.1:1 cannot be read \(\w+\)\.$/],
      [
        `file:${foreign}`,
        `No backup was written: the copy of ${foreign} is not a database of this service, or was never migrated.`,
      ],
      [`file:${text}`, /^No backup was written: .+text\.db cannot be read \(SQLITE_NOTADB\)\. It is encrypted, /],
      ['file:nowhere.db', /^There is no database at .+nowhere\.db\.$/],
    ];
    const folder = temporaryFolder();
    for (const [databaseUrl, message] of cases) {
      expect(await refusal(databaseUrl, 'backup', join(folder, 'backup.db'))).toMatch(message);
      expect(readdirSync(folder)).toEqual([]);
    }
  });
});

describe('planning restore', () => {
  test('fails while a service runs, and replaces the database and WAL of a killed one', async () => {
    const line = await setUp();
    const service = await startService({ cwd: line.cwd });
    const token = await service.token();
    const call = (method: string, path: string, body?: object) =>
      fetch(`${service.address}${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    const save = async (careCosts: number) =>
      (await call('POST', '/v2/private/ltc/lifetimeCare', { careCosts })).status;
    expect(await save(1111)).toBe(200);
    expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0 });
    const content = contentOf(line.backup);

    const names = line.dataNames();
    expect(await line.planning('restore', 'backup.db', '--yes')).toEqual({
      exitCode: 1,
      stdout: '',
      stderr: `Nothing was restored: another process has ${line.database} open. Stop the service first.\n`,
    });
    expect(line.dataNames()).toEqual(names);
    expect(await save(2222)).toBe(200);
    service.process.kill('SIGKILL');
    await service.process.exited;
    expect(statSync(`${line.database}-wal`).size).toBeGreaterThan(0);

    const unasked = await refusal(line.databaseUrl, 'restore', line.backup);
    expect(unasked).toBe('Nothing was restored: use --yes where there is no terminal.');
    const restored = await line.planning('restore', 'backup.db', '--yes', '--json');
    const [kept = ''] = line.kept();
    expect(JSON.parse(restored.stdout)).toEqual({
      database: line.database,
      persons: 1,
      schema: knownSchemas.at(-1)?.name,
      kept,
    });
    expect(existsSync(`${line.database}-wal`)).toBeFalse();
    expect(modeOf(line.database)).toBe(0o600);
    expect(contentOf(line.database)).toEqual(content);
    // The save before the kill was only in the WAL.
    expect(JSON.stringify(contentOf(kept).users)).toContain(stored(2222));

    await startService({ cwd: line.cwd });
    expect(existsSync(`${line.database}-wal`)).toBeTrue();
    expect(contentOf(line.database).users).toEqual(content.users);
  });

  test('restores the kept previous database, and a backup with an older schema', async () => {
    const line = await setUp();
    change(line.database, person('first'));
    copyFileSync(line.database, line.backup);
    const [older, newest] = knownSchemas.slice(-2);
    change(
      line.backup,
      `DELETE FROM __drizzle_migrations WHERE created_at = ${newest?.createdAt}`,
      person('second'),
      // Another tool may leave a backup in WAL mode.
      'PRAGMA journal_mode = WAL',
    );
    expect(readFileSync(line.backup)[18]).toBe(2);
    const source = readFileSync(line.backup);
    const { stdout } = await line.planning('restore', 'backup.db', '--yes');
    const [kept = ''] = line.kept();
    expect(stdout).toBe(
      `${line.database} is restored: 2 persons, schema ${older?.name}.\nThe previous database is kept in ${kept}.\n`,
    );
    expect(usersIn(line.database)).toEqual(['first', 'second']);
    expect(readFileSync(line.backup)).toEqual(source);
    expect(await line.planning('restore', kept, '--yes')).toMatchObject({ exitCode: 0 });
    expect(usersIn(line.database)).toEqual(['first']);
    expect(line.kept()).toHaveLength(2);
  });

  test('rejects a damaged or foreign file and leaves the database unchanged', async () => {
    const line = await setUp();
    change(line.database, person('ada'), 'PRAGMA journal_mode = DELETE');
    const before = readFileSync(line.database);
    const make = (name: string, work: (path: string) => void) => {
      const path = join(line.cwd, name);
      copyFileSync(line.database, path);
      work(path);
      return path;
    };
    const lastPage = (path: string) => statSync(path).size - 4096;
    const foreign = join(line.cwd, 'foreign.db');
    change(foreign, 'CREATE TABLE users (id)');
    const nowhere = join(line.cwd, 'nowhere.db');
    const withLog = make('with-log.db', (path) => writeFileSync(`${path}-wal`, 'frames'));
    const cases: [string, string | RegExp][] = [
      [nowhere, `There is no file ${nowhere}.`],
      [join(line.cwd, 'data'), `${line.cwd}/data is not a file.`],
      [line.database, `${line.database} is the database itself.`],
      [withLog, `${withLog}-wal exists, so ${withLog} alone is incomplete`],
      [
        make('text.db', (path) => writeFileSync(path, 'no database '.repeat(1000))),
        /text\.db is encrypted, but DATABASE_ENCRYPTION_KEY is not set; or it is not a database\.$/,
      ],
      [
        make('empty.db', (path) => writeFileSync(path, '')),
        /empty\.db is not a database of this service, or was never migrated\.$/,
      ],
      [foreign, /foreign\.db is not a database of this service, or was never migrated\.$/],
      [make('short.db', (path) => truncateSync(path, lastPage(path))), /short\.db is damaged or incomplete\.$/],
      [make('stub.db', (path) => truncateSync(path, 5000)), /stub\.db is damaged or incomplete\.$/],
      [
        make('flipped.db', (path) => {
          const bytes = readFileSync(path);
          // Damages the header of an index page, which a plain read does not detect.
          bytes.fill(0xff, lastPage(path), lastPage(path) + 8);
          writeFileSync(path, bytes);
        }),
        /flipped\.db is damaged or incomplete\.$/,
      ],
      [
        make('newer.db', (path) =>
          change(
            path,
            `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('later', ${Date.now() * 2});
            UPDATE schema_compatibility SET min_reader = ${Date.now() * 2}`,
          ),
        ),
        /newer\.db has a newer schema than this build supports/,
      ],
      [
        make('unreadable.db', (path) => change(path, `UPDATE schema_compatibility SET min_reader = ${Date.now() * 2}`)),
        /unreadable\.db has a newer schema than this build supports/,
      ],
      [
        make('other-build.db', (path) => change(path, 'UPDATE __drizzle_migrations SET created_at = created_at - 1')),
        /other-build\.db is not a database of this service, or was never migrated\.$/,
      ],
    ];
    for (const [file, message] of cases) {
      expect(await refusal(line.databaseUrl, 'restore', file, '--yes')).toMatch(message);
      expect(line.dataNames()).toEqual(['planning.db']);
    }
    expect(readFileSync(line.database)).toEqual(before);
    expect(await refusal('http://127.0.0.1:1', 'restore', line.database, '--yes')).toMatch(
      /^http:\/\/127\.0\.0\.1:1 cannot be written \(\w+\)\.$/,
    );
  });

  test('fails when a WAL without its database or an unreadable database is in place', async () => {
    const line = await setUp();
    const backup = join(line.cwd, 'good.db');
    renameSync(line.database, backup);
    writeFileSync(`${line.database}-wal`, 'of a database that is gone');
    expect(await refusal(line.databaseUrl, 'restore', backup, '--yes')).toBe(
      `The WAL ${line.database}-wal belongs to a database file that is missing: put the file back beside its WAL, or move the WAL away to restore without the saves that only the WAL contains.`,
    );
    renameSync(`${line.database}-wal`, join(line.cwd, 'away'));
    writeFileSync(line.database, 'no database '.repeat(1000));
    expect(await refusal(line.databaseUrl, 'restore', backup, '--yes')).toMatch(/cannot be read \(SQLITE_NOTADB\)/);
    expect(line.dataNames()).toEqual(['planning.db']);
    expect(readFileSync(line.database, 'utf8')).toStartWith('no database');
  });

  test('leaves the complete old or new database when it is killed at any step', async () => {
    const line = await setUp();
    copyFileSync(line.database, line.backup);
    change(line.backup, person('new'));
    change(line.database, person('old'), 'CREATE TABLE ballast (bytes)', 'PRAGMA journal_mode = WAL');
    for (const isDue of ['.partial', '.before-restore-']) {
      const command = line.start('restore', 'backup.db', '--yes');
      while (!line.dataNames().some((name) => name.includes(isDue)) && command.exitCode === null) await Bun.sleep(1);
      command.kill('SIGKILL');
      await command.exited;
      expect([['old'], ['new']]).toContainEqual(usersIn(line.database));
      expect(existsSync(`${line.database}-journal`)).toBeFalse();
    }
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    expect(usersIn(line.database)).toEqual(['new']);
  });

  test('prevents writes by a process that opened the old file before the restore', async () => {
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
    const late = Bun.spawn([process.execPath, '-e', script], {
      cwd: root,
      stdin: 'pipe',
      stdout: 'pipe',
    });
    const output = late.stdout.pipeThrough(new TextDecoderStream()).getReader();
    expect((await output.read()).value).toBe('open\n');
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 0 });
    late.stdin.end();
    expect((await output.read()).value).toBe('SQLITE_READONLY_DBMOVED\n');
    await late.exited;
    expect(line.dataNames().filter((name) => /-(wal|shm|journal)$/.test(name))).toEqual([]);
    expect(usersIn(line.database)).toEqual(['new']);
  });

  test('holds an exclusive lock while it works', async () => {
    const line = await setUp();
    const seen = await withExclusiveLock(line.database, undefined, () =>
      Bun.spawnSync([process.execPath, cli, 'user', 'show', 'ada'], {
        cwd: line.cwd,
        env: { PATH: process.env.PATH, NODE_ENV: 'development', DATABASE_TIMEOUT_MS: '100' },
      }).stderr.toString(),
    );
    expect(seen).toContain('SQLITE_BUSY');
    const reader = new SqliteDatabase(line.database);
    reader.run('PRAGMA journal_mode = WAL');
    reader.close(true);
  });
});
