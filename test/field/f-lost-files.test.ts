import { describe, expect, test } from 'bun:test';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { keys } from '../support/database';
import { createSaveHistory } from '../support/disks';
import { createProduction, failToStart, type Production } from '../support/processes';
import { until } from '../support/resources';

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

const ltc = '/v2/private/ltc/lifetimeCare';

/** Saves as several users, one save after the other each, until `stop`. */
function startSaves(service: Production, users = 4) {
  const history = createSaveHistory();
  let isStopped = false;
  const running = Array.from({ length: users }, async (_, user) => {
    for (let count = 0; !isStopped; count += 1) {
      const body = { careCosts: 1 + (count % 3) };
      const response = await service.call('POST', ltc, { as: `user-${user}`, body }).catch(() => undefined);
      if (response?.status === 200) history.note(`user-${user}`, response);
    }
  });
  return {
    history,
    async stop() {
      isStopped = true;
      await Promise.all(running);
    },
  };
}

/** Each file of a folder with its content. */
function contentsOf(folder: string) {
  return Object.fromEntries(readdirSync(folder).map((name) => [name, Bun.hash(readFileSync(join(folder, name)))]));
}

/** Kills a service while it saves, so that its WAL has saves that the file lacks. */
async function leaveLog() {
  const production = await createProduction();
  const service = await production.start();
  const saves = startSaves(service);
  await until(() => saves.history.acknowledged.length > 50);
  service.process.kill('SIGKILL');
  await service.process.exited;
  await saves.stop();
  return { ...production, ...saves, folder: join(production.cwd, 'data') };
}

describe('C1 a WAL without its database file', () => {
  test.each([
    ['missing', (path: string) => rmSync(path)],
    ['empty (0 bytes)', (path: string) => truncateSync(path)],
  ])(
    'C1 stays unchanged under every command and every start when the file is %s',
    async (state, harm) => {
      const { history, databasePath: path, folder, ...production } = await leaveLog();
      copyFileSync(path, join(production.cwd, 'kept.db'));
      harm(path);
      const before = contentsOf(folder);
      const refusal = `The WAL ${path}-wal belongs to a database file that is ${state}: put the file back beside its WAL.`;
      await production.write('rows.csv', 'id;name\n');
      for (const command of [
        ['migrate'],
        ['migrate', '--dry-run'],
        ['seed'],
        ['import', 'cemeteries', 'rows.csv'],
        ['applications', 'list'],
        ['backup', 'backup.db'],
        ['restore', 'kept.db', '--yes'],
        ['copy', '--to', 'file:copy.db'],
        ['rekey', '--decrypt'],
      ]) {
        const { exitCode, stderr } = await production.planning(...command);
        expect({ command, exitCode, stderr }).toMatchObject({
          exitCode: 1,
          stderr: expect.stringContaining('its WAL'),
        });
        expect(stderr).not.toContain('planning migrate');
      }
      const { exitCode, stdout } = await production.planning('doctor');
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: expect.stringContaining(refusal) });
      expect(stdout).not.toContain('planning migrate');
      for (const NODE_ENV of ['production', 'development']) {
        const environment = { ...production.settings, NODE_ENV };
        const { stderr } = await failToStart({ cwd: production.cwd, environment });
        expect(stderr).toContain(refusal);
      }
      expect(contentsOf(folder)).toEqual(before);
      renameSync(join(production.cwd, 'kept.db'), path);
      const { stdout: sound } = await production.planning('doctor', '--deep');
      expect(sound).toMatch(/ok +pages /);
      expect(history.faultsOf(path)).toEqual([]);
    },
    60_000,
  );

  test('C1 stays unchanged under migrate while a service has the moved file open', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const service = await production.start();
    const saves = startSaves(service);
    await until(() => saves.history.acknowledged.length > 50);
    renameSync(path, `${path}.moved`);
    const log = statSync(`${path}-wal`).ino;
    const { exitCode, stderr } = await production.planning('migrate');
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining('put the file back') });
    expect({ isThere: existsSync(path), log: statSync(`${path}-wal`).ino }).toEqual({ isThere: false, log });
    service.process.kill('SIGKILL');
    await service.process.exited;
    await saves.stop();
    renameSync(`${path}.moved`, path);
    await production.planning('doctor');
    expect(saves.history.faultsOf(path)).toEqual([]);
  }, 30_000);
});

const rescuedName = (folder: string) =>
  readdirSync(folder).filter((name) => /^planning\.db\.rescued-[\dTZ-]+$/.test(name));

const harms: readonly { what: string; code: string; harm(path: string): void; isEncrypted?: boolean }[] = [
  { what: 'the WAL was removed', code: 'WAL_REMOVED', harm: (path) => rmSync(`${path}-wal`) },
  { what: 'the index was removed', code: 'WAL_INDEX_REMOVED', harm: (path) => rmSync(`${path}-shm`) },
  { what: 'the file was removed', code: 'FILE_REMOVED', harm: rmSync },
  {
    what: 'the encrypted file was removed',
    code: 'FILE_REMOVED',
    isEncrypted: true,
    harm: rmSync,
  },
  {
    what: 'the file was replaced',
    code: 'FILE_REPLACED',
    harm: (path) => renameSync(`${path}.older`, path),
  },
];

describe('H1 a running service', () => {
  test.each(harms)(
    'H1 rescues every acknowledged save when $what',
    async ({ code, harm, isEncrypted }) => {
      const key = isEncrypted === true ? { DATABASE_ENCRYPTION_KEY: keys.right } : {};
      const production = await createProduction(key);
      const path = production.databasePath;
      copyFileSync(path, `${path}.older`);
      const service = await production.start();
      const saves = startSaves(service);
      await until(() => saves.history.acknowledged.length > 50);
      harm(path);
      await until(() => service.logLines().some(({ rescued }) => rescued !== undefined));
      const [copy] = rescuedName(join(production.cwd, 'data'));
      expect(service.logLines().filter(({ level }) => level === 'fatal')).toMatchObject([{ errors: [{ code }] }]);
      expect(service.logLines().find(({ rescued }) => rescued !== undefined)).toMatchObject({
        level: 'error',
        rescued: join(production.cwd, 'data', String(copy)),
      });
      const ready = await service.call('GET', '/health/ready');
      expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining('the rescued copy') } });
      expect(statSync(`${path}.rescued`.replace(/planning\.db\.rescued$/, String(copy))).mode & 0o777).toBe(0o600);
      service.process.kill('SIGTERM');
      expect(await service.process.exited).toBe(0);
      await saves.stop();
      for (const suffix of ['-wal', '-shm']) {
        if (existsSync(`${path}${suffix}`)) renameSync(`${path}${suffix}`, join(production.cwd, `old${suffix}`));
      }
      const { exitCode, stderr } = await production.planning('restore', `data/${copy}`, '--yes');
      expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
      if (isEncrypted === true) {
        const { exitCode } = await production.planning('rekey', '--decrypt', '--yes');
        expect(exitCode).toBe(0);
      }
      expect(saves.history.acknowledged.length).toBeGreaterThan(50);
      expect(saves.history.faultsOf(path)).toEqual([]);
    },
    30_000,
  );

  test('H1 waits for the rescue when it stops before it detects the loss', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const service = await production.start();
    const saves = startSaves(service);
    await until(() => saves.history.acknowledged.length > 50);
    await saves.stop();
    rmSync(path);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const [copy] = rescuedName(join(production.cwd, 'data'));
    expect(saves.history.faultsOf(join(production.cwd, 'data', String(copy)))).toEqual([]);
  }, 30_000);

  test('H1 logs the descriptors to copy when the rescue fails, and they have every acknowledged save', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const service = await production.start();
    const saves = startSaves(service);
    await until(() => saves.history.acknowledged.length > 50);
    renameSync(join(production.cwd, 'data'), join(production.cwd, 'elsewhere'));
    rmSync(join(production.cwd, 'elsewhere'), { recursive: true });
    await until(() => service.logLines().some(({ descriptors }) => descriptors !== undefined));
    await saves.stop();
    const ready = await service.call('GET', '/health/ready');
    expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining('copy the files') } });
    const line = service.logLines().find(({ descriptors }) => descriptors !== undefined);
    expect(line).toMatchObject({ level: 'fatal' });
    mkdirSync(join(production.cwd, 'data'));
    for (const text of v.parse(v.array(v.string()), line?.descriptors)) {
      const [from = '', target = ''] = text.split(' -> ');
      copyFileSync(from, target.includes('planning.db-wal') ? `${path}-wal` : path);
    }
    service.process.kill('SIGKILL');
    await service.process.exited;
    expect((await production.planning('doctor')).stdout).toMatch(/ok +database /);
    expect(saves.history.faultsOf(path)).toEqual([]);
  }, 30_000);
});

test('H2 a start on a file whose WAL belongs to another file names the WAL and the remedy', async () => {
  const { databasePath: path, ...production } = await leaveLog();
  writeFileSync(path, 'not a database '.repeat(1000));
  const { stderr } = await failToStart({ cwd: production.cwd, environment: production.settings });
  expect(stderr).toContain(`The WAL ${path}-wal may belong to another file`);
  expect(stderr).toContain('doctor --deep');
}, 30_000);

describe('H3 doctor', () => {
  test.each([
    ['the index is removed', '-shm', (path: string) => rmSync(`${path}-shm`)],
    ['the WAL is moved', '-wal', (path: string) => renameSync(`${path}-wal`, `${path}-wal.moved`)],
    ['the file is moved', '', (path: string) => renameSync(path, `${path}.moved`)],
  ])(
    'H3 fails and names the process and the reason of the running service when %s',
    async (_, suffix, harm) => {
      const production = await createProduction();
      const path = production.databasePath;
      const service = await production.start();
      await production.write('port.env', `PORT=${new URL(service.address).port}\n`);
      const doctor = async () => {
        const { stdout, exitCode } = await production.planning('doctor', '--json', '--env-file', 'port.env');
        const { findings } = v.parse(Findings, JSON.parse(stdout));
        const detailOf = (name: string) => findings.find(({ check }) => check === name);
        return { exitCode, file: detailOf('open file'), running: detailOf('service') };
      };
      expect(await doctor()).toMatchObject({ file: { result: 'ok' }, running: { result: 'ok' } });
      harm(path);
      await until(async () => (await service.health()) === 503);
      const detail = expect.stringContaining(`process ${service.process.pid} has a file open that was removed`);
      expect(await doctor()).toMatchObject({
        exitCode: 1,
        file: { result: 'failed', detail },
        running: { result: 'failed', detail: expect.stringContaining('is not ready: The database is lost: the ') },
      });
      expect((await doctor()).file?.detail).toContain(`(${path}${suffix})`);
    },
    30_000,
  );
});

describe('M7 migrate', () => {
  test('M7 reports that DATABASE_URL is a folder, names the owner and mode of a file, and makes an empty file private', async () => {
    const production = await createProduction();
    const path = production.databasePath;
    const folder = await openDatabase({ url: `file:${production.cwd}`, timeoutMs: 1000 }).catch(
      (error: unknown) => error,
    );
    expect(folder).toMatchObject({ code: 'SQLITE_CANTOPEN', advice: expect.stringContaining('it is a folder') });
    chmodSync(path, 0o400);
    chmodSync(production.cwd, 0o755);
    chmodSync(join(production.cwd, 'data'), 0o755);
    const source = join(import.meta.dirname, '../../src/db/database-file.ts');
    const script = `const { openAdvice } = await import(${JSON.stringify(source)}); process.setgid(65534); process.setuid(65534);
      console.log(openAdvice(${JSON.stringify(path)}, 'SQLITE_CANTOPEN'))`;
    const child = Bun.spawnSync([process.execPath, '-e', script], { cwd: import.meta.dirname });
    if (process.getuid?.() === 0) {
      expect(child.stdout.toString()).toContain(
        'belongs to uid 0, gid 0 with mode 0755, and this process runs as uid 65534',
      );
    }
    rmSync(path);
    writeFileSync(path, '', { mode: 0o644 });
    expect((await production.planning('migrate')).exitCode).toBe(0);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  }, 30_000);
});
