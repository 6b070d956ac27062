import { describe, expect, test } from 'bun:test';
import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { join } from 'node:path';
import { createProduction, type Production } from '../support/production';
import { createSaveHistory } from '../support/save-history';
import { failToStart } from '../support/service';
import { until } from '../support/until';

const ltc = '/v2/private/ltc/lifetimeCare';

/** Saves as several users, one save after the other each, until `stop`. */
function startSaves(service: Production, users = 4) {
  const history = createSaveHistory();
  let isStopped = false;
  const running = Array.from({ length: users }, async (_, user) => {
    for (let count = 0; !isStopped; count += 1) {
      const body = { careCosts: 1 + (count % 3) };
      const answer = await service.call('POST', ltc, { as: `user-${user}`, body }).catch(() => undefined);
      if (answer?.status === 200) history.note(`user-${user}`, answer);
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

/** Ends a service with SIGKILL while it saves, so that its log holds saves that are nowhere else. */
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

describe('C1 a log without its database file', () => {
  test.each([
    ['missing', (path: string) => rmSync(path)],
    ['empty (0 bytes)', (path: string) => truncateSync(path)],
  ])(
    'C1 is kept by every command and by the start when the file is %s',
    async (state, harm) => {
      const { history, databasePath: path, folder, ...production } = await leaveLog();
      copyFileSync(path, join(production.cwd, 'kept.db'));
      harm(path);
      const before = contentsOf(folder);
      const refusal = `The log ${path}-wal belongs to a database file that is ${state}: put the file back beside its log.`;
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
          stderr: expect.stringContaining('its log'),
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

  test('C1 is kept by migrate while a service has the moved file open', async () => {
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
