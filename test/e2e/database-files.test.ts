/** The service as a process on database files: kills, disks, several processes, and what other programs can read. */
import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import * as v from 'valibot';
import { openWalIndex } from '../../src/db/wal';
import { UserBody } from '../../src/modules/users/model';
import { runHistory } from '../soak/history';
import { type Call, callerOf, canaryApplicant, testSecret } from '../support/app';
import { programOf } from '../support/artifacts';
import { createCommandLine, diagnose, runInProcess } from '../support/command';
import { copyTemplate, filesWith, keys, openFilesWith, temporaryDatabase } from '../support/database';
import { createSaveHistory, mountFailingDisk, mountSmallDisk } from '../support/disks';
import {
  createDeployment,
  createProduction,
  failToStart,
  type Production,
  type Service,
  startInProcess,
  startService,
} from '../support/processes';
import { amount, atEnd, never, temporaryFolder, until } from '../support/resources';
import { metricsToken, readSamples } from '../support/telemetry';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const hasStrace = Bun.which('strace') !== null;
const child = join(import.meta.dirname, '../support/child.ts');
type History = ReturnType<typeof createSaveHistory>;

let calls = 0;

/** Saves as eight users until `isOver`, or until the service is killed. */
async function saveUntil(call: Call, history: History, isOver: () => boolean): Promise<void> {
  // No value is repeated after a save without a response, because a save that changes nothing has no event.
  calls += 1;
  const firstValue = 100_000 * calls;
  const save = async (userId: string) => {
    for (let value = firstValue; !isOver(); value += 1) {
      const response = await call('POST', ltc, { as: userId, body: { careCosts: value } }).catch(() => undefined);
      // The kill came before the response.
      if (response === undefined) return;
      expect(response.status).toBe(200);
      history.note(userId, response, value);
    }
  };
  await Promise.all(Array.from({ length: 8 }, (_, index) => save(`saver-${index}`)));
}

function saveMany(call: Call, history: History, count: number): Promise<void> {
  const total = history.acknowledged.length + count;
  return saveUntil(call, history, () => history.acknowledged.length >= total);
}

/** Writes so many pages to the WAL that the next save starts a checkpoint. */
function fillLog(path: string): void {
  const file = new SqliteDatabase(path);
  file.run('PRAGMA busy_timeout = 10000');
  file.run('PRAGMA wal_autocheckpoint = 0');
  file.run('CREATE TABLE IF NOT EXISTS ballast (bytes)');
  file.run('INSERT INTO ballast VALUES (randomblob(20000000))');
  file.close();
}

async function kill({ process }: Service): Promise<void> {
  process.kill('SIGKILL');
  await process.exited;
}

function expectSound(path: string): void {
  const file = new SqliteDatabase(path);
  expect(file.query('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
  file.close();
}

describe('every acknowledged save', () => {
  test('is in the database file after a clean stop beside another instance, and in its WAL after a kill', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const [service, other] = await Promise.all([production.start(), production.start()]);
    const history = createSaveHistory();
    await saveMany(service.call, history, 50);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(service.output()).not.toContain('keep the -wal file with the database file');
    const copy = join(temporaryFolder(), 'copy.db');
    copyFileSync(path, copy);
    expect(history.faultsOf(copy)).toEqual([]);

    expect(await other.health()).toBe(200);
    const enough = history.acknowledged.length + 60;
    await saveUntil(other.call, history, () => {
      if (history.acknowledged.length > enough) other.process.kill('SIGKILL');
      return other.process.killed;
    });
    await other.process.exited;
    expect(history.faultsOf(path)).toEqual([]);
    expectSound(path);
    const restarted = await startInProcess({ ...production.settings, DATABASE_URL: `file:${path}` });
    for (const [userId, saves] of Map.groupBy(history.acknowledged, (save) => save.userId)) {
      const { body } = await restarted.call('GET', user, { as: userId });
      const stored = v.parse(UserBody, body).user.ltc.lifetimeCare?.careCosts;
      // The save without a response may be stored.
      expect(Number(stored) - Number(saves.at(-1)?.careCosts)).toBeWithin(0, 2);
    }
  });

  test('is in planning.db after a clean stop or a command, and no other file is left', async () => {
    const production = await createProduction();
    const history = createSaveHistory();
    const files = () => readdirSync(dirname(production.databasePath)).filter((name) => name.startsWith('planning.db'));
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      const service = await production.start();
      await saveMany(service.call, history, 5);
      expect(files()).toEqual(expect.arrayContaining(['planning.db-shm', 'planning.db-wal']));
      service.process.kill(signal);
      expect([await service.process.exited, files()]).toEqual([0, ['planning.db']]);
    }
    expect(history.faultsOf(production.databasePath)).toEqual([]);
    for (const command of ['doctor', 'doctor --deep', 'migrate', 'applications list']) {
      const { exitCode } = await production.planning(...command.split(' '));
      expect([command, exitCode, files()]).toEqual([command, 0, ['planning.db']]);
    }
  });

  test('is stored when the service is killed during a checkpoint', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const history = createSaveHistory();
    const enough = amount({ long: 20, short: 1 });
    let hits = 0;
    for (let round = 0; round < 5 * enough && hits < enough; round += 1) {
      const service = await production.start();
      const index = openWalIndex(path);
      let mostSaves = Number.POSITIVE_INFINITY;
      const killing = setInterval(() => {
        const isMissed = history.acknowledged.length > mostSaves;
        if (isMissed || index.read()?.isCheckpointing) service.process.kill('SIGKILL');
      }, 1);
      const saving = saveUntil(service.call, history, () => service.process.killed);
      await until(() => history.acknowledged.length > 20);
      fillLog(path);
      mostSaves = history.acknowledged.length + 500;
      await saving;
      clearInterval(killing);
      await service.process.exited;
      // The checkpoint may have ended before the kill.
      if (index.read()?.isCheckpointing) hits += 1;
      expect(history.faultsOf(path)).toEqual([]);
      expectSound(path);
    }
    expect(hits).toBe(enough);
  }, 300_000);
});

describe('a service whose files are lost', () => {
  const stale = (pid: number | undefined, path: string) => ({
    result: 'failed',
    detail: expect.stringContaining(`process ${pid} has a file open that was removed or replaced (${path})`),
  });

  test('is named with the reason by doctor, also when another file has the name', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    copyFileSync(path, `${path}.older`);
    const service = await production.start();
    const { pid } = service.process;
    const env = { ...production.settings, DATABASE_URL: `file:${path}`, PORT: new URL(service.address).port };
    const doctor = async () => {
      const planning = (...args: string[]) => runInProcess({ env, cwd: production.cwd }, args);
      const { findingOf } = await diagnose({ planning });
      return { file: findingOf('open file'), running: findingOf('service') };
    };
    const open = { result: 'ok', detail: `process ${pid} has it open` };
    expect(await doctor()).toMatchObject({ file: open, running: { result: 'ok' } });
    renameSync(path, `${path}.moved`);
    expect((await service.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } })).status).toBe(503);
    const running = { result: 'failed', detail: expect.stringContaining('is not ready: The database is lost: the ') };
    expect(await doctor()).toMatchObject({ file: stale(pid, path), running });
    await until(() => service.logLines().some(({ rescued }) => rescued !== undefined));
    for (const suffix of ['-wal', '-shm']) rmSync(`${path}${suffix}`);
    renameSync(`${path}.older`, path);
    expect((await doctor()).file).toMatchObject(stale(pid, `${path}-wal`));
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
  });

  test.each([
    ['the index is removed', '-shm', (path: string) => rmSync(`${path}-shm`)],
    ['the WAL is moved', '-wal', (path: string) => renameSync(`${path}-wal`, `${path}-wal.moved`)],
  ])('is named by doctor when %s', async (_, suffix, harm) => {
    const deployment = await createDeployment();
    const path = deployment.databasePath;
    for (const each of ['-wal', '-shm']) writeFileSync(`${path}${each}`, '');
    const files = ['', '-wal', '-shm'].map((each) => openSync(`${path}${each}`, 'r'));
    const holder = Bun.spawn(['sleep', '60'], { stdio: ['ignore', 'ignore', 'ignore', ...files] });
    atEnd(() => holder.kill('SIGKILL'));
    harm(path);
    expect((await diagnose(deployment)).findingOf('open file')).toMatchObject(stale(holder.pid, `${path}${suffix}`));
  });

  test('logs the descriptors to copy when the rescue fails, and they have every acknowledged save', async () => {
    const deployment = await createDeployment();
    const { databasePath: path, cwd } = deployment;
    const service = await deployment.start();
    const history = createSaveHistory();
    await saveMany(service.call, history, 20);
    renameSync(join(cwd, 'data'), join(cwd, 'elsewhere'));
    rmSync(join(cwd, 'elsewhere'), { recursive: true });
    expect((await service.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } })).status).toBe(503);
    const line = () => service.logLines().find(({ descriptors }) => descriptors !== undefined);
    await until(() => line() !== undefined);
    expect(line()).toMatchObject({ level: 'fatal' });
    const ready = await service.call('GET', '/health/ready');
    expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining('copy the files') } });
    mkdirSync(join(cwd, 'data'));
    const lines = v.parse(v.array(v.string()), line()?.descriptors);
    // Other tests of this process have files with these names.
    for (const text of lines.filter((each) => each.includes(cwd))) {
      const [from = '', target = ''] = text.split(' -> ');
      copyFileSync(from, target.includes('planning.db-wal') ? `${path}-wal` : path);
    }
    await service.stop();
    expect((await deployment.planning('doctor')).stdout).toMatch(/ok +database /);
    expect(history.faultsOf(path)).toEqual([]);
  });
});

test.skipIf(process.getuid?.() !== 0)('a file that this user may not open is reported with its owner and mode', () => {
  const folder = temporaryFolder();
  const path = join(folder, 'planning.db');
  writeFileSync(path, '', { mode: 0o400 });
  chmodSync(folder, 0o755);
  const source = join(import.meta.dirname, '../../src/db/database-file.ts');
  const script = `const { openAdvice } = await import(${JSON.stringify(source)}); process.setgid(65534); process.setuid(65534);
    console.log(openAdvice(${JSON.stringify(path)}, 'SQLITE_CANTOPEN'))`;
  const { stdout } = Bun.spawnSync([process.execPath, '-e', script], { cwd: import.meta.dirname });
  expect(stdout.toString()).toContain('belongs to uid 0, gid 0 with mode 0755, and this process runs as uid 65534');
});

describe('a file that several processes use', () => {
  test('loses no write, and is checkpointed only under the write lock of the process', async () => {
    const { db, url } = await temporaryDatabase();
    await db.$client.execute(`INSERT INTO users (id, version, created_at, updated_at) VALUES ('shared', 1, 0, 0)`);
    db.$client.close();
    const path = url.slice('file:'.length);
    const count = 150;
    const traces = await Promise.all(
      ['careCosts', 'careSafety', 'batch'].map(async (task) => {
        const trace = `${path}.${task}`;
        const strace = ['strace', '-f', '-qq', '--seccomp-bpf', '-e', 'trace=fcntl', '-o', trace];
        const worker = [process.execPath, child, 'work', url, task, String(count)];
        const { stdout } = Bun.spawn([...(hasStrace ? strace : []), ...worker], { stdout: 'pipe' });
        expect((await new Response(stdout).text()).trim()).toBe(String(count));
        return hasStrace ? Bun.file(trace).text() : '';
      }),
    );
    const lockCalls = /F_SETLK, \{l_type=F_(\w+), l_whence=SEEK_SET, l_start=(120|121), l_len=1\}\) = 0/g;
    let checkpoints = 0;
    for (const trace of traces) {
      const held = new Set<string>();
      for (const [, kind, lock = ''] of trace.matchAll(lockCalls)) {
        if (kind === 'WRLCK') held.add(lock);
        else held.delete(lock);
        // 120 is WAL_WRITE_LOCK, 121 is WAL_CKPT_LOCK.
        if (held.has('121')) expect(held.has('120')).toBeTrue();
        if (kind === 'WRLCK' && lock === '121') checkpoints += 1;
      }
    }
    if (hasStrace) expect(checkpoints).toBeGreaterThan(0);
    expectSound(path);
    const file = new SqliteDatabase(path);
    const query = "SELECT version, ltc_lifetime_care AS ltc, lifetime_care AS care FROM users WHERE id = 'shared'";
    expect(file.query(query).get()).toEqual({
      ...{
        version: 1 + 3 * count,
        ltc: `{"careCosts":${count}}`,
        care: expect.stringContaining(`"careSafety":${count}`),
      },
    });
    file.close();
  }, 60_000);

  test('has every acknowledged save while commands import, erase, check and back it up', async () => {
    const figures = await runHistory({
      seconds: amount({ long: 10, short: 0 }),
      savers: 16,
      rows: 300,
      savesOfAUser: 5,
    });
    expect(figures.faults).toEqual([]);
    for (const count of [figures.saves, figures.restarts, figures.imports, figures.erasures, figures.backups]) {
      expect(count).toBeGreaterThan(0);
    }
  }, 60_000);
});

const disk = mountSmallDisk(8);
const logDisk = mountSmallDisk(1);
const failing = mountFailingDisk();
if (disk === undefined) process.stderr.write('Cannot mount a file system: skipping the disk tests.\n');
const manyItems = { selections: Array.from({ length: 90 }, (_, id) => ({ id, title: 'x'.repeat(200) })) };

/** Calls of a service on a disk, with the history of its acknowledged saves. */
function savesOf(call: Call, path: string) {
  const history = createSaveHistory();
  return {
    /** Returns whether a save was acknowledged; any other response must be a 503. */
    async save(as: string, careCosts: number, more: object = {}): Promise<boolean> {
      const response = await call('POST', ltc, { as, body: { careCosts, ...more } });
      if (response.status === 200) history.note(as, response, careCosts);
      else {
        expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable', code: 301 } });
        expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
      }
      return response.status === 200;
    },
    async expectReadsServed(as: string) {
      for (const route of [user, '/v2/private/healthAndCare/', '/v2/private/cemetery/all', '/health/live']) {
        expect([route, (await call('GET', route, { as })).status]).toEqual([route, 200]);
      }
    },
    expectNothingLost: () => expect(history.faultsOf(path)).toEqual([]),
    isWritable: async () =>
      Bun.deepEquals((await call('GET', '/health/ready')).body, { status: 'ready', writes: 'available' }),
    history,
  };
}

test.skipIf(disk === undefined)(
  'a service on a full disk returns 503 for saves and serves reads, and recovers when space is freed',
  async () => {
    const { folder, fill, free } = disk ?? never();
    const path = join(folder, 'planning.db');
    await copyTemplate(path);
    const settings = { DATABASE_URL: `file:${path}`, DATABASE_TIMEOUT_MS: '500', RATE_LIMIT_PER_MINUTE: '0' };
    const service = await startInProcess(settings);
    const { save, expectReadsServed, expectNothingLost, isWritable, history } = savesOf(service.call, path);
    await save('before', 1);
    fill();
    let refused = 0;
    for (let count = 0; count < 400 && refused < 5; count += 1)
      if (!(await save(`saver-${count}`, count, manyItems))) refused += 1;
    expect(refused).toBe(5);
    await expectReadsServed('before');
    expect(service.logLines().some(({ errors }) => JSON.stringify(errors)?.includes('SQLITE_FULL'))).toBeTrue();
    expect(await service.health()).toBe(200);
    free();
    await until(() => save('before', 2));
    await until(isWritable);
    for (let count = 0; count < 20; count += 1) expect(await save(`after-${count}`, count, manyItems)).toBeTrue();
    expect(await service.stop()).toBe(0);
    expectNothingLost();
    expect(history.acknowledged.length).toBeGreaterThan(20);
    expectSound(path);
  },
);

test.skipIf(failing === undefined)(
  'a service on a disk that turns read-only returns 503 for saves and serves reads, and restarts from the same data',
  async () => {
    const { folder, fail, mend } = failing ?? never();
    const path = join(folder, 'planning.db');
    await copyTemplate(path);
    const production = await createProduction({ DATABASE_URL: `file:${path}`, DATABASE_TIMEOUT_MS: '500' });
    const service = await production.start();
    const { save, expectReadsServed, isWritable } = savesOf(service.call, path);
    expect(await save('before', 1)).toBeTrue();
    fail();
    expect(await Promise.all([2, 3, 4].map((value) => save('before', value)))).toEqual([false, false, false]);
    await expectReadsServed('before');
    await until(async () => !(await isWritable()));
    const ready = await service.call('GET', '/health/ready');
    expect(ready.body).toMatchObject({ status: 'ready', writes: 'unavailable' });
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const refused = await failToStart({ environment: production.settings });
    expect(refused.stderr).toContain('cannot be opened (SQLITE_READONLY)');
    mend();
    const next = savesOf((await startInProcess(production.settings)).call, path);
    expect(await next.save('before', 5)).toBeTrue();
    expect(next.history.acknowledged).toMatchObject([{ version: 2 }]);
  },
);

test.skipIf(logDisk === undefined)('the log on a full disk has complete lines again when space is freed', async () => {
  const { folder, fill, free } = logDisk ?? never();
  const path = join(folder, 'log');
  const program = `
    const { createLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/log.ts'))});
    const log = createLog('info');
    setInterval(() => { for (let n = 0; n < 50; n += 1) log.info({ settled: n }, 'applications were settled'); }, 5);
    setTimeout(() => process.stderr.write('running'), 300);`;
  fill();
  const writer = Bun.spawn([process.execPath, '-e', program], { stdout: openSync(path, 'a'), stderr: 'pipe' });
  await writer.stderr.getReader().read();
  expect(writer.exitCode).toBeNull();
  free();
  await until(() => Bun.file(path).size > 100_000);
  writer.kill('SIGKILL');
  await writer.exited;
  const lines = (await Bun.file(path).text()).split('\n').slice(0, -1);
  expect(lines.every((line) => JSON.parse(line).msg === 'applications were settled')).toBeTrue();
});

/** Attaches `strace`, which injects a fault into calls of the service, and returns the path of its trace. */
async function injectFault({ process: { pid } }: Service, ...options: string[]): Promise<string> {
  const trace = join(temporaryFolder(), 'trace');
  const strace = Bun.spawn(['strace', '-f', '-qq', '-y', '-p', String(pid), '-o', trace, ...options]);
  atEnd(() => strace.kill('SIGKILL'));
  await until(() => !readFileSync(`/proc/${pid}/status`, 'utf8').includes('TracerPid:\t0\n'));
  return trace;
}

describe.skipIf(!hasStrace)('a service', () => {
  test('keeps saving, with one warning and a metric, while checkpoints fail, and is lost after ten seconds', async () => {
    const production = await createProduction({ METRICS_TOKEN: metricsToken });
    const path = production.databasePath;
    const clock = await production.write(
      'clock.ts',
      `const now = performance.now.bind(performance);
        let skippedMs = 0;
        performance.now = () => now() + skippedMs;
        process.on('SIGUSR2', () => { skippedMs += 10_001; });`,
    );
    const service = await production.start({ program: ['--preload', `./${clock}`, await programOf('src/main')] });
    await injectFault(service, '-P', path, '-e', 'trace=pwrite64', '-e', 'inject=pwrite64:error=EIO');
    const history = createSaveHistory();
    let careCosts = 0;
    /** Saves another value. */
    const save = async () => {
      careCosts += 1;
      const response = await service.call('POST', ltc, { as: 'ada', body: { careCosts } });
      if (response.status === 200) history.note('ada', response, careCosts);
      return response.status;
    };
    const linesOf = (words: string) => service.logLines().filter(({ msg }) => msg.includes(words));
    const warnings = () => linesOf('the write-ahead log cannot be written to the database file');
    fillLog(path);
    await until(async () => {
      expect(await save()).toBe(200);
      return warnings().length > 0;
    });
    expect(await service.health()).toBe(200);
    const headers = { authorization: `Bearer ${metricsToken}` };
    const overdue = async () =>
      readSamples((await service.call('GET', '/metrics', { headers })).text).find(
        ({ name }) => name === 'planning_database_checkpoint_overdue_seconds',
      )?.value;
    await until(async () => Number(await overdue()) > 0);
    expect(await save()).toBe(200);
    service.process.kill('SIGUSR2');
    await until(async () => (await save()) === 503);
    await until(() => linesOf('the disk fails to read or write').length > 0);
    expect(linesOf('the disk fails to read or write')).toMatchObject([{ level: 'fatal' }]);
    expect([await service.health(), await service.health('live')]).toEqual([503, 200]);
    expect(warnings()).toMatchObject([{ level: 'warn' }]);
    await kill(service);
    // The WAL has what the file lacks.
    expect(history.faultsOf(path)).toEqual([]);
  });

  test('delays only saves, and fails none, when each sync takes 200 ms', async () => {
    const production = await createProduction({ DATABASE_TIMEOUT_MS: '10000' });
    const service = await production.start();
    const slow = 'inject=fdatasync,fsync:delay_enter=200000';
    const trace = await injectFault(service, '-e', 'trace=fdatasync,fsync', '-e', slow);
    const syncs = () => readFileSync(trace, 'utf8');
    const saveMs: number[] = [];
    // A checkpoint has synced the file.
    const isOver = () => saveMs.length > amount({ long: 5000, short: 40 }) && syncs().includes('planning.db>');
    const probing = probeLive(service, () => isOver());
    fillLog(production.databasePath);
    const savers = Array.from({ length: 16 }, async (_, index) => {
      for (let value = 1; !isOver(); value += 1) {
        const startedAtMs = performance.now();
        const { status, text } = await service.call('POST', ltc, { as: `saver-${index}`, body: { careCosts: value } });
        saveMs.push(performance.now() - startedAtMs);
        expect([status, text.slice(0, 200)]).toEqual([200, expect.any(String)]);
      }
    });
    await Promise.all(savers);
    const median = (times: readonly number[]) => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;
    // Each save waits for a sync; a thread that waits for the disk would delay the probes as well.
    expect(median(saveMs)).toBeGreaterThan(190);
    expect(median(await probing)).toBeLessThan(median(saveMs) / 2);
    // The start has already synced the folder, which would lengthen the first checkpoint.
    expect(syncs()).not.toMatch(/fsync\(\d+<[^>]+data>/);
  });
});

/** Requests the liveness probe from another process every 10 ms, and returns how long each response took. */
async function probeLive({ address }: Production, isOver: () => boolean): Promise<number[]> {
  const program = `const times = [];
    process.stdin.once('data', () => { console.log(JSON.stringify(times)); process.exit(); });
    for (;;) {
      const startedAtMs = performance.now();
      await (await fetch(process.argv[1])).text();
      times.push(performance.now() - startedAtMs);
      await Bun.sleep(10);
    }`;
  const args = ['-e', program, `${address}/health/live`];
  const prober = Bun.spawn([process.execPath, ...args], { stdin: 'pipe', stdout: 'pipe' });
  atEnd(() => prober.kill('SIGKILL'));
  await until(isOver);
  prober.stdin.write('end\n');
  prober.stdin.end();
  return v.parse(v.array(v.number()), await new Response(prober.stdout).json());
}

const canaries = [canaryApplicant.firstName, canaryApplicant.lastName, canaryApplicant.email, 'canary-note'];

/** The files, by name, that have shown a text of `canaries` while a service saved, after it was killed, and in a backup. */
async function exposedFiles(key: Record<string, string>): Promise<string[]> {
  const line = await createCommandLine(key, { isEmpty: true });
  const service = await startService({ cwd: line.cwd, environment: { ...key, AUTH_SECRET: testSecret } });
  const call = callerOf(service.address);
  const applied = await call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: canaryApplicant });
  expect(applied.status).toBe(200);
  const hobbies = Array.from({ length: 50 }, (_, id) => ({ title: `canary-note ${id} ${'x'.repeat(150)}` }));
  const saving = Promise.all(
    Array.from({ length: 4 }, async (_, saver) => {
      for (let count = 0; !service.process.killed; count += 1) {
        const body = { hobbies: hobbies.slice((saver + count) % 25) };
        const saved = call('POST', '/v2/private/deepDives/lifetimeCare', { as: 'ada', body });
        if ((await saved.catch(() => undefined))?.status !== 200) return;
        // The pause leaves the machine to other processes.
        await Bun.sleep(10);
      }
    }),
  );
  const seen = new Set<string>();
  const scan = () => {
    for (const file of filesWith(line.cwd, canaries)) seen.add(file);
  };
  for (let count = 0; count < amount({ long: 100, short: 5 }); count += 1) {
    scan();
    for (const file of openFilesWith(service.process.pid, canaries)) seen.add(file.replace(`${line.cwd}/`, ''));
    await Bun.sleep(20);
  }
  expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0, stderr: '' });
  await kill(service);
  await saving;
  scan();
  expect(existsSync(join(line.cwd, 'data/planning.db-wal'))).toBeTrue();
  const { stdout } = await line.planning('user', 'export', 'ada');
  for (const canary of canaries) expect(stdout).toContain(canary);
  return [...seen].sort();
}

test.skipIf(process.platform !== 'linux')(
  'a service with a key exposes nothing of a person in its files, and one without a key, as a control, in all',
  async () => {
    const [encrypted, plain] = await Promise.all([
      exposedFiles({ DATABASE_ENCRYPTION_KEY: keys.right }),
      exposedFiles({}),
    ]);
    expect(encrypted).toEqual([]);
    const places = ['backup.db', 'data/carrier-sandbox.db-wal', 'data/planning.db-wal'];
    expect(plain).toEqual(expect.arrayContaining(places));
  },
);
