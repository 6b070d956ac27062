import { describe, expect, test } from 'bun:test';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { Command } from 'commander';
import { type CommandName, partsOf, settingsFor } from '../../src/cli/context';
import { createProgram } from '../../src/cli/main';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { demoCemeteries, demoStaff } from '../../src/modules/demo-data/store';
import { findDemoTraces, seedDemo } from '../../src/seed';
import { programOf } from '../support/artifacts';
import { createCommandLine, refusalOf } from '../support/command';
import { earlierMigrations } from '../support/database';
import { createProduction, failToStart, productionSettings, startService } from '../support/processes';
import { atEnd, runToEnd, temporaryFolder } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const now = new Date('2026-03-10T12:00:00Z');
const { NODE_ENV, ...withoutMode } = productionSettings;

/** Runs the bundle with only this environment. */
async function runBundle(
  entryPoint: 'src/main' | 'src/cli/main',
  cwd: string,
  environment: Record<string, string>,
  ...args: string[]
) {
  const child = Bun.spawn([process.execPath, await programOf(entryPoint), ...args], {
    cwd,
    env: { PATH: process.env.PATH, PORT: '0', ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  // Only a start that continues beyond these checks needs this.
  const timer = setTimeout(() => child.kill('SIGTERM'), 60_000);
  const ended = await runToEnd(child);
  clearTimeout(timer);
  return ended;
}

const databaseIn = (path: string) => openDatabase({ url: `file:${path}`, timeoutMs: 5_000 });

async function rowsIn(path: string) {
  const db = await databaseIn(path);
  const count = async (table: string) => (await db.$client.execute(`SELECT count(*) FROM ${table}`)).rows[0]?.[0];
  const rows = {
    cemeteries: await count('cemeteries'),
    staff: await count('staff'),
    activities: await count('activities'),
    ...(await findDemoTraces(db)),
  };
  db.$client.close();
  return rows;
}

/** Adds rows to a database file as an earlier build did, without a mark. */
async function addDemoRows(path: string, ...statements: string[]) {
  const db = await databaseIn(path);
  await seedDemo(db, now);
  for (const statement of statements) await db.$client.execute(statement);
  db.$client.close();
}

/** The names and bytes of the files in a folder. */
const contentsOf = (folder: string) =>
  readdirSync(folder)
    .sort()
    .map((name) => [name, Bun.hash(readFileSync(join(folder, name))).toString(), statSync(join(folder, name)).mtimeMs]);

describe('F2 demo data', () => {
  const none = { cemeteries: 0, staff: 0, activities: 0, hasRows: false, isMarked: false };

  test('F2 never enters a database without a mark, in any mode', async () => {
    const { cwd, planning, write } = await createCommandLine();
    const path = join(cwd, 'data/planning.db');
    await write('staff.json', '[]');
    for (const args of [['migrate'], ['seed'], ['import', 'staff', 'staff.json']]) await planning(...args);
    const service = await startService({ cwd });
    service.process.kill('SIGTERM');
    await service.process.exited;
    expect(await rowsIn(path)).toEqual(none);
  });

  test('F2 causes an error with SEED_DEMO=true in a database without a mark', async () => {
    const { cwd, planning } = await createCommandLine({ SEED_DEMO: 'true' });
    for (const command of ['migrate', 'seed']) {
      const { exitCode, stderr } = await planning(command);
      expect({ command, exitCode }).toEqual({ command, exitCode: 1 });
      expect(stderr).toContain('this database was not created for development');
    }
    expect(await rowsIn(join(cwd, 'data/planning.db'))).toEqual(none);
  });

  test('F2 enters a database that a development start, or a command with SEED_DEMO=true, creates', async () => {
    const started = await startService();
    started.process.kill('SIGTERM');
    await started.process.exited;
    const marked = { cemeteries: 12, staff: 5, hasRows: true, isMarked: true };
    const [, path = ''] = /data {5}(\S+)/.exec(started.output()) ?? [];
    expect(await rowsIn(path)).toMatchObject(marked);
    const { cwd, planning } = await createCommandLine({ SEED_DEMO: 'true' }, { isEmpty: true });
    expect((await planning('migrate')).exitCode).toBe(0);
    expect(await rowsIn(join(cwd, 'data/planning.db'))).toMatchObject(marked);
  });

  test.skipIf(!hasSqld)('F2 does not enter a new libSQL server by a command in development', async () => {
    const { url } = await startSqld();
    const { planning } = await createCommandLine({ DATABASE_URL: url }, { isEmpty: true });
    expect((await planning('migrate')).stdout).toContain('is created, migrated and seeded');
    expect((await planning('seed')).exitCode).toBe(0);
    expect((await planning('demo', 'remove', '--dry-run')).stdout).toContain('There is no demo data to remove');
  });

  test('F2 appears in a production start and in doctor, and disappears with demo remove', async () => {
    const production = await createProduction({}, { isEmpty: true });
    const { cwd, planning, databasePath } = production;
    const development = await startService({ cwd });
    development.process.kill('SIGTERM');
    await development.process.exited;
    const service = await production.start();
    expect(service.logLines().map(({ level, msg }) => `${level} ${msg}`)).toContain(
      'warn development created this database: run planning doctor',
    );
    service.process.kill('SIGTERM');
    await service.process.exited;

    const doctor = await planning('doctor');
    expect(doctor.exitCode).toBe(1);
    expect(doctor.stdout).toMatch(
      /^failed +demo data +the database is marked for development, and has 12 demo cemeteries, 5 demo staff, \d+ demo activities: run `planning demo remove`$/m,
    );
    const before = await rowsIn(databasePath);
    const dryRun = await planning('demo', 'remove', '--dry-run');
    expect(dryRun.stdout).toContain(`${databasePath} has 12 demo cemeteries, 5 demo staff,`);
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

  test('F2 keeps its rows that others refer to or that an operator changed', async () => {
    const { planning, databasePath } = await createProduction();
    await addDemoRows(
      databasePath,
      "INSERT INTO users (id, counselor_id, version, created_at, updated_at) VALUES ('ada', 'demo-counselor-1', 1, 0, 0)",
      "INSERT INTO staff VALUES ('own', 'counselor', 'Own', 'Person', 'demo-manager', 0, 0, 0)",
      "INSERT INTO activities VALUES ('own-1', 'demo-counselor-2', 'demo-manager', 'quote', 100, 0, 0, 0, 0)",
      "UPDATE cemeteries SET name = 'Ours' WHERE external_id = 'demo-01'",
      "UPDATE staff SET first_name = 'Ours' WHERE id = 'demo-counselor-4'",
    );
    expect((await planning('doctor')).stdout).toMatch(
      /^failed +demo data +the database has 11 demo cemeteries, 1 demo/m,
    );
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
    expect((await planning('doctor')).stdout).toMatch(
      /^warning +demo data +demo staff is still in use: demo-counselor-1,/m,
    );
    await planning('user', 'assign', 'ada', '--none');
    expect(JSON.parse((await planning('demo', 'remove', '--yes', '--json')).stdout)).toMatchObject({
      staff: ['demo-counselor-1'],
    });
  });
});

describe('F3 a production start', () => {
  test.each<[string, (path: string) => void, string]>([
    ['a missing file', () => undefined, 'There is no database at PATH.'],
    ['a file of 0 bytes', (path) => writeFileSync(path, ''), 'The database file PATH is empty (0 bytes).'],
  ])('F3 ends with one line and creates nothing on %s; doctor and commands agree', async (_, prepare, reason) => {
    const { cwd, settings, planning, databasePath } = await createProduction({}, { isEmpty: true });
    mkdirSync(join(cwd, 'data'));
    prepare(databasePath);
    const before = contentsOf(join(cwd, 'data'));
    const started = await failToStart({ cwd, environment: settings });
    const sentence = reason.replace('PATH', databasePath);
    expect(started.exitCode).toBe(1);
    expect(started.stderr).toBe(`${sentence} Run \`planning migrate\` to create it, or correct DATABASE_URL.\n`);
    const doctor = await planning('doctor');
    expect(doctor.exitCode).toBe(1);
    expect(doctor.stdout).toContain(`database    ${sentence} If the path is right, \`planning migrate\` creates it.`);
    expect(await planning('seed')).toMatchObject({
      exitCode: 1,
      stderr: `${sentence} Run \`planning migrate\` first.\n`,
    });
    expect(contentsOf(join(cwd, 'data'))).toEqual(before);
    expect((await planning('migrate')).stdout).toContain(
      `The database ${databasePath} is created, migrated and seeded.`,
    );
  });

  test('F3 names the directory and the path when the directory is wrong', async () => {
    const { settings } = await createProduction();
    const wrong = temporaryFolder();
    const { exitCode, stdout, stderr } = await failToStart({ cwd: wrong, environment: settings });
    expect(exitCode).toBe(1);
    expect(stdout).toContain(`"folder":"${wrong}"`);
    expect(stderr).toStartWith(`There is no database at ${join(wrong, 'data/planning.db')}.`);
    expect(readdirSync(wrong)).toEqual([]);
  });

  test('F3 ends with one line on a database without tables', async () => {
    const { cwd, settings, databasePath } = await createProduction({}, { isEmpty: true });
    (await databaseIn(databasePath)).$client.close();
    const { exitCode, stderr } = await failToStart({ cwd, environment: settings });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringMatching(/^The database .* has no tables\. .*\n$/),
    });
  });

  test('F3 does not apply in development, which logs the path of the database that it creates', async () => {
    const cwd = temporaryFolder();
    const first = await startService({ cwd });
    const path = join(cwd, 'data/planning.db');
    expect(first.output()).toMatch(/^{"level":"warn".*"msg":"a new database is created"}$/m);
    expect(first.output()).toContain(`"database":"${path}","msg":"a new database is created"`);
    first.process.kill('SIGTERM');
    await first.process.exited;
    expect((await startService({ cwd })).output()).not.toContain('a new database is created');
  });
});

describe('F10 the mode', () => {
  test('F10 defaults to production in the bundle, and the start names the sources of its settings', async () => {
    const production = await createProduction();
    const { CHAT_ID, ...environment } = withoutMode;
    await production.write('other.env', `CHAT_ID=${CHAT_ID}\nLOG_LEVEL=debug\n`);
    const bare = await runBundle('src/main', production.cwd, {});
    expect(bare.exitCode).toBe(1);
    expect(bare.stderr).toContain('AUTH_ISSUER must be set in production');
    expect(bare.stderr).toEndWith(
      `The mode is production. Settings came from the environment; there is no .env file in ${production.cwd}.\n`,
    );
    await production.write('.env', 'DATABASE_URL=file:elsewhere.db\n');
    const fromDotEnv = await runBundle('src/main', production.cwd, { ...environment, CHAT_ID });
    expect(fromDotEnv.stdout).toContain(
      `"mode":"production","settings":["environment","${join(production.cwd, '.env')}"],"folder":"${production.cwd}"`,
    );
    expect(fromDotEnv.stderr).toStartWith(`There is no database at ${join(production.cwd, 'elsewhere.db')}.`);
    // A named file replaces .env, and the environment overrides it.
    const service = await startService({
      cwd: production.cwd,
      args: ['--env-file', 'other.env'],
      environment: { ...environment, NODE_ENV: 'production', LOG_LEVEL: 'info' },
    });
    const [line] = service.output().split('\n');
    expect(JSON.parse(line ?? '')).toMatchObject({
      level: 'info',
      mode: 'production',
      settings: ['environment', join(production.cwd, 'other.env')],
      folder: production.cwd,
      msg: 'starting',
    });
    expect(service.output()).not.toContain('"level":"debug"');
  });

  test('F10 becomes development in the bundle with NODE_ENV=development or --demo', async () => {
    const service = await startService({ environment: { NODE_ENV: 'development' } });
    expect(service.output()).toContain('mode     development, with settings from the environment\n');
    const cwd = temporaryFolder();
    const demo = Bun.spawn([process.execPath, await programOf('src/main'), '--demo'], {
      cwd,
      env: { PATH: process.env.PATH, PORT: '0' },
      stdout: 'pipe',
    });
    atEnd(() => demo.kill('SIGKILL'));
    let output = '';
    for await (const chunk of demo.stdout.pipeThrough(new TextDecoderStream())) {
      output += chunk;
      if (output.includes('Try it')) break;
    }
    expect(output).toContain('mode     development,');
    expect(output).not.toContain('"level":"warn"');
  });

  test('F10 must be set for the bundle when a file of one mode exists', async () => {
    const cwd = temporaryFolder();
    writeFileSync(join(cwd, '.env.production'), 'PORT=0\n');
    const { exitCode, stderr } = await runBundle('src/main', cwd, withoutMode);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(
      `NODE_ENV must be set in the environment, because ${join(cwd, '.env.production')} is there`,
    );
  });

  test.each(['', 'prod'])('F10 does not appear when NODE_ENV is invalid: %j', async (mode) => {
    const cwd = temporaryFolder();
    for (const start of ['src/main', 'src/cli/main'] as const) {
      const args = start === 'src/main' ? [] : ['seed'];
      const { exitCode, stderr } = await runBundle(start, cwd, { ...withoutMode, NODE_ENV: mode }, ...args);
      expect(exitCode).toBe(1);
      expect(stderr).toStartWith('These settings cannot be used:\n  NODE_ENV must be development or production\n');
      expect(stderr).not.toContain('The mode is');
    }
  });

  test('F10 --env-file works for commands, and names a file that cannot be read or that is ambiguous', async () => {
    const { cwd } = await createCommandLine();
    const run = (...args: string[]) => runBundle('src/cli/main', cwd, {}, ...args);
    writeFileSync(join(cwd, '.env'), 'DATABASE_URL=file:elsewhere.db\n');
    writeFileSync(join(cwd, 'my.env'), 'DATABASE_URL=file:data/planning.db\nDATABASE_TIMEOUT_MS=2000 # enough\n');
    writeFileSync(join(cwd, 'bad.env'), 'DATABASE_URL="file:data\n');
    expect((await run('seed')).stderr).toContain(join(cwd, 'elsewhere.db'));
    expect(await run('seed', '--env-file', 'my.env')).toMatchObject({ exitCode: 0 });
    expect(await run('--env-file', 'my.env', 'seed')).toMatchObject({ exitCode: 0 });
    for (const start of ['src/cli/main', 'src/main'] as const) {
      const args = [...(start === 'src/main' ? [] : ['seed']), '--env-file'];
      const missing = await runBundle(start, cwd, {}, ...args, 'none.env');
      expect(missing.exitCode).toBe(1);
      expect(missing.stderr).toContain(`--env-file names ${join(cwd, 'none.env')}, which cannot be read (ENOENT)`);
      const folder = await runBundle(start, cwd, {}, ...args, 'data');
      expect(folder.exitCode).toBe(1);
      expect(folder.stderr).toContain(`--env-file names ${join(cwd, 'data')}, which is a folder`);
      const bad = await runBundle(start, cwd, {}, ...args, 'bad.env');
      expect(bad.exitCode).toBe(1);
      expect(bad.stderr).toContain('DATABASE_URL in bad.env is not read as it is written');
    }
  });
});

describe('F17 a start that cannot listen', () => {
  const hasNoPrivilege = process.getuid?.() === 0 && Bun.which('setpriv') !== null;

  /** A folder with a database of an older schema, which a start would migrate. */
  async function setUp() {
    const cwd = temporaryFolder();
    mkdirSync(join(cwd, 'data'));
    // A copy, because the driver removes the WAL of a closed database some time later.
    const older = join(temporaryFolder(), 'planning.db');
    const db = await databaseIn(older);
    await migrateDatabase(db, await earlierMigrations(5));
    await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
    db.$client.close();
    copyFileSync(older, join(cwd, 'data/planning.db'));
    return { cwd, before: contentsOf(join(cwd, 'data')) };
  }

  test('F17 ends with one line on a port in use, and leaves the database unchanged', async () => {
    const { cwd, before } = await setUp();
    const plain = createServer().listen(0, '127.0.0.1');
    // Another program in Bun may share its port; this service must not join it.
    const sharing = Bun.serve({ hostname: '127.0.0.1', port: 0, reusePort: true, fetch: () => new Response() });
    const address = plain.address();
    for (const port of [typeof address === 'object' ? address?.port : undefined, sharing.port]) {
      for (const HOST of ['127.0.0.1', '0.0.0.0', 'localhost']) {
        const environment = { ...productionSettings, PORT: String(port), HOST };
        const { exitCode, stderr } = await failToStart({ cwd, environment });
        expect({ exitCode, stderr }).toEqual({
          exitCode: 1,
          stderr: `The service cannot listen on ${HOST}:${port} (EADDRINUSE). Another program does; set PORT to a free one.\n`,
        });
      }
    }
    plain.close();
    await sharing.stop(true);
    expect(contentsOf(join(cwd, 'data'))).toEqual(before);
  });

  test('F17 ends with one line on an address that the machine lacks, also for port 0', async () => {
    const { cwd, before } = await setUp();
    for (const PORT of ['3999', '0']) {
      const environment = { ...productionSettings, PORT, HOST: '203.0.113.1' };
      const { exitCode, stderr } = await failToStart({ cwd, environment });
      expect({ exitCode, stderr }).toEqual({
        exitCode: 1,
        stderr: `The service cannot listen on 203.0.113.1:${PORT} (EADDRNOTAVAIL). This machine does not have that address; set HOST to one that it has.\n`,
      });
    }
    expect(contentsOf(join(cwd, 'data'))).toEqual(before);
  });

  test.skipIf(!hasNoPrivilege)('F17 ends with one line on a privileged port', async () => {
    const main = await programOf('src/main');
    const drop = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs'];
    const { cwd, before } = await setUp();
    const child = Bun.spawn([...drop, process.execPath, main], {
      cwd,
      env: { PATH: process.env.PATH, ...productionSettings, PORT: '81' },
      stdout: 'pipe',
      stderr: 'pipe',
    });
    const { exitCode, stderr } = await runToEnd(child);
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr:
        'The service cannot listen on 127.0.0.1:81 (EACCES). This user may not use that port; set PORT to another one.\n',
    });
    expect(contentsOf(join(cwd, 'data'))).toEqual(before);
  });
});

describe('F20 a command', () => {
  const commandsIn = (command: Command, before: readonly string[] = []): { name: string; isLeaf: boolean }[] =>
    command.commands.flatMap((each) => {
      const path = [...before, each.name()];
      return [{ name: path.join(' '), isLeaf: each.commands.length === 0 }, ...commandsIn(each, path)];
    });

  test('F20 appears in the table of settings, except doctor, which checks all, and catalog schema, which needs none', () => {
    const all = commandsIn(createProgram());
    const leaves = all.filter(({ isLeaf }) => isLeaf).map(({ name }) => name);
    expect(leaves.filter((name) => !(name in partsOf)).sort()).toEqual(['catalog schema', 'doctor']);
    expect(Object.keys(partsOf).filter((name) => !all.some((each) => each.name === name))).toEqual([]);
  });

  /** Arguments with which each command succeeds. */
  const argumentsOf: Partial<Record<CommandName, readonly string[]>> = {
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
    copy: ['--to', 'file:copied.db'],
    rekey: ['--new-key-file', 'key', '--yes'],
  };
  /** In an order in which each can run after the ones before. */
  const names = Object.keys(partsOf).filter((name): name is CommandName => name in partsOf);

  test('F20 runs in production with only the settings that it uses, beside invalid ones that it does not use', async () => {
    const { cwd, write } = await createCommandLine();
    const [cemetery] = demoCemeteries;
    const [manager] = demoStaff;
    const activity = { externalId: '1', staffId: manager?.id, kind: 'quote', amount: '1.00', occurredAt: '2026-01-01' };
    await write('cemeteries.json', JSON.stringify([cemetery]));
    await write('staff.json', JSON.stringify([manager]));
    await write('activities.json', JSON.stringify([activity]));
    await write('person.json', '{}');
    await write('key', 'Vq3xN8mZ0tB6yK1rL9dW4sH7jF2pG5cA\n');
    const db = await databaseIn(join(cwd, 'data/planning.db'));
    await db.$client.execute("INSERT INTO users (id, version, created_at, updated_at) VALUES ('ada', 1, 0, 0)");
    db.$client.close();
    const good: Readonly<Record<string, string>> = { ...productionSettings, DATABASE_URL: 'file:data/planning.db' };
    const bad = { PORT: 'x', LOG_LEVEL: '', BODY_LIMIT_BYTES: '1' };
    const last = ['user erase', 'rekey'];
    const inOrder = [...names.filter((name) => !last.includes(name)), ...names.filter((name) => last.includes(name))];
    for (const name of inOrder) {
      // This command runs until it is stopped.
      if (name === 'carrier') continue;
      const used = settingsFor(name).filter((key) => key in good);
      const environment = {
        ...bad,
        ...Object.fromEntries(used.map((key) => [key, good[key] ?? ''])),
        NODE_ENV: 'production',
      };
      const args = [...name.split(' '), ...(argumentsOf[name] ?? [])];
      const { exitCode, stderr } = await runBundle('src/cli/main', cwd, environment, ...args);
      const isDone = exitCode === 0 || stderr === 'There is no application with this id.\n';
      expect({ name, isDone, stderr: isDone ? '' : stderr }).toEqual({ name, isDone: true, stderr: '' });
    }
  }, 60_000);

  test.each(Object.keys(partsOf))('F20 %s reports an invalid setting that it uses', async (name) => {
    const [command = 'migrate'] = names.filter((each) => each === name);
    const [key = ''] = settingsFor(command);
    const args = [...command.split(' '), ...(argumentsOf[command] ?? [])];
    expect(await refusalOf({ [key]: '' }, ...args)).toContain(`  ${key} must`);
  });
});
