import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { examineCopy } from '../../src/db/backup';
import { closeDatabase, openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { openReplicaFile } from '../../src/db/replica';
import type { DatabasePlace } from '../../src/db/row-store';
import { programOf } from '../support/artifacts';
import { createCommandLine } from '../support/command';
import { copyTemplate, earlierMigrations, filesWith, keys } from '../support/database';
import { createProduction, startService, startWorker } from '../support/processes';
import { amount, cases, isLong, temporaryFolder, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const kinds = ['file', 'encrypted file', 'libSQL server'] as const;
type Kind = (typeof kinds)[number];

/** A place for a database that does not exist yet. */
async function emptyPlace(kind: Kind): Promise<DatabasePlace> {
  if (kind === 'libSQL server') return { url: (await startSqld()).url };
  const url = `file:${join(temporaryFolder(), 'planning.db')}`;
  return kind === 'file' ? { url } : { url, encryptionKey: keys.right };
}

/** A migrated and seeded database. */
async function database(kind: Kind): Promise<DatabasePlace> {
  const place = await emptyPlace(kind);
  if (kind !== 'libSQL server') {
    await copyTemplate(place.url.slice('file:'.length), place.encryptionKey);
    return place;
  }
  const { planning } = await createCommandLine(
    { DATABASE_URL: place.url, SEED_DEMO: 'false' },
    { isEmpty: true, isProcess: true },
  );
  expect(await planning('migrate')).toMatchObject({ exitCode: 0 });
  return place;
}

function settingsOf({ url, encryptionKey }: DatabasePlace): Record<string, string> {
  return { DATABASE_URL: url, ...(encryptionKey !== undefined && { DATABASE_ENCRYPTION_KEY: encryptionKey }) };
}

function targetSettingsOf({ encryptionKey }: DatabasePlace): Record<string, string> {
  return encryptionKey === undefined ? {} : { TARGET_DATABASE_ENCRYPTION_KEY: encryptionKey };
}

type Content = Record<string, Record<string, unknown>[]>;

/** Every row of every table, and the schema. Excludes the database id and the backup time, which follows the copy. */
async function contentOf(place: DatabasePlace): Promise<Content> {
  const db = await openDatabase({ ...place, timeoutMs: 5_000 });
  try {
    const rowsOf = async (query: string) => (await db.$client.execute(query)).rows.map((row) => ({ ...row }));
    const schema = await rowsOf(
      "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'libsql_%' ORDER BY name",
    );
    const content: Content = {
      schema: schema.map((row) => ({ ...row, sql: String(row.sql).replaceAll(/\s+/g, ' ') })),
    };
    for (const { name } of schema.filter(({ type }) => type === 'table')) {
      const rows: Record<string, unknown>[] = [];
      // The response of a server is limited to 10 MB.
      for (let page = [{}]; page.length > 0; rows.push(...page)) {
        page = await rowsOf(`SELECT * FROM "${name}" LIMIT 2000 OFFSET ${rows.length}`);
      }
      content[String(name)] = rows;
    }
    for (const row of content.schema_compatibility ?? []) row.database_id = undefined;
    content.completed_tasks = (content.completed_tasks ?? []).filter(({ task }) => task !== 'backup');
    return content;
  } finally {
    await closeDatabase(db);
  }
}

/** Saves until `stop`, and returns the ids of the acknowledged requests. */
async function startSavers(place: DatabasePlace) {
  const worker = startWorker(place.url, 'requests', 'saver', settingsOf(place));
  await worker.until(30);
  return { acknowledged: () => worker.lines(), stop: () => worker.stop() };
}

/**
 * Checks that the copy is one consistent state of the source: its audit log is a prefix, each record matches the last
 * of its events, and tables without saves are equal.
 */
function expectSnapshot(copy: Content, source: Content): void {
  const events = copy.audit_events ?? [];
  const last = Number(events.at(-1)?.id);
  expect(events).toEqual((source.audit_events ?? []).filter(({ id }) => Number(id) <= last));
  const users = copy.users ?? [];
  expect(users.length).toBeGreaterThan(0);
  for (const { id, version, request_id, ltc_lifetime_care } of users) {
    const own = events.filter(({ user_id }) => user_id === id);
    expect(own.length).toBe(Number(version));
    expect(own.at(-1)?.request_id).toBe(request_id);
    expect(JSON.parse(String(ltc_lifetime_care)).careCosts).toBe(Number(version));
  }
  const changing = ['users', 'audit_events', 'leases'];
  const still = (content: Content) =>
    Object.fromEntries(Object.entries(content).filter(([name]) => !changing.includes(name)));
  expect(still(copy)).toEqual(still(source));
}

describe.skipIf(!hasSqld)('F16 planning copy', () => {
  const pairs = kinds.flatMap((from) => kinds.map((to) => [from, to] as const));
  const [fileToServer, serverToEncrypted] = [2, 7];
  const first = [fileToServer, serverToEncrypted].flatMap((index) => pairs.slice(index, index + 1));
  test.each(cases([...first, ...pairs.filter((pair) => !first.includes(pair))], first.length))(
    'copies one state of a %s under load to a %s',
    async (from, to) => {
      const source = await database(from);
      const target = await emptyPlace(to);
      const { planning } = await createCommandLine(
        { ...settingsOf(source), ...targetSettingsOf(target) },
        { isEmpty: true, isProcess: true },
      );
      const savers = await startSavers(source);
      const before = savers.acknowledged();
      const { exitCode, stderr, stdout } = await planning('copy', '--to', target.url, '--json');
      const after = savers.acknowledged().length;
      await savers.stop();
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
      expect(after).toBeGreaterThan(before.length);
      const copy = await contentOf(target);
      expectSnapshot(copy, await contentOf(source));
      const requests = (copy.audit_events ?? []).map(({ request_id }) => request_id);
      expect(before.filter((id) => !requests.includes(id))).toEqual([]);
      expect(JSON.parse(stdout)).toMatchObject({
        tables: expect.arrayContaining([{ table: 'users', rows: copy.users?.length, checksum: expect.any(String) }]),
      });
    },
    30_000,
  );

  test('continues after SIGKILL, and copies a changed table again', async () => {
    const source = await filledFile();
    const target = await emptyPlace('libSQL server');
    const { planning, start } = await createCommandLine({ ...settingsOf(source) }, { isEmpty: true, isProcess: true });
    const stored = () => countUsers(target).catch(() => 0);
    const killed = start('copy', '--to', target.url);
    await until(async () => (await stored()) > 0);
    killed.kill('SIGKILL');
    await killed.exited;
    const before = await stored();
    expect(before).toBeLessThan(filledUsers);

    const onTarget = await createCommandLine(settingsOf(target), { isEmpty: true, isProcess: true });
    expect(await onTarget.planning('migrate')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining(unfinished),
    });
    expect(await onTarget.planning('user', 'show', 'person-1')).toMatchObject({ exitCode: 1 });
    const other = await createCommandLine({}, { isProcess: true });
    change({ url: other.databaseUrl }, "UPDATE schema_compatibility SET database_id = 'other'");
    expect(await other.planning('copy', '--to', target.url)).toMatchObject({
      exitCode: 1,
      stderr: 'The target is an unfinished copy of another database: name an empty one.\n',
    });

    change(source, "UPDATE users SET version = 2 WHERE id = 'person-1'", "DELETE FROM users WHERE id = 'person-2'");
    expect(await planning('copy', '--to', target.url)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await contentOf(target)).toEqual(await contentOf(source));
    expect(await onTarget.planning('migrate')).toMatchObject({ exitCode: 0 });
    expect(await planning('copy', '--to', target.url)).toMatchObject({
      exitCode: 1,
      stderr: 'The target has tables already: name an empty database.\n',
    });
  }, 60_000);

  test('continues a file after SIGKILL, under another name until it is complete', async () => {
    const source = await filledFile();
    const target = await emptyPlace('encrypted file');
    const path = target.url.slice('file:'.length);
    const line = await createCommandLine(
      { ...settingsOf(source), ...targetSettingsOf(target) },
      { isEmpty: true, isProcess: true },
    );
    const killed = line.start('copy', '--to', target.url);
    await until(() => (statSync(`${path}.unfinished-copy`, { throwIfNoEntry: false })?.size ?? 0) > 1_000_000);
    killed.kill('SIGKILL');
    await killed.exited;
    expect(existsSync(path)).toBeFalse();
    expect(await line.planning('copy', '--to', target.url)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await contentOf(target)).toEqual(await contentOf(source));
    expect(readdirSync(dirname(path)).filter((name) => name.includes('unfinished'))).toEqual([]);
    expect(filesWith(dirname(path), ['person-1'])).toEqual([]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  }, 60_000);

  test('moves a service in production from a file to a server, with its saves and its audit log', async () => {
    const file = await createProduction();
    const before = await file.start();
    const save = { as: 'ada', body: { careCosts: 4321 } };
    expect((await before.call('POST', '/v2/private/ltc/lifetimeCare', save)).status).toBe(200);
    before.process.kill('SIGTERM');
    expect(await before.process.exited).toBe(0);
    const { url } = await emptyPlace('libSQL server');
    expect(await file.planning('copy', '--to', url)).toMatchObject({ exitCode: 0, stderr: '' });

    const server = await createProduction({ DATABASE_URL: url }, { isEmpty: true });
    const after = await server.start();
    expect(await after.health()).toBe(200);
    const { body } = await after.call('GET', '/v2/private/user', { as: 'ada' });
    expect(JSON.stringify(body)).toContain('"careCosts":4321');
    expect(
      (await after.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careCosts: 1 } })).status,
    ).toBe(200);
    const { stdout } = await server.planning('audit', 'ada', '--json');
    expect(stdout.match(/"action": ?"saved"/g)).toHaveLength(2);
  }, 60_000);

  test('prints no key or token, and names the wrong setting', async () => {
    const source = await database('file');
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'key'), `${keys.right}\n`);
    writeFileSync(join(folder, 'short'), 'canary');
    const to = (name: string) => ['--to', `file:${join(folder, name)}`];
    const run = async (environment: Record<string, string>, ...args: string[]) => {
      const { planning } = await createCommandLine(
        { ...settingsOf(source), ...environment },
        { isEmpty: true, isProcess: true },
      );
      const { stdout, stderr, exitCode } = await planning('copy', ...args);
      expect(`${stdout}${stderr}`).not.toMatch(/horse|canary/);
      return exitCode === 0 ? 'done' : stderr.trim();
    };
    expect(await run({}, ...to('a.db'), '--to-key-file', join(folder, 'key'))).toBe('done');
    expect((await contentOf({ url: `file:${join(folder, 'a.db')}`, encryptionKey: keys.right })).staff).toEqual([]);
    const target = { TARGET_DATABASE_ENCRYPTION_KEY: keys.right };
    expect(await run(target, ...to('b.db'), '--to-key-file', join(folder, 'key'))).toContain('are both set');
    expect(await run({}, ...to('b.db'), '--to-key-file', join(folder, 'short'))).toBe(
      'The content of --to-key-file must be at least 32 characters.',
    );
    expect(await run(target, '--to', 'http://127.0.0.1:1')).toContain('give no key for it');
    expect(await run({}, '--to', 'http://127.0.0.1:1?authToken=canary')).toContain('must not hold authToken');
    expect(await run({}, '--to', 'http://canary:canary@127.0.0.1:1')).toMatch(
      /^http:\/\/127\.0\.0\.1:1 cannot be written/,
    );
    expect(await run({}, ...to('a.db'))).toContain('exists already');
    expect(await run({ DATABASE_ENCRYPTION_KEY: keys.wrong }, ...to('c.db'))).toContain('DATABASE_ENCRYPTION_KEY');
    expect(await run({}, '--from', `file:${folder}/none.db`, ...to('c.db'))).toContain('There is no database');
  }, 60_000);
});

const unfinished =
  'is an unfinished copy. Run `planning copy` again, or remove the database and begin with an empty one.\n';
const filledUsers = 5_000;

/** A plain file of about 6 MB. */
async function filledFile(): Promise<DatabasePlace> {
  const place = await database('file');
  change(
    place,
    `WITH RECURSIVE person(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM person WHERE n < ${filledUsers})
      INSERT INTO users (id, profile, version, created_at, updated_at)
      SELECT 'person-' || n, json_object('firstName', hex(randomblob(500))), 1, 0, 0 FROM person`,
  );
  return place;
}

function change({ url }: DatabasePlace, ...statements: string[]): void {
  const db = new SqliteDatabase(url.slice('file:'.length));
  for (const statement of statements) db.run(statement);
  db.close(true);
}

async function countUsers({ url }: DatabasePlace): Promise<number> {
  const db = await openDatabase({ url, timeoutMs: 5_000 });
  const { rows } = await db.$client.execute('SELECT count(*) AS count FROM users');
  await closeDatabase(db);
  return Number(rows[0]?.count);
}

describe.skipIf(!hasSqld)('F1 a backup of a libSQL server', () => {
  test('restores by command and as a file in a data folder, when written under load', async () => {
    const source = await database('libSQL server');
    const savers = await startSavers(source);
    const line = await createCommandLine(settingsOf(source), { isEmpty: true, isProcess: true });
    const before = savers.acknowledged();
    expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0, stderr: '' });
    await savers.stop();
    const backup = join(line.cwd, 'backup.db');
    expect(readdirSync(line.cwd)).toEqual(['backup.db']);
    expect(statSync(backup).mode & 0o777).toBe(0o600);
    const opened = join(temporaryFolder(), 'backup.db');
    copyFileSync(backup, opened);
    const content = await contentOf({ url: `file:${opened}` });
    expectSnapshot(content, await contentOf(source));
    const requests = (content.audit_events ?? []).map(({ request_id }) => request_id);
    expect(before.filter((id) => !requests.includes(id))).toEqual([]);

    const asFile = await startSqld({ databaseFile: backup });
    expect(await contentOf(asFile)).toEqual(content);
    const empty = await emptyPlace('libSQL server');
    const { planning } = await createCommandLine(settingsOf(empty), { isEmpty: true, isProcess: true });
    expect(await planning('restore', backup, '--yes')).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await contentOf(empty)).toEqual(content);
    expect(await planning('restore', backup, '--yes')).toMatchObject({
      exitCode: 1,
      stderr: 'The target has tables already: name an empty database.\n',
    });
    const ids = await Promise.all([source, { url: `file:${opened}` }, empty].map(databaseIdOf));
    expect(new Set(ids).size).toBe(3);
  }, 60_000);

  test('can come from GET /dump under load, loaded into a new namespace', async () => {
    const source = await database('libSQL server');
    const savers = await startSavers(source);
    const before = savers.acknowledged();
    const dump = join(temporaryFolder(), 'planning.sql');
    await Bun.write(dump, await fetch(`${source.url}/dump`));
    await savers.stop();
    const fresh = await startSqld({ options: ['--enable-namespaces'] });
    const create = await fetch(`${fresh.adminUrl}/v1/namespaces/planning/create`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ dump_url: `file://${dump}` }),
    });
    expect([create.status, await create.text()]).toEqual([200, '']);
    const content = await contentOf({ url: fresh.url.replace('127.0.0.1', 'planning.localhost') });
    expectSnapshot(content, await contentOf(source));
    const requests = (content.audit_events ?? []).map(({ request_id }) => request_id);
    expect(before.filter((id) => !requests.includes(id))).toEqual([]);
  }, 60_000);
});

async function databaseIdOf(place: DatabasePlace): Promise<unknown> {
  const db = await openDatabase({ ...place, timeoutMs: 5_000 });
  const { rows } = await db.$client.execute('SELECT database_id FROM schema_compatibility');
  await closeDatabase(db);
  return rows[0]?.database_id;
}

describe.skipIf(!hasSqld)('F14 an erasure on a libSQL server', () => {
  test('leaves bytes in the files of that server, but not in a copy on a new server or its replica', async () => {
    const [before, after] = [await startSqld(), await startSqld()];
    const line = await createCommandLine(
      { DATABASE_URL: before.url, SEED_DEMO: 'false' },
      { isEmpty: true, isProcess: true },
    );
    expect(await line.planning('migrate')).toMatchObject({ exitCode: 0 });
    const db = await openDatabase({ url: before.url, timeoutMs: 5_000 });
    await db.$client.execute(
      `INSERT INTO users (id, profile, version, created_at, updated_at)
        VALUES ('canary-id', '{"firstName":"canary-name"}', 1, 0, 0), ('ada', '{"firstName":"Ada"}', 1, 0, 0)`,
    );
    await closeDatabase(db);
    expect(await line.planning('user', 'erase', 'canary-id', '--yes')).toMatchObject({ exitCode: 0 });
    const canaries = ['canary-id', 'canary-name'];
    expect(filesWith(before.folder, canaries)).not.toEqual([]);
    expect(await line.planning('copy', '--to', after.url)).toMatchObject({ exitCode: 0, stderr: '' });

    const folder = temporaryFolder();
    const replica = openReplicaFile({
      path: join(folder, 'replica.db'),
      primaryUrl: after.url,
      intervalMs: 50,
      environment: process.env,
      isPrimaryReachable: async () => true,
      onSyncChange: () => undefined,
    });
    await until(() =>
      replica.read("SELECT count(*) AS count FROM users WHERE id = 'ada'").then(
        ({ rows }) => rows[0]?.count === 1,
        () => false,
      ),
    );
    replica.close();
    expect(filesWith(after.folder, ['Ada'])).not.toEqual([]);
    expect(filesWith(folder, ['Ada'])).not.toEqual([]);
    expect([filesWith(after.folder, canaries), filesWith(folder, canaries)]).toEqual([[], []]);
  }, 30_000);
});

describe('F17 a migration of a file', () => {
  /** A database of an earlier build with one user. */
  async function earlierDatabase() {
    const path = join(temporaryFolder(), 'planning.db');
    const db = await openDatabase({ url: `file:${path}`, timeoutMs: 5_000 });
    await migrateDatabase(db, await earlierMigrations(11));
    await db.$client.execute("INSERT INTO users (id, version, created_at, updated_at) VALUES ('ada', 1, 0, 0)");
    await closeDatabase(db);
    const backups = () => readdirSync(dirname(path)).filter((name) => name.includes('.before-migration-'));
    return { path, backups, url: `file:${path}` };
  }

  test('F17 a migration makes a checked backup of the old schema first, in the command and in the start', async () => {
    for (const migrate of ['command', 'start'] as const) {
      const { path, backups, url } = await earlierDatabase();
      if (migrate === 'command') {
        const { planning } = await createCommandLine({ DATABASE_URL: url }, { isEmpty: true, isProcess: true });
        const { exitCode, stdout } = await planning('migrate');
        expect({ exitCode, stdout }).toEqual({
          exitCode: 0,
          stdout: expect.stringMatching(/^The backup is in \S+planning\.db\.before-migration-\S+Z\.\nApplied /),
        });
        expect(await planning('migrate')).toMatchObject({ stdout: expect.stringContaining('Nothing to do') });
      } else {
        const service = await startService({ environment: { DATABASE_URL: url } });
        service.process.kill('SIGTERM');
        await service.process.exited;
      }
      const [backup = '', ...more] = backups();
      expect(more).toEqual([]);
      const file = join(dirname(path), backup);
      expect(statSync(file).mode & 0o777).toBe(0o600);
      expect((await examineCopy(file, undefined)).schema).toStartWith('0010');
    }
  }, 60_000);

  test('F17 a repair makes a backup first, and none when there is nothing to repair', async () => {
    const { planning, cwd } = await createCommandLine({}, { isProcess: true });
    const folder = join(cwd, 'data');
    const backups = () => readdirSync(folder).filter((name) => name.includes('.before-migration-'));
    expect(await planning('migrate', '--repair')).toMatchObject({ exitCode: 0 });
    expect(backups()).toEqual([]);
    const url = `file:${join(folder, 'planning.db')}`;
    change({ url }, 'DROP INDEX applications_open');
    expect(await planning('migrate', '--repair')).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/^The backup is in \S+\.\nRestored index applications_open\./),
    });
    const [backup = '', ...more] = backups();
    expect(more).toEqual([]);
    const indexes = async (name: string) => {
      const db = await openDatabase({ url: `file:${join(folder, name)}`, timeoutMs: 5_000 });
      const found = await db.$client.execute("SELECT 1 FROM sqlite_schema WHERE name = 'applications_open'");
      await closeDatabase(db);
      return found.rows.length;
    };
    expect([await indexes(backup), await indexes('planning.db')]).toEqual([0, 1]);
  }, 60_000);

  test('F17 a migration makes no backup of a new database, or when the operator disables it', async () => {
    const flag = await earlierDatabase();
    const { planning } = await createCommandLine({ DATABASE_URL: flag.url }, { isEmpty: true, isProcess: true });
    expect(await planning('migrate', '--no-backup')).toMatchObject({ exitCode: 0 });
    const setting = await earlierDatabase();
    const line = await createCommandLine(
      { DATABASE_URL: setting.url, DATABASE_MIGRATION_BACKUP: 'false' },
      { isEmpty: true, isProcess: true },
    );
    expect(await line.planning('migrate')).toMatchObject({ exitCode: 0 });
    expect([...flag.backups(), ...setting.backups()]).toEqual([]);
    const fresh = await createCommandLine({}, { isEmpty: true, isProcess: true });
    expect(await fresh.planning('migrate')).toMatchObject({ exitCode: 0 });
    expect(readdirSync(join(fresh.cwd, 'data')).filter((name) => name.includes('before'))).toEqual([]);
  }, 60_000);

  test('F17 a migration changes nothing when its backup fails', async () => {
    const { path, backups, url } = await earlierDatabase();
    change({ url }, 'CREATE TABLE ballast (bytes)', 'INSERT INTO ballast VALUES (randomblob(4000000))');
    const before = await Bun.file(path).bytes();
    // A larger write fails, as on a full disk.
    const limited = Bun.spawnSync(
      [
        'sh',
        '-c',
        `trap '' XFSZ; ulimit -f 2000; exec "$@"`,
        'sh',
        process.execPath,
        await programOf('src/cli/main'),
        'migrate',
      ],
      { env: { PATH: process.env.PATH, DATABASE_URL: url } },
    );
    expect(limited.stderr.toString()).toContain('nothing was migrated');
    expect(limited.exitCode).toBe(1);
    expect(backups()).toEqual([]);
    expect((await examineCopy(path, undefined)).schema).toStartWith('0010');
    expect(before.length).toBe(statSync(path).size);
  }, 30_000);
});

describe('F23 a signal', () => {
  test('ends a backup with its exit code, and leaves no file', async () => {
    const source = await database('file');
    const megabytes = amount({ long: 300, short: 60 });
    change(
      source,
      'CREATE TABLE ballast (bytes)',
      ...Array.from({ length: megabytes }, () => 'INSERT INTO ballast VALUES (randomblob(1000000))'),
    );
    const line = await createCommandLine(settingsOf(source), { isEmpty: true, isProcess: true });
    for (const [signal, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
      ['SIGHUP', 129],
      ['SIGQUIT', 131],
    ] as const) {
      const command = line.start('backup', 'backup.db');
      await until(() => readdirSync(line.cwd).length > 0);
      const startedAtMs = performance.now();
      command.kill(signal);
      expect(await command.exited).toBe(code);
      const tookMs = performance.now() - startedAtMs;
      expect(await new Response(command.stderr).text()).toBe('Interrupted; nothing was changed.\n');
      expect(readdirSync(line.cwd)).toEqual([]);
      // The requirement is one second on an idle machine.
      expect(tookMs).toBeLessThan(5_000);
      if (isLong) process.stderr.write(`${signal} after ${Math.round(tookMs)} ms with ${megabytes} MB\n`);
    }
  }, 120_000);
});
