/** Which database and settings a start or a command accepts. */
import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { Command } from 'commander';
import { type CommandName, partsOf, settingsFor } from '../../src/cli/context';
import { createProgram } from '../../src/cli/main';
import { closeDatabase, openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import * as lists from '../../src/db/schema/lists';
import { demoCemeteries, demoStaff } from '../../src/modules/demo-data/store';
import { findDemoTraces, seedDemo } from '../../src/seed';
import { createCommandLine, refusalOf, runInProcess } from '../support/command';
import { copyTemplate, earlierMigrations, keys } from '../support/database';
import {
  createDeployment,
  createKilledDeployment,
  openInProcess,
  productionSettings,
  refusedStart,
} from '../support/processes';
import { contentsOf, never, temporaryFolder } from '../support/resources';

const development = { NODE_ENV: 'development' };
const databaseIn = (path: string) => openDatabase({ url: `file:${path}`, timeoutMs: 5_000 });

async function changeRows(path: string, ...statements: string[]) {
  const db = await databaseIn(path);
  await db.$client.batch(statements, 'write');
  db.$client.close();
}

async function rowsIn(path: string) {
  const db = await databaseIn(path);
  const [cemeteries, staff, activities] = await Promise.all([
    db.$count(lists.cemeteries),
    db.$count(lists.staff),
    db.$count(lists.activities),
  ]);
  const rows = { cemeteries, staff, activities, ...(await findDemoTraces(db)) };
  db.$client.close();
  return rows;
}

describe('demo data', () => {
  const none = { cemeteries: 0, staff: 0, activities: 0, hasRows: false, isMarked: false };
  const marked = { cemeteries: 12, staff: 5, hasRows: true, isMarked: true };

  test('never enters a database without a mark, with an error for SEED_DEMO=true', async () => {
    const { planning, write, databasePath, settings, cwd } = await createDeployment(development);
    await write('staff.json', JSON.stringify([{ ...demoStaff[0], id: 'own' }]));
    for (const args of ['migrate', 'seed', 'import staff staff.json']) {
      expect(await planning(...args.split(' '))).toMatchObject({ exitCode: 0 });
    }
    await (await openInProcess(settings)).stop();
    for (const command of ['migrate', 'seed']) {
      const { exitCode, stderr } = await runInProcess({ env: { ...settings, SEED_DEMO: 'true' }, cwd }, [command]);
      expect({ command, exitCode }).toEqual({ command, exitCode: 1 });
      expect(stderr).toContain('this database was not created for development');
    }
    expect(await rowsIn(databasePath)).toEqual({ ...none, staff: 1 });
  });

  test('enters a database that a command with SEED_DEMO=true creates', async () => {
    const { planning, databasePath } = await createDeployment({ ...development, SEED_DEMO: 'true' }, { isEmpty: true });
    expect((await planning('migrate')).exitCode).toBe(0);
    expect(await rowsIn(databasePath)).toMatchObject(marked);
  });

  test('of a start in development appears in a production start and in doctor, until demo remove', async () => {
    const { start, planning, databasePath, settings } = await createDeployment({}, { isEmpty: true });
    for (const isNew of [true, false]) {
      const service = await openInProcess({ ...settings, ...development });
      await service.stop();
      const lines = service.logLines().filter(({ msg }) => msg === 'a new database is created');
      expect(lines).toMatchObject(isNew ? [{ level: 'warn', database: databasePath }] : []);
    }
    expect(await rowsIn(databasePath)).toMatchObject(marked);
    const service = await start();
    expect(service.logLines().map(({ level, msg }) => `${level} ${msg}`)).toContain(
      'warn development created this database: run planning doctor',
    );
    await service.stop();

    const doctor = await planning('doctor');
    expect(doctor.exitCode).toBe(1);
    expect(doctor.stdout).toMatch(
      /^failed +demo data +the database is marked for development, and has 12 demo cemeteries, 5 demo staff, \d+ demo activities: run `bun planning demo remove`$/m,
    );
    const before = await rowsIn(databasePath);
    const { stdout } = await planning('demo', 'remove', '--dry-run');
    expect(stdout).toContain(`${databasePath} has 12 demo cemeteries, 5 demo staff,`);
    expect((await planning('demo', 'remove')).stderr).toContain('Nothing was removed');
    expect(await rowsIn(databasePath)).toEqual(before);
    expect((await planning('demo', 'remove', '--yes')).stdout).toContain('no longer marked for development');
    expect(await rowsIn(databasePath)).toEqual(none);
    expect((await planning('doctor')).stdout).not.toContain('demo data');
    const audit = JSON.parse((await planning('audit', 'demo-counselor-1', '--json')).stdout);
    expect(audit.events).toContainEqual(
      expect.objectContaining({ action: 'erased', section: 'staff', actor: 'operator', actorId: expect.any(String) }),
    );
  });

  test('keeps its rows that others refer to or that an operator changed', async () => {
    const { planning, databasePath } = await createDeployment();
    // An earlier build left no mark.
    const seeding = await databaseIn(databasePath);
    await seedDemo(seeding, new Date('2026-03-10T12:00:00Z'));
    seeding.$client.close();
    await changeRows(
      databasePath,
      "INSERT INTO users (id, counselor_id, version, created_at, updated_at) VALUES ('ada', 'demo-counselor-1', 1, 0, 0)",
      "INSERT INTO staff VALUES ('own', 'counselor', 'Own', 'Person', 'demo-manager', 0, 0, 0)",
      "INSERT INTO activities VALUES ('own-1', 'demo-counselor-2', 'demo-manager', 'quote', 100, 0, 0, 0, 0)",
      "UPDATE cemeteries SET name = 'Ours' WHERE external_id = 'demo-01'",
      "UPDATE staff SET first_name = 'Ours' WHERE id = 'demo-counselor-4'",
    );
    const foundByDoctor = async () => /^(\w+) +demo data +(.+)$/m.exec((await planning('doctor')).stdout)?.slice(1);
    expect(await foundByDoctor()).toEqual([
      'failed',
      expect.stringMatching(/^the database has 11 demo cemeteries, 1 demo/),
    ]);
    const removed = await planning('demo', 'remove', '--yes', '--json');
    expect(JSON.parse(removed.stdout)).toMatchObject({
      isRemoved: true,
      cemeteries: 11,
      staff: ['demo-counselor-3'],
      referredStaff: ['demo-counselor-1', 'demo-counselor-2', 'demo-manager'],
    });
    expect(await rowsIn(databasePath)).toMatchObject({ cemeteries: 1, staff: 5, activities: 1 });
    const db = await databaseIn(databasePath);
    expect((await db.$client.execute('PRAGMA foreign_key_check')).rows).toEqual([]);
    db.$client.close();
    expect(await foundByDoctor()).toEqual([
      'warning',
      expect.stringMatching(/^demo staff is still in use: demo-counselor-1,/),
    ]);
    await planning('user', 'assign', 'ada', '--none');
    expect(JSON.parse((await planning('demo', 'remove', '--yes', '--json')).stdout)).toMatchObject({
      staff: ['demo-counselor-1'],
    });
  });
});

describe('a start without a database', () => {
  test.each<[string, string | undefined, string]>([
    ['a missing file', undefined, 'There is no database at PATH.'],
    ['a file of 0 bytes', '', 'The database file PATH is empty (0 bytes).'],
  ])(
    'ends with one line and creates nothing in production, as doctor and commands do: %s',
    async (_, content, reason) => {
      const { cwd, refusedStart, planning, databasePath } = await createDeployment({}, { isEmpty: true });
      mkdirSync(join(cwd, 'data'));
      if (content !== undefined) writeFileSync(databasePath, content);
      const before = contentsOf(join(cwd, 'data'));
      const sentence = reason.replace('PATH', databasePath);
      expect(await refusedStart()).toBe(
        `${sentence} Run \`bun planning migrate\` to create it, or correct DATABASE_URL.`,
      );
      expect(await planning('doctor')).toMatchObject({
        exitCode: 1,
        stdout: expect.stringContaining(
          `database    ${sentence} If the path is right, \`bun planning migrate\` creates it.`,
        ),
      });
      expect(await planning('seed')).toMatchObject({
        exitCode: 1,
        stderr: `${sentence} Run \`bun planning migrate\` first.\n`,
      });
      expect(contentsOf(join(cwd, 'data'))).toEqual(before);
      const created = `The database ${databasePath} is created, migrated and seeded.`;
      expect((await planning('migrate')).stdout).toContain(created);
    },
  );
});

describe('a start with the wrong key', () => {
  const encrypted = { DATABASE_ENCRYPTION_KEY: keys.right };

  test.each<[string, Record<string, string>, Record<string, string>, string]>([
    ['another key', encrypted, { DATABASE_ENCRYPTION_KEY: keys.wrong }, 'DATABASE_ENCRYPTION_KEY does not open it'],
    ['no key', encrypted, {}, 'encrypted, and DATABASE_ENCRYPTION_KEY is not set'],
    ['a key for a plain file', {}, encrypted, 'not encrypted, but DATABASE_ENCRYPTION_KEY is set'],
  ])('names the setting, as commands do, and loses no save of a killed service: %s', async (_, key, other, reason) => {
    const { planning, databaseUrl, history } = await createKilledDeployment(key);
    const elsewhere = await createDeployment({ ...other, DATABASE_URL: databaseUrl }, { isEmpty: true });
    expect(await elsewhere.refusedStart()).toContain(reason);
    for (const command of ['user show ada', 'backup b.db', 'doctor', 'migrate', 'seed']) {
      const ended = await elsewhere.planning(...command.split(' '));
      expect({ command, exitCode: ended.exitCode }).toEqual({ command, exitCode: 1 });
      expect(ended.stderr + ended.stdout).toContain(reason);
    }
    expect(existsSync(join(elsewhere.cwd, 'b.db'))).toBeFalse();
    const { careCosts } = history.acknowledged.findLast(({ userId }) => userId === 'ada') ?? never();
    const shown = await planning('user', 'export', 'ada');
    expect(shown).toMatchObject({ exitCode: 0, stdout: expect.stringContaining(`"careCosts": ${careCosts}`) });
    const state = key === encrypted ? 'it is encrypted' : 'it is not encrypted';
    expect((await planning('doctor')).stdout).toContain(`; ${state}`);
  });
});

describe('NODE_ENV', () => {
  test.each(['', 'prod'])('is refused by a start and a command: %j', async (NODE_ENV) => {
    const message = 'These settings cannot be used:\n  NODE_ENV must be development or production\n';
    const { planning } = await createDeployment({ NODE_ENV }, { isEmpty: true });
    for (const text of [await refusedStart({ NODE_ENV }), (await planning('seed')).stderr]) {
      expect(text).toStartWith(message);
      expect(text).not.toContain('The mode is');
    }
  });
});

test.each([
  ['none.env', (path: string) => `--env-file names ${path}, which cannot be read (ENOENT)`],
  ['folder', (path: string) => `--env-file names ${path}, which is a folder`],
  ['bad.env', () => 'bad.env is not read as it is written'],
])('a start names the file of --env-file that cannot be read or that is ambiguous: %s', async (name, wordsOf) => {
  const cwd = temporaryFolder();
  mkdirSync(join(cwd, 'folder'));
  writeFileSync(join(cwd, 'bad.env'), 'DATABASE_URL="file:data\n');
  const path = join(cwd, name);
  expect(await refusedStart({}, ['--env-file', path])).toContain(wordsOf(path));
});

describe('a start that cannot listen', () => {
  /** A folder with a database of an older schema, which a start would migrate. */
  async function createOlder() {
    const folder = temporaryFolder();
    const path = join(folder, 'planning.db');
    // A copy, because the driver removes the WAL of a closed database some time later.
    const older = join(temporaryFolder(), 'planning.db');
    const db = await databaseIn(older);
    await migrateDatabase(db, await earlierMigrations(5));
    await closeDatabase(db);
    copyFileSync(older, path);
    return { folder, DATABASE_URL: `file:${path}`, before: contentsOf(folder) };
  }

  test('ends with one line on a port in use, and leaves the database unchanged', async () => {
    const { folder, DATABASE_URL, before } = await createOlder();
    const plain = createServer().listen(0, '127.0.0.1');
    // Another program in Bun may share its port; this service must not join it.
    const sharing = Bun.serve({ hostname: '127.0.0.1', port: 0, reusePort: true, fetch: () => new Response() });
    const address = plain.address();
    for (const port of [typeof address === 'object' ? address?.port : undefined, sharing.port]) {
      for (const HOST of ['127.0.0.1', '0.0.0.0', 'localhost']) {
        expect(await refusedStart({ DATABASE_URL, PORT: String(port), HOST })).toBe(
          `The service cannot listen on ${HOST}:${port} (EADDRINUSE). Another program does; set PORT to a free one.`,
        );
      }
    }
    plain.close();
    await sharing.stop(true);
    expect(contentsOf(folder)).toEqual(before);
  });

  test.each(['3999', '0'])('ends with one line on an address that the machine lacks, port %s', async (PORT) => {
    const { folder, DATABASE_URL, before } = await createOlder();
    expect(await refusedStart({ DATABASE_URL, PORT, HOST: '203.0.113.1' })).toBe(
      `The service cannot listen on 203.0.113.1:${PORT} (EADDRNOTAVAIL). This machine does not have that address; set HOST to one that it has.`,
    );
    expect(contentsOf(folder)).toEqual(before);
  });
});

describe('a command', () => {
  const commandsIn = (command: Command, before: readonly string[] = []): { name: string; isLeaf: boolean }[] =>
    command.commands.flatMap((each) => {
      const path = [...before, each.name()];
      return [{ name: path.join(' '), isLeaf: each.commands.length === 0 }, ...commandsIn(each, path)];
    });

  test('is in the table of settings, except doctor, which checks all, and catalog schema, which needs none', () => {
    const all = commandsIn(createProgram());
    const leaves = all.filter(({ isLeaf }) => isLeaf).map(({ name }) => name);
    expect(leaves.filter((name) => !(name in partsOf)).sort()).toEqual(['catalog schema', 'doctor']);
    expect(Object.keys(partsOf).filter((name) => !all.some((each) => each.name === name))).toEqual([]);
  });

  /** Arguments with which each command succeeds in `cwd`. */
  const argumentsOf = (cwd: string): Partial<Record<CommandName, readonly string[]>> => ({
    token: ['--sub', 'ada'],
    'import cemeteries': ['cemeteries.json'],
    'import products': [join(import.meta.dirname, '../../src/modules/matching/shipped-catalog.json')],
    'import staff': ['staff.json'],
    'import activities': ['activities.json'],
    'user show': ['ada'],
    'user export': ['ada'],
    'user erase': ['ada', '--yes'],
    'user assign': ['ada', '--none'],
    'applications settle': ['none', '--declined', 'declined', '--yes'],
    'applications abandon': ['none', '--yes'],
    audit: ['ada'],
    'audit prune': ['--dry-run'],
    'catalog diff': ['1', '1'],
    'catalog try': ['--user', 'person.json'],
    'demo remove': ['--dry-run'],
    backup: ['backup.db'],
    restore: ['backup.db', '--yes'],
    copy: ['--to', `file:${cwd}/copied.db`],
    rekey: ['--new-key-file', join(cwd, 'key'), '--yes'],
  });
  const names = Object.keys(partsOf).filter((name): name is CommandName => name in partsOf);

  test('runs in production with only the settings that it uses, beside invalid ones that it does not use', async () => {
    const { cwd, write, databaseUrl } = await createCommandLine();
    const [cemetery] = demoCemeteries;
    const [manager] = demoStaff;
    const activity = { externalId: '1', staffId: manager?.id, kind: 'quote', amount: '1.00', occurredAt: '2026-01-01' };
    await write('cemeteries.json', JSON.stringify([cemetery]));
    await write('staff.json', JSON.stringify([manager]));
    await write('activities.json', JSON.stringify([activity]));
    await write('person.json', '{}');
    await write('key', 'Vq3xN8mZ0tB6yK1rL9dW4sH7jF2pG5cA\n');
    const insertUser = "INSERT INTO users (id, version, created_at, updated_at) VALUES ('ada', 1, 0, 0)";
    for (const name of ['erased.db', 'rekeyed.db']) await copyTemplate(join(cwd, name));
    for (const name of ['data/planning.db', 'erased.db']) await changeRows(join(cwd, name), insertUser);
    // These need a file that no connection of an earlier command has open.
    const ownFiles: Partial<Record<string, string>> = {
      restore: 'restored.db',
      rekey: 'rekeyed.db',
      'user erase': 'erased.db',
    };
    const goodFor = (name: CommandName): Readonly<Record<string, string>> => {
      const own = ownFiles[name];
      return { ...productionSettings, DATABASE_URL: own === undefined ? databaseUrl : `file:${join(cwd, own)}` };
    };
    const bad = { PORT: 'x', LOG_LEVEL: '', BODY_LIMIT_BYTES: '1' };
    for (const name of names) {
      // This command runs until it is stopped.
      if (name === 'carrier') continue;
      const good = goodFor(name);
      const used = settingsFor(name).filter((key) => key in good);
      const goodOnes = Object.fromEntries(used.map((key) => [key, good[key] ?? '']));
      const env = { ...bad, ...goodOnes, NODE_ENV: 'production' };
      const args = [...name.split(' '), ...(argumentsOf(cwd)[name] ?? [])];
      const { exitCode, stderr } = await runInProcess({ env, cwd }, args);
      const isDone = exitCode === 0 || stderr === 'There is no application with this id.\n';
      expect({ name, isDone, stderr: isDone ? '' : stderr }).toEqual({ name, isDone: true, stderr: '' });
    }
  });

  test.each(names)('reports an invalid setting that it uses: %s', async (name) => {
    const [key = ''] = settingsFor(name);
    const args = [...name.split(' '), ...(argumentsOf('/none')[name] ?? [])];
    expect(await refusalOf({ [key]: '' }, ...args)).toContain(`  ${key} must`);
  });
});
