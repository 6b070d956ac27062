import { Database as SqliteFile } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import * as fs from 'node:fs';
import { join } from 'node:path';
import Connection from 'libsql';
import { examineCopy, UnusableFileError } from '../../src/db/backup';
import { closeDatabase, openDatabase } from '../../src/db/client';
import { encryptionOption } from '../../src/db/database-file';
import { migrateDatabase } from '../../src/db/migrate';
import { knownSchemas } from '../../src/db/schema-check';
import { createCommandLine, refusalOf } from '../support/command';
import { copyTemplate, earlierMigrations, filesWith, keys } from '../support/database';
import { productionSettings, startInProcess } from '../support/processes';
import { temporaryFolder } from '../support/resources';

const schema = knownSchemas.at(-1)?.name;
const [oldKey, newKey] = [keys.right, keys.wrong];
const done = { exitCode: 0, stderr: '' };

/** A command line with a database, and its paths. */
async function setUp(environment: Record<string, string> = {}) {
  const line = await createCommandLine(environment);
  const database = join(line.cwd, 'data/planning.db');
  const settings = { DATABASE_URL: line.databaseUrl, ...environment };
  return {
    ...line,
    database,
    backup: join(line.cwd, 'backup.db'),
    dataNames: () => fs.readdirSync(join(line.cwd, 'data')).sort(),
    kept: (kind: 'restore' | 'migration') =>
      fs
        .readdirSync(join(line.cwd, 'data'))
        .filter((name) => name.includes(`.before-${kind}-`))
        .map((name) => join(line.cwd, 'data', name)),
    /** Runs a command with other settings on the same database. */
    withSettings: async (more: Record<string, string>, ...args: string[]) =>
      (await createCommandLine({ ...settings, ...more }, { isEmpty: true })).planning(...args),
    refusal: (...args: string[]) => refusalOf(settings, ...args),
  };
}

const person = (id: string) => `INSERT INTO users (id, version, created_at, updated_at) VALUES ('${id}', 1, 0, 0)`;

function change(path: string, ...statements: string[]): void {
  const db = new SqliteFile(path);
  for (const statement of statements) db.run(statement);
  db.close(true);
}

/** Every row of every table, and the schema. Excludes the time of the backup, which follows the copy, and the database id. */
function contentOf(path: string): Record<string, unknown[]> {
  const db = new SqliteFile(path);
  const tables = db.query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  const content = Object.fromEntries(tables.map(({ name }) => [name, db.query(`SELECT * FROM "${name}"`).values()]));
  const objects = db.query('SELECT name, sql FROM sqlite_schema ORDER BY name').values();
  db.close();
  return { ...content, objects, completed_tasks: [] };
}

const usersIn = (path: string) => (contentOf(path).users ?? []).map((row) => Object.values(row ?? {})[0]);
const modeOf = (path: string) => fs.statSync(path).mode & 0o777;

describe('planning backup', () => {
  test('writes all commits, and restores to equal content elsewhere', async () => {
    const line = await setUp();
    change(line.database, person('ada'), person('bob'));
    const { exitCode, stdout, stderr } = await line.planning('backup', 'backup.db', '--json');
    expect({ exitCode, stderr }).toEqual(done);
    expect(JSON.parse(stdout)).toEqual({
      file: line.backup,
      bytes: fs.statSync(line.backup).size,
      persons: 2,
      schema,
      startedAt: expect.stringMatching(/^\d{4}-.*Z$/),
      tookMs: expect.any(Number),
    });
    expect(contentOf(line.backup)).toEqual(contentOf(line.database));
    expect(modeOf(line.backup)).toBe(0o600);
    expect(fs.readdirSync(line.cwd).sort()).toEqual(['backup.db', 'data']);

    const folder = join(temporaryFolder(), 'new');
    const restored = await line.withSettings({ DATABASE_URL: `file:${folder}/planning.db` }, 'restore', line.backup);
    const message = `${folder}/planning.db is restored: 2 persons, schema ${schema}.\n`;
    expect(restored).toEqual({ ...done, stdout: message });
    expect(contentOf(`${folder}/planning.db`)).toEqual(contentOf(line.backup));
    expect(modeOf(`${folder}/planning.db`)).toBe(0o600);
    expect(fs.readdirSync(folder)).toEqual(['planning.db']);
  });

  test('does not wait for an open write transaction and excludes its rows', async () => {
    const line = await setUp({ DATABASE_TIMEOUT_MS: '100' });
    const writer = new Connection(line.database, { timeout: 0 });
    writer.exec(`PRAGMA journal_mode = WAL; ${person('committed')}; BEGIN IMMEDIATE; ${person('not-yet')}`);
    const { exitCode, stderr } = await line.planning('backup', 'backup.db');
    expect([exitCode, stderr]).toEqual([0, expect.stringContaining('The time of this backup is not recorded')]);
    writer.exec('COMMIT');
    writer.close();
    expect(usersIn(line.backup)).toEqual(['committed']);
    expect(usersIn(line.database).toSorted()).toEqual(['committed', 'not-yet']);
  });

  test('replaces a file only with --replace, and never a file of the database itself', async () => {
    const line = await setUp();
    await line.write('backup.db', 'something else');
    const taken = `${line.backup} exists already: name a new file, or use --replace.`;
    expect(await line.refusal('backup', line.backup)).toBe(taken);
    expect(fs.readFileSync(line.backup, 'utf8')).toBe('something else');
    fs.symlinkSync(line.database, join(line.cwd, 'link.db'));
    fs.symlinkSync(join(line.cwd, 'data'), join(line.cwd, 'folder'));
    fs.linkSync(line.database, join(line.cwd, 'hard.db'));
    await line.write('other.db-wal', 'of a database that is gone');
    fs.mkdirSync(join(line.cwd, 'a-folder'));
    const before = fs.readFileSync(line.database);
    const itself = 'belongs to the database itself: name another file.';
    for (const [name, message] of [
      ['data/planning.db', itself],
      ['data/planning.db-wal', itself],
      ['link.db', itself],
      ['folder/planning.db', itself],
      ['folder/planning.db-shm', itself],
      ['hard.db', itself],
      ['nowhere/backup.db', `There is no folder ${line.cwd}/nowhere: create it first.`],
      ['backup.db/backup.db', `There is no folder ${line.backup}: create it first.`],
      ['a-folder', 'a-folder is not a file: name another one.'],
      ['other.db', '-wal exists, and would be read as part of the backup: move it away, or name another file.'],
    ] as const) {
      expect(await line.refusal('backup', join(line.cwd, name), '--replace')).toEndWith(message);
    }
    expect(fs.readFileSync(line.database)).toEqual(before);
    expect(line.dataNames()).toEqual(['planning.db']);
    expect(await line.planning('backup', 'backup.db', '--replace')).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(
        /^The backup is in \S+backup\.db: [\d.]+ kB, 0 persons, schema \S+, as of .*Z; it took [\d.]+ s\.\n$/,
      ),
    });
    expect(contentOf(line.backup)).toEqual(contentOf(line.database));
    expect(modeOf(line.backup)).toBe(0o600);
  });

  test('fails for a file that is not a database of this service', async () => {
    const [folder, elsewhere] = [temporaryFolder(), temporaryFolder()];
    const [foreign, text] = [join(elsewhere, 'foreign.db'), join(elsewhere, 'text.db')];
    change(foreign, 'CREATE TABLE users (id)');
    fs.writeFileSync(text, 'This is no database. '.repeat(100));
    const cases: [string, string | RegExp][] = [
      ['http://user:secret@127.0.0.1:1', /^http:\/\/127\.0\.0\.1:1 cannot be read \(\w+\)\.$/],
      [
        `file:${foreign}`,
        `No backup was written: the copy of ${foreign} is not a database of this service, or was never migrated.`,
      ],
      [`file:${text}`, /^No backup was written: .+text\.db cannot be read \(SQLITE_NOTADB\)\. It is encrypted, /],
      ['file:nowhere.db', /^There is no database at .+nowhere\.db\.$/],
    ];
    for (const [url, message] of cases) {
      expect(await refusalOf({ DATABASE_URL: url }, 'backup', join(folder, 'backup.db'))).toMatch(message);
      expect(fs.readdirSync(folder)).toEqual([]);
    }
  });
});

describe('planning restore', () => {
  test('restores the kept previous database, and a backup with an older schema or a newer one that this build can read', async () => {
    const line = await setUp();
    change(line.database, person('first'));
    fs.copyFileSync(line.database, line.backup);
    const [older, newest] = knownSchemas.slice(-2);
    const forget = `DELETE FROM __drizzle_migrations WHERE created_at = ${newest?.createdAt}`;
    // Another tool may leave a backup in WAL mode.
    change(line.backup, forget, person('second'), 'PRAGMA journal_mode = WAL');
    const source = fs.readFileSync(line.backup);
    expect(source[18]).toBe(2);
    const unasked = 'Nothing was restored: use --yes where there is no terminal.';
    expect(await line.refusal('restore', line.backup)).toBe(unasked);
    const { stdout } = await line.planning('restore', 'backup.db', '--yes');
    const [kept = ''] = line.kept('restore');
    expect(stdout).toBe(
      `${line.database} is restored: 2 persons, schema ${older?.name}.\nThe previous database is kept in ${kept}.\n`,
    );
    expect(usersIn(line.database)).toEqual(['first', 'second']);
    expect(fs.readFileSync(line.backup)).toEqual(source);
    const again = await line.planning('restore', kept, '--yes', '--json');
    expect(JSON.parse(again.stdout)).toEqual({
      ...{ database: line.database, persons: 1, schema },
      kept: line.kept('restore').find((name) => name !== kept),
    });
    expect(usersIn(line.database)).toEqual(['first']);
    expect(modeOf(line.database)).toBe(0o600);
    const later = `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('later', ${Date.now() * 2})`;
    change(line.database, later, person('of a newer build'));
    expect(await line.planning('backup', 'newer.db')).toMatchObject(done);
    expect(await line.planning('restore', 'newer.db', '--yes')).toMatchObject(done);
    expect(usersIn(line.database)).toEqual(['first', 'of a newer build']);
  });

  test('rejects a damaged or foreign file and leaves the database unchanged', async () => {
    const line = await setUp();
    change(line.database, person('ada'), 'PRAGMA journal_mode = DELETE');
    const before = fs.readFileSync(line.database);
    const make = (name: string, work: (path: string) => void) => {
      const path = join(line.cwd, name);
      fs.copyFileSync(line.database, path);
      work(path);
      return path;
    };
    const lastPage = (path: string) => fs.statSync(path).size - 4096;
    const foreign = join(line.cwd, 'foreign.db');
    change(foreign, 'CREATE TABLE users (id)');
    const nowhere = join(line.cwd, 'nowhere.db');
    const withLog = make('with-log.db', (path) => fs.writeFileSync(`${path}-wal`, 'frames'));
    const text = make('text.db', (path) => fs.writeFileSync(path, 'no database '.repeat(1000)));
    // Damages the header of an index page, which a plain read does not detect.
    const flipped = make('flipped.db', (path) => {
      fs.writeFileSync(path, fs.readFileSync(path).fill(0xff, lastPage(path), lastPage(path) + 8));
    });
    const far = Date.now() * 2;
    const later = `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('later', ${far})`;
    const unreadable = `UPDATE schema_compatibility SET min_reader = ${far}`;
    const otherBuild = 'UPDATE __drizzle_migrations SET created_at = created_at - 1';
    const isForeign = 'is not a database of this service, or was never migrated.';
    const isNewer = 'has a newer schema than this build supports';
    for (const [file, message] of [
      [nowhere, `There is no file ${nowhere}.`],
      [join(line.cwd, 'data'), `${line.cwd}/data is not a file.`],
      [line.database, `${line.database} is the database itself.`],
      [withLog, `${withLog}-wal exists, so ${withLog} alone is incomplete`],
      [text, `${text} is encrypted, but DATABASE_ENCRYPTION_KEY is not set; or it is not a database.`],
      [make('empty.db', (path) => fs.writeFileSync(path, '')), isForeign],
      [foreign, isForeign],
      [make('other-build.db', (path) => change(path, otherBuild)), isForeign],
      [make('short.db', (path) => fs.truncateSync(path, lastPage(path))), 'short.db is damaged or incomplete.'],
      [make('stub.db', (path) => fs.truncateSync(path, 5000)), 'stub.db is damaged or incomplete.'],
      [flipped, 'flipped.db is damaged or incomplete.'],
      [make('newer.db', (path) => change(path, `${later}; ${unreadable}`)), isNewer],
      [make('unreadable.db', (path) => change(path, unreadable)), isNewer],
    ] as const) {
      expect(await line.refusal('restore', file, '--yes')).toContain(message);
      expect(line.dataNames()).toEqual(['planning.db']);
    }
    expect(fs.readFileSync(line.database)).toEqual(before);
    const elsewhere = { DATABASE_URL: 'http://127.0.0.1:1' };
    expect(await refusalOf(elsewhere, 'restore', line.database, '--yes')).toMatch(
      /^http:\/\/127\.0\.0\.1:1 cannot be written \(\w+\)\.$/,
    );
  });

  test('restores an encrypted backup with its key alone, and none with a damaged page', async () => {
    const encrypted = { DATABASE_ENCRYPTION_KEY: oldKey };
    const line = await setUp(encrypted);
    const backup = join(line.cwd, "it's 100% a?key=x#1 &.db");
    expect(await line.planning('backup', backup)).toMatchObject(done);
    const plain = join(line.cwd, 'plain.db');
    await copyTemplate(plain);
    const bytes = fs.readFileSync(backup);
    const damaged = [1, 2, 5].map((page): [object, string, string] => {
      const path = join(line.cwd, `damaged-${page}.db`);
      // The first block of a page holds its type and fill level.
      fs.writeFileSync(path, bytes.with(4096 * page, (bytes[4096 * page] ?? 0) ^ 1));
      return [encrypted, path, 'is damaged or incomplete.'];
    });
    const target = join(temporaryFolder(), 'planning.db');
    for (const [key, file, message] of [
      [{ DATABASE_ENCRYPTION_KEY: newKey }, backup, 'is encrypted with another key, or is not a database'],
      [{}, backup, 'is encrypted, but DATABASE_ENCRYPTION_KEY is not set'],
      [encrypted, plain, 'is not encrypted'],
      ...damaged,
    ] as const) {
      expect(await refusalOf({ DATABASE_URL: `file:${target}`, ...key }, 'restore', file, '--yes')).toContain(message);
      expect(fs.existsSync(target)).toBeFalse();
    }
    const restored = await refusalOf({ DATABASE_URL: `file:${target}`, ...encrypted }, 'restore', backup, '--yes');
    expect(restored).toBe('the command succeeded');
    expect(await examineCopy(target, oldKey)).toEqual({ persons: 0, schema: schema ?? '' });
  });

  test('fails when a WAL without its database or an unreadable database is in place', async () => {
    const line = await setUp();
    fs.renameSync(line.database, line.backup);
    fs.writeFileSync(`${line.database}-wal`, 'of a database that is gone');
    expect(await line.refusal('restore', line.backup, '--yes')).toBe(
      `The WAL ${line.database}-wal belongs to a database file that is missing: put the file back beside its WAL, or move the WAL away to restore without the saves that only the WAL contains.`,
    );
    fs.rmSync(`${line.database}-wal`);
    fs.writeFileSync(line.database, 'no database '.repeat(1000));
    expect(await line.refusal('restore', line.backup, '--yes')).toMatch(/cannot be read \(SQLITE_NOTADB\)/);
    expect(line.dataNames()).toEqual(['planning.db']);
    expect(fs.readFileSync(line.database, 'utf8')).toStartWith('no database');
  });
});

describe('planning copy', () => {
  test('prints no key or token, names the wrong setting, and encrypts with the key of the target', async () => {
    const line = await setUp();
    await line.write('key', `${keys.right}\n`);
    await line.write('short', 'canary');
    const [key, short] = ['key', 'short'].map((name) => ['--to-key-file', join(line.cwd, name)]);
    const to = (name: string) => ['--to', `file:${join(line.cwd, name)}`];
    const target = { TARGET_DATABASE_ENCRYPTION_KEY: keys.right };
    const cases: [Record<string, string>, (string[] | undefined)[], string][] = [
      [{}, [to('a.db'), key], ''],
      [target, [to('b.db'), key], 'are both set'],
      [{}, [to('b.db'), short], 'The content of --to-key-file must be at least 32 characters.'],
      [target, [['--to', 'http://127.0.0.1:1']], 'give no key for it'],
      [{}, [['--to', 'http://127.0.0.1:1?authToken=canary']], 'must not hold authToken'],
      [{}, [['--to', 'http://canary:canary@127.0.0.1:1']], 'http://127.0.0.1:1 cannot be written'],
      [{}, [to('a.db')], 'exists already'],
      [{ DATABASE_ENCRYPTION_KEY: keys.wrong }, [to('c.db')], 'DATABASE_ENCRYPTION_KEY'],
      [{}, [['--from', `file:${line.cwd}/none.db`], to('c.db')], 'There is no database'],
    ];
    for (const [settings, args, message] of cases) {
      const result = await line.withSettings(settings, 'copy', ...args.flatMap((each) => each ?? []));
      expect(result.exitCode).toBe(message === '' ? 0 : 1);
      expect(result.stderr).toContain(message);
      expect(`${result.stdout}${result.stderr}`).not.toMatch(/horse|canary/);
    }
    expect(await examineCopy(join(line.cwd, 'a.db'), keys.right)).toEqual({ persons: 0, schema: schema ?? '' });
  });
});

describe('planning rekey', () => {
  const next = { NEW_DATABASE_ENCRYPTION_KEY: newKey };

  /** A database with one person, encrypted if a key is given. */
  async function setUpWithKey(key?: string) {
    const line = await setUp(key === undefined ? {} : { DATABASE_ENCRYPTION_KEY: key });
    // Without an open prepared statement the driver releases the file at once.
    const connection = new Connection(line.database, { timeout: 0, ...encryptionOption(key) });
    connection.exec(person('canary-person'));
    connection.close();
    const rekey = (more: Record<string, string>, ...args: string[]) => line.withSettings(more, 'rekey', ...args);
    return { ...line, rekey };
  }

  /** The key that opens the database, or undefined. */
  async function openedBy(path: string): Promise<string | undefined> {
    for (const [name, key] of Object.entries({ old: oldKey, new: newKey, none: undefined })) {
      try {
        if ((await examineCopy(path, key)).persons === 1) return name;
      } catch (error) {
        if (!(error instanceof UnusableFileError)) throw error;
      }
    }
    return undefined;
  }

  test.each([
    ['replaces the key of a database', oldKey, next, [], 'new'],
    ['encrypts a plain database', undefined, next, [], 'new'],
    ['decrypts a database', oldKey, {}, ['--decrypt'], 'none'],
  ] as const)('%s and leaves no other file', async (_, key, more, args, expected) => {
    const line = await setUpWithKey(key);
    const { exitCode, stdout, stderr } = await line.rekey({ ...more }, ...args, '--yes', '--json');
    expect({ exitCode, stderr }).toEqual(done);
    expect(JSON.parse(stdout)).toMatchObject({ database: line.database, isEncrypted: expected === 'new', persons: 1 });
    expect(line.dataNames()).toEqual(['planning.db']);
    expect(modeOf(line.database)).toBe(0o600);
    expect(filesWith(line.cwd, ['canary-person'])).toEqual(expected === 'none' ? ['data/planning.db'] : []);
    expect(await openedBy(line.database)).toBe(expected);
  });

  test('rejects invalid keys and options without printing keys and changes nothing', async () => {
    const line = await setUpWithKey(oldKey);
    const before = fs.readFileSync(line.database);
    const short = 'NEW_DATABASE_ENCRYPTION_KEY must be at least 32 characters';
    const cases: [Record<string, string>, string[], string][] = [
      [{}, [], 'There is no new key'],
      [{ NEW_DATABASE_ENCRYPTION_KEY: 'canary too short' }, [], short],
      [{ NEW_DATABASE_ENCRYPTION_KEY: '' }, [], short],
      [{ NEW_DATABASE_ENCRYPTION_KEY: oldKey }, [], 'The new key is the current key'],
      [next, ['--decrypt'], 'give one of the two'],
      [next, ['--new-key-file', 'x'], 'give one of the two'],
      [{ ...next, DATABASE_ENCRYPTION_KEY: `another ${oldKey}` }, [], 'DATABASE_ENCRYPTION_KEY does not open it'],
      [{ ...next, DATABASE_URL: `file:${line.database}.none` }, [], 'There is no database'],
      [{ ...next, DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: 'r.db' }, [], 'is a libSQL server'],
    ];
    for (const [more, args, reason] of cases) {
      const { exitCode, stderr } = await line.rekey(more, ...args, '--yes');
      expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining(reason) });
      expect(stderr).not.toMatch(/horse|canary/);
    }
    expect(fs.readFileSync(line.database)).toEqual(before);
    expect(line.dataNames()).toEqual(['planning.db']);
  });

  test('rejects a key that production would reject at start', async () => {
    const line = await setUpWithKey(oldKey);
    const settings = { ...productionSettings, CARRIER_URL: 'https://carrier.example' };
    for (const [key, reason] of [
      ['ab'.repeat(20), 'it repeats a few characters'],
      [settings.AUTH_SECRET, 'must differ from AUTH_SECRET'],
    ] as const) {
      const { stderr } = await line.rekey({ ...settings, NEW_DATABASE_ENCRYPTION_KEY: key }, '--yes');
      expect(stderr).toStartWith('Nothing was changed: as DATABASE_ENCRYPTION_KEY, the new key must ');
      expect(stderr).toContain(reason);
      expect(stderr).not.toContain(key);
    }
    expect(await openedBy(line.database)).toBe('old');
    expect(await line.rekey({ ...settings, ...next }, '--yes')).toMatchObject(done);
    expect(await openedBy(line.database)).toBe('new');
  });

  test('converts a backup with the old key to the current key by the documented steps', async () => {
    const line = await setUpWithKey(oldKey);
    await line.write('key', `${newKey}\n`);
    expect(await line.planning('backup', 'backup.db')).toMatchObject(done);
    expect(await line.rekey({}, '--new-key-file', join(line.cwd, 'key'), '--yes')).toMatchObject(done);
    // The old key cannot show whether the current database is in use.
    const stderr = expect.stringContaining('move the file away');
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject({ exitCode: 1, stderr });
    expect(await openedBy(line.database)).toBe('new');
    fs.rmSync(line.database);
    expect(await line.planning('restore', 'backup.db', '--yes')).toMatchObject(done);
    expect(await line.rekey(next, '--yes')).toMatchObject(done);
    expect(await openedBy(line.database)).toBe('new');
  });
});

describe('planning migrate', () => {
  /** A database of an earlier build with one user. */
  async function setUpEarlier(environment: Record<string, string> = {}) {
    const line = await setUp(environment);
    fs.rmSync(line.database);
    const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 5_000 });
    await migrateDatabase(db, await earlierMigrations(knownSchemas.length - 1));
    await db.$client.execute(person('ada'));
    await closeDatabase(db);
    return line;
  }

  test.each(['migrate', 'the start'])('%s makes a checked backup of the old schema first', async (migration) => {
    const line = await setUpEarlier();
    if (migration === 'migrate') {
      const first = /^The backup is in \S+planning\.db\.before-migration-\S+Z\.\nApplied /;
      expect(await line.planning('migrate')).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(first) });
      expect((await line.planning('migrate')).stdout).toContain('Nothing to do');
    } else expect(await (await startInProcess({ DATABASE_URL: line.databaseUrl })).stop()).toBe(0);
    const [backup = '', ...more] = line.kept('migration');
    expect(more).toEqual([]);
    expect(modeOf(backup)).toBe(0o600);
    expect(await examineCopy(backup, undefined)).toEqual({ persons: 1, schema: knownSchemas.at(-2)?.name ?? '' });
    expect(contentOf(line.database).__drizzle_migrations).toHaveLength(knownSchemas.length);
  });

  test('makes a backup before a repair, and none when there is nothing to repair', async () => {
    const line = await setUp();
    expect(await line.planning('migrate', '--repair')).toMatchObject({ exitCode: 0 });
    expect(line.kept('migration')).toEqual([]);
    change(line.database, 'DROP INDEX applications_open');
    const repaired = /^The backup is in \S+\.\nRestored index applications_open\./;
    expect((await line.planning('migrate', '--repair')).stdout).toMatch(repaired);
    const [backup = '', ...more] = line.kept('migration');
    expect(more).toEqual([]);
    const hasIndex = (path: string) => JSON.stringify(contentOf(path).objects).includes('"applications_open"');
    expect([hasIndex(backup), hasIndex(line.database)]).toEqual([false, true]);
  });

  test('makes no backup of a new database, or when the operator disables it', async () => {
    const flag = await setUpEarlier();
    expect(await flag.planning('migrate', '--no-backup')).toMatchObject({ exitCode: 0 });
    const setting = await setUpEarlier({ DATABASE_MIGRATION_BACKUP: 'false' });
    expect(await setting.planning('migrate')).toMatchObject({ exitCode: 0 });
    const fresh = await setUp();
    fs.rmSync(fresh.database);
    expect(await fresh.planning('migrate')).toMatchObject({ exitCode: 0 });
    expect(fs.existsSync(fresh.database)).toBeTrue();
    expect([flag, setting, fresh].flatMap((line) => line.kept('migration'))).toEqual([]);
  });
});
