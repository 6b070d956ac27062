/** The service as a process on database files: kills, disks, several processes, and what other programs can read. */
import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { runHistory } from '../soak/history';
import { type Call, callerOf, canaryApplicant, createTestApp, testSecret } from '../support/app';
import { createCommandLine, diagnose } from '../support/command';
import { copyTemplate, filesWith, keys, openFilesWith, temporaryDatabase } from '../support/database';
import { createSaveHistory, mountFailingDisk, mountSmallDisk } from '../support/disks';
import {
  createProduction,
  failToStart,
  type Production,
  productionToken,
  startInProcess,
  startService,
} from '../support/processes';
import { amount, atEnd, temporaryFolder, until } from '../support/resources';
import { readSamples } from '../support/telemetry';

const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const hasStrace = Bun.which('strace') !== null;
const child = join(import.meta.dirname, '../support/child.ts');
type History = ReturnType<typeof createSaveHistory>;

/** Saves as eight users until `count` more saves are acknowledged. */
async function saveMany(call: Call, history: History, count: number): Promise<void> {
  const total = history.acknowledged.length + count;
  const savers = Array.from({ length: 8 }, async (_, index) => {
    for (let value = 1; history.acknowledged.length < total; value += 1) {
      const response = await call('POST', ltc, { as: `saver-${index}`, body: { careCosts: value } });
      expect(response.status).toBe(200);
      history.note(`saver-${index}`, response, value);
    }
  });
  await Promise.all(savers);
}

function faultsOfCopy(history: History, path: string): string[] {
  const copy = join(temporaryFolder(), 'copy.db');
  copyFileSync(path, copy);
  return history.faultsOf(copy);
}

function expectSound(path: string): void {
  const file = new SqliteDatabase(path);
  expect(file.query('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
  file.close();
}

describe('a killed service', () => {
  test('has each acknowledged save and no gap in its history, also when it was killed during checkpoints', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    const history = createSaveHistory();
    for (let round = 0; round < amount({ long: 20, short: 3 }); round += 1) {
      const service = await startService({
        environment: { AUTH_SECRET: testSecret, DATABASE_URL: `file:${path}`, SEED_DEMO: 'false' },
      });
      const call = callerOf(service.address);
      const end = history.acknowledged.length + 60 + 230 * round;
      let isKilled = false;
      const save = async (userId: string) => {
        for (let value = 1; !isKilled; value += 1) {
          const body = { careCosts: round * 100_000 + value };
          const response = await call('POST', ltc, { as: userId, body }).catch(() => undefined);
          // The kill came before the response.
          if (response === undefined) return;
          expect(response.status).toBe(200);
          history.note(userId, response, body.careCosts);
          if (history.acknowledged.length > end) {
            isKilled = true;
            service.process.kill('SIGKILL');
          }
        }
      };
      await Promise.all(Array.from({ length: 8 }, (_, index) => save(`saver-${index}`)));
      await service.process.exited;
      expect(history.acknowledged.length).toBeGreaterThan(end);
      expect(history.faultsOf(path)).toEqual([]);
      expectSound(path);
    }
  }, 120_000);

  test.each([
    ['its event alone', 'DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events)'],
    [
      'its version and its event',
      'DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events); UPDATE users SET version = version - 1',
    ],
    ['its version alone', 'UPDATE users SET version = version - 1'],
  ])('would fail this comparison if a later save had overwritten a lost one: without %s', async (_, sql) => {
    const { call, db, url } = await createTestApp();
    const history = createSaveHistory();
    const save = async (careCosts: number) =>
      history.note('ada', await call('POST', ltc, { as: 'ada', body: { careCosts } }));
    await save(1);
    await save(2);
    // No trigger fires when a page is lost.
    await db.$client.batch(['DROP TRIGGER audit_events_not_removed', ...sql.split('; ')]);
    const { rows } = await (await temporaryDatabase()).db.$client.execute(
      "SELECT sql FROM sqlite_schema WHERE name = 'audit_events_not_removed'",
    );
    await db.$client.execute(String(rows[0]?.sql));
    await save(3);
    expect(history.faultsOf(url.slice('file:'.length))).not.toEqual([]);
  });
});

describe('a clean stop', () => {
  test('leaves every acknowledged save in the database file, and removes the WAL', async () => {
    const production = await createProduction();
    const service = await production.start();
    const history = createSaveHistory();
    await saveMany(service.call, history, 200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(['-wal', '-shm'].filter((suffix) => existsSync(`${production.databasePath}${suffix}`))).toEqual([]);
    expect(faultsOfCopy(history, production.databasePath)).toEqual([]);
  });

  test('leaves every acknowledged save in the database file while another instance has it open', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const [service, other] = await Promise.all([production.start(), production.start()]);
    const history = createSaveHistory();
    await saveMany(service.call, history, 200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(service.output()).not.toContain('keep the -wal file with the database file');
    expect(faultsOfCopy(history, path)).toEqual([]);
    await saveMany(other.call, history, 1);
    expect(await other.health()).toBe(200);
    // The killed instance left its WAL.
    other.process.kill('SIGKILL');
    await other.process.exited;
    expect(history.faultsOf(path)).toEqual([]);
  });
});

describe('a service whose files are lost', () => {
  test.each([
    ['the index is removed', '-shm', (path: string) => rmSync(`${path}-shm`)],
    ['the WAL is moved', '-wal', (path: string) => renameSync(`${path}-wal`, `${path}-wal.moved`)],
    ['the file is moved', '', (path: string) => renameSync(path, `${path}.moved`)],
  ])(
    'is named with the reason by doctor, and ends with a rescued copy, when %s',
    async (_, suffix, harm) => {
      const production = await createProduction();
      const path = production.databasePath;
      copyFileSync(path, `${path}.older`);
      const service = await production.start();
      const history = createSaveHistory();
      await saveMany(service.call, history, 20);
      await production.write('port.env', `PORT=${new URL(service.address).port}\n`);
      const doctor = async () => {
        const { findingOf } = await diagnose(production, '--env-file', 'port.env');
        return { file: findingOf('open file'), running: findingOf('service') };
      };
      const { pid } = service.process;
      expect(await doctor()).toMatchObject({
        file: { result: 'ok', detail: `process ${pid} has it open` },
        running: { result: 'ok' },
      });
      harm(path);
      await until(async () => (await service.health()) === 503);
      const stale = `process ${pid} has a file open that was removed or replaced (${path}${suffix})`;
      const lost = {
        file: { result: 'failed', detail: expect.stringContaining(stale) },
        running: { result: 'failed', detail: expect.stringContaining('is not ready: The database is lost: the ') },
      };
      expect(await doctor()).toMatchObject(lost);
      const rescued = () => service.logLines().find((line) => line.rescued !== undefined)?.rescued;
      await until(() => rescued() !== undefined);
      if (suffix === '') {
        for (const each of ['-wal', '-shm']) rmSync(`${path}${each}`);
        renameSync(`${path}.older`, path);
        // The file has its place again, but is another one.
        expect((await doctor()).file).toMatchObject({
          result: 'failed',
          detail: expect.stringContaining('was removed or replaced'),
        });
      }
      service.process.kill('SIGTERM');
      expect(await service.process.exited).toBe(0);
      expect(history.faultsOf(String(rescued()))).toEqual([]);
    },
    30_000,
  );

  test('logs the descriptors to copy when the rescue fails, and they have every acknowledged save', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const service = await production.start();
    const history = createSaveHistory();
    await saveMany(service.call, history, 20);
    renameSync(join(production.cwd, 'data'), join(production.cwd, 'elsewhere'));
    rmSync(join(production.cwd, 'elsewhere'), { recursive: true });
    const line = () => service.logLines().find(({ descriptors }) => descriptors !== undefined);
    await until(() => line() !== undefined);
    expect(line()).toMatchObject({ level: 'fatal' });
    const ready = await service.call('GET', '/health/ready');
    expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining('copy the files') } });
    mkdirSync(join(production.cwd, 'data'));
    for (const text of v.parse(v.array(v.string()), line()?.descriptors)) {
      const [from = '', target = ''] = text.split(' -> ');
      copyFileSync(from, target.includes('planning.db-wal') ? `${path}-wal` : path);
    }
    service.process.kill('SIGKILL');
    await service.process.exited;
    expect((await production.planning('doctor')).stdout).toMatch(/ok +database /);
    expect(history.faultsOf(path)).toEqual([]);
  }, 30_000);
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
    const count = 300;
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
      seconds: amount({ long: 10, short: 2 }),
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

const disk = mountSmallDisk(1);
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
      for (const route of [
        '/v2/private/user',
        '/v2/private/healthAndCare/',
        '/v2/private/cemetery/all',
        '/health/live',
      ]) {
        expect([route, (await call('GET', route, { as })).status]).toEqual([route, 200]);
      }
    },
    expectNothingLost: () => expect(history.faultsOf(path)).toEqual([]),
    isWritable: async () =>
      Bun.deepEquals((await call('GET', '/health/ready')).body, { status: 'ready', writes: 'available' }),
    history,
  };
}

describe.skipIf(disk === undefined)('a service on a failing disk', () => {
  test('returns 503 for saves and serves reads while the disk is full, and recovers when space is freed', async () => {
    const full = mountSmallDisk(8);
    if (full === undefined) throw new Error('Cannot mount a small disk');
    const path = join(full.folder, 'planning.db');
    await copyTemplate(path);
    const settings = { DATABASE_URL: `file:${path}`, DATABASE_TIMEOUT_MS: '500', RATE_LIMIT_PER_MINUTE: '0' };
    const service = await startInProcess(settings);
    const { save, expectReadsServed, expectNothingLost, isWritable, history } = savesOf(service.call, path);
    await save('before', 1);
    full.fill();
    let refused = 0;
    for (let count = 0; count < 400 && refused < 5; count += 1)
      if (!(await save(`saver-${count}`, count, manyItems))) refused += 1;
    expect(refused).toBe(5);
    await expectReadsServed('before');
    expect(service.logLines().some(({ errors }) => JSON.stringify(errors)?.includes('SQLITE_FULL'))).toBeTrue();
    expect(await service.health()).toBe(200);
    full.free();
    await until(() => save('before', 2));
    await until(isWritable);
    for (let count = 0; count < 20; count += 1) expect(await save(`after-${count}`, count, manyItems)).toBeTrue();
    expect(await service.stop()).toBe(0);
    expectNothingLost();
    expect(history.acknowledged.length).toBeGreaterThan(20);
    expectSound(path);
  }, 60_000);

  test.skipIf(failing === undefined)(
    'returns 503 for saves and serves reads while the disk is read-only, and restarts from the same data',
    async () => {
      if (failing === undefined) throw new Error('Cannot mount a failing disk');
      const path = join(failing.folder, 'planning.db');
      const environment = {
        DATABASE_URL: `file:${path}`,
        DATABASE_TIMEOUT_MS: '500',
        SEED_DEMO: 'false',
        AUTH_SECRET: testSecret,
      };
      const service = await startService({ environment });
      const call = callerOf(service.address);
      const { save, expectReadsServed, isWritable } = savesOf(call, path);
      expect(await save('before', 1)).toBeTrue();
      failing.fail();
      for (let value = 2; value < 5; value += 1) expect(await save('before', value)).toBeFalse();
      await expectReadsServed('before');
      await until(async () => !(await isWritable()));
      const ready = await call('GET', '/health/ready');
      expect(ready.body).toMatchObject({ status: 'ready', writes: 'unavailable' });
      service.process.kill('SIGTERM');
      expect(await service.process.exited).toBe(0);
      expect((await failToStart({ environment })).stderr).toContain('cannot be opened (SQLITE_READONLY)');
      failing.mend();
      const next = savesOf(callerOf((await startService({ environment })).address), path);
      expect(await next.save('before', 5)).toBeTrue();
      expect(next.history.acknowledged).toMatchObject([{ version: 2 }]);
    },
    60_000,
  );

  test('writes complete log lines again when a full disk has space', async () => {
    const full = mountSmallDisk(1);
    if (full === undefined) throw new Error('Cannot mount a small disk');
    const path = join(full.folder, 'log');
    const program = `
      const { createLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/log.ts'))});
      const log = createLog('info');
      setInterval(() => { for (let n = 0; n < 50; n += 1) log.info({ settled: n }, 'applications were settled'); }, 5);
      setTimeout(() => process.stderr.write('running'), 300);`;
    full.fill();
    const writer = Bun.spawn([process.execPath, '-e', program], { stdout: openSync(path, 'a'), stderr: 'pipe' });
    await writer.stderr.getReader().read();
    expect(writer.exitCode).toBeNull();
    full.free();
    await until(() => Bun.file(path).size > 100_000);
    writer.kill('SIGKILL');
    await writer.exited;
    const lines = (await Bun.file(path).text()).split('\n').slice(0, -1);
    expect(lines.every((line) => JSON.parse(line).msg === 'applications were settled')).toBeTrue();
  }, 60_000);
});

const longAnswers = (count: number, text: string) => ({
  customSelections: Array.from({ length: count }, (_, item) => ({
    title: `${'A long title. '.repeat(8)}${text} ${item}`,
  })),
});

describe.skipIf(!hasStrace)('a service', () => {
  test('keeps saving, with one warning and a metric, while checkpoints fail with I/O errors', async () => {
    const token = 'a-token-for-the-scrapes-0123456789abc';
    const production = await createProduction({ METRICS_TOKEN: token, RATE_LIMIT_PER_MINUTE: '0' });
    const service = await production.start();
    const { pid } = service.process;
    const inject = ['-P', production.databasePath, '-e', 'trace=pwrite64', '-e', 'inject=pwrite64:error=EIO'];
    const strace = Bun.spawn(['strace', '-f', '-qq', '-p', String(pid), '-o', '/dev/null', ...inject]);
    atEnd(() => strace.kill('SIGKILL'));
    await until(() => !readFileSync(`/proc/${pid}/status`, 'utf8').includes('TracerPid:\t0\n'));
    const history = createSaveHistory();
    const save = async (as: string) => {
      const body = longAnswers(60, String(history.acknowledged.length));
      const response = await service.call('POST', lifeInsurance, { as, body });
      expect(response.status).toBe(200);
      history.note(as, response);
    };
    const warnings = () =>
      service
        .logLines()
        .filter(({ msg }) => msg.includes('the write-ahead log cannot be written to the database file'));
    await until(async () => {
      await Promise.all(Array.from({ length: 16 }, (_, index) => save(`saver-${index}`)));
      return warnings().length > 0;
    });
    expect(await service.health()).toBe(200);
    const headers = { authorization: `Bearer ${token}` };
    const overdue = async () =>
      readSamples((await service.call('GET', '/metrics', { headers })).text).find(
        ({ name }) => name === 'planning_database_checkpoint_overdue_seconds',
      )?.value;
    await until(async () => Number(await overdue()) > 0);
    await save('saver-0');
    expect(warnings()).toMatchObject([{ level: 'warn' }]);
    service.process.kill('SIGKILL');
    await service.process.exited;
    // The WAL has what the file lacks.
    expect(history.faultsOf(production.databasePath)).toEqual([]);
  }, 60_000);

  test('delays only saves, and fails none, when each sync takes 300 ms', async () => {
    const production = await createProduction({ RATE_LIMIT_PER_MINUTE: '0', DATABASE_TIMEOUT_MS: '10000' });
    const trace = join(temporaryFolder(), 'trace');
    const inject = 'inject=fdatasync,fsync:delay_enter=300000';
    const strace = ['strace', '-f', '-qq', '-y', '--seccomp-bpf', '-e', 'trace=fdatasync,fsync', '-e', inject];
    const service = await production.start({ under: [...strace, '-o', trace] });
    const syncsOfStart = readFileSync(trace, 'utf8').length;
    const syncs = () => readFileSync(trace, 'utf8').slice(syncsOfStart);
    const saveMs: number[] = [];
    // A checkpoint has synced the file.
    const isOver = () => saveMs.length > amount({ long: 5000, short: 300 }) && syncs().includes('planning.db>');
    const probing = probeLive(service, () => isOver());
    const savers = Array.from({ length: 64 }, async (_, index) => {
      const headers = { authorization: `Bearer ${await productionToken(`saver-${index}`)}` };
      for (let value = 1; !isOver(); value += 1) {
        const startedAtMs = performance.now();
        const { status, text } = await service.call('POST', lifeInsurance, {
          headers,
          body: longAnswers(40, `${value}`),
        });
        saveMs.push(performance.now() - startedAtMs);
        expect([status, text.slice(0, 200)]).toEqual([200, expect.any(String)]);
      }
    });
    await Promise.all(savers);
    const median = (times: readonly number[]) => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;
    // Each save waits for a sync; a thread that waits for the disk would delay the probes as well.
    expect(median(saveMs)).toBeGreaterThan(250);
    expect(median(await probing)).toBeLessThan(median(saveMs) / 2);
    // The start has already synced the folder, which would lengthen the first checkpoint.
    expect(syncs()).not.toMatch(/fsync\(\d+<[^>]+data>/);
  }, 120_000);
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

describe.skipIf(process.platform !== 'linux')('a service that saves', () => {
  test.each<[string, Record<string, string>, boolean]>([
    ['no canary with a key', { DATABASE_ENCRYPTION_KEY: keys.right }, false],
    ['every canary without a key, as a control,', {}, true],
  ])(
    'exposes %s in its files, while written to, after kill -9, and in a backup',
    async (_, key, isShown) => {
      const line = await createCommandLine(key, { isEmpty: true });
      const service = await startService({ cwd: line.cwd, environment: { ...key, AUTH_SECRET: testSecret } });
      const call = callerOf(service.address);
      const applied = await call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: canaryApplicant });
      expect(applied.status).toBe(200);
      const hobbies = Array.from({ length: 50 }, (_, id) => ({ title: `canary-note ${id} ${'x'.repeat(150)}` }));
      let isOver = false;
      const saving = Promise.all(
        Array.from({ length: 8 }, async (_, saver) => {
          for (let count = 0; !isOver; count += 1) {
            const body = { hobbies: hobbies.slice((saver + count) % 25) };
            const saved = call('POST', '/v2/private/deepDives/lifetimeCare', { as: 'ada', body });
            if ((await saved.catch(() => undefined))?.status !== 200) return;
            // One request is always in flight; the pause leaves the machine to other processes.
            await Bun.sleep(10);
          }
        }),
      );
      const seen = new Set<string>();
      const scan = () => {
        for (const file of filesWith(line.cwd, canaries)) seen.add(file);
      };
      for (let count = 0; count < amount({ long: 100, short: 6 }); count += 1) {
        scan();
        for (const file of openFilesWith(service.process.pid, canaries)) seen.add(file.replace(`${line.cwd}/`, ''));
        await Bun.sleep(20);
      }
      expect(await line.planning('backup', 'backup.db')).toMatchObject({ exitCode: 0, stderr: '' });
      service.process.kill('SIGKILL');
      await service.process.exited;
      isOver = true;
      await saving;
      scan();
      expect(existsSync(join(line.cwd, 'data/planning.db-wal'))).toBeTrue();
      const places = ['backup.db', 'data/carrier-sandbox.db-wal', 'data/planning.db-wal'];
      expect([...seen].sort()).toEqual(isShown ? expect.arrayContaining(places) : []);
      // The encrypted data are complete.
      const { stdout } = await line.planning('user', 'export', 'ada');
      for (const canary of canaries) expect(stdout).toContain(canary);
    },
    60_000,
  );
});
