import { Database as SqliteFile } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { programOf } from '../support/artifacts';
import { createCommandLine } from '../support/command';
import { createSaveHistory } from '../support/disks';
import { createProduction, type Production, productionSettings } from '../support/processes';
import { atEnd, temporaryFolder, until } from '../support/resources';

const rows = 15_000;
const ignored = ['SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGVTALRM', 'SIGPROF', 'SIGIO'] as const;
const Count = v.object({ count: v.number() });

/** Saves until the service refuses connections, and records the acknowledged saves. */
function startSavers(service: Production, savers: number) {
  const history = createSaveHistory();
  const statuses = new Set<number>();
  const saving = Promise.all(
    Array.from({ length: savers }, async (_, saver) => {
      const as = `saver-${saver}`;
      for (let round = 0; ; round += 1) {
        const body = { firstName: `A${'b'.repeat(round % 50)}` };
        const response = await service.call('POST', '/v2/private/user/profile', { as, body }).catch(() => undefined);
        if (response === undefined) return;
        statuses.add(response.status);
        if (response.status === 200) history.note(as, response);
      }
    }),
  );
  return { ...history, statuses, saving };
}

describe('the service', () => {
  test('F23 the service continues after SIGHUP and ignored signals under load, and drains after SIGQUIT', async () => {
    const deployment = await createProduction();
    const service = await deployment.start();
    const savers = startSavers(service, 8);
    await until(() => savers.acknowledged.length > 50);
    for (const signal of ['SIGHUP', ...ignored] as const) {
      const before = savers.acknowledged.length;
      service.process.kill(signal);
      await until(() => savers.acknowledged.length > before + 20);
    }
    for (const signal of ignored) {
      await until(() => service.logLines().some((line) => line.signal === signal));
      expect(service.logLines().filter((line) => line.signal === signal)).toMatchObject([
        { level: 'info', msg: 'the signal is ignored' },
      ]);
    }
    expect(await service.health('live')).toBe(200);
    service.process.kill('SIGQUIT');
    expect(await service.process.exited).toBe(0);
    await savers.saving;
    expect([...savers.statuses]).toEqual([200]);
    expect(savers.faultsOf(deployment.databasePath)).toEqual([]);
  });

  test('F23 the service loses no acknowledged save when SIGTERM, SIGINT or SIGQUIT follows the first', async () => {
    const deployment = await createProduction();
    for (const [first, second] of [
      ['SIGTERM', 'SIGINT'],
      ['SIGINT', 'SIGQUIT'],
    ] as const) {
      const service = await deployment.start();
      const savers = startSavers(service, 8);
      await until(() => savers.acknowledged.length > 50);
      service.process.kill(first);
      service.process.kill(second);
      expect(await service.process.exited).toBe(0);
      await savers.saving;
      const history = savers.faultsOf(deployment.databasePath);
      expect(history.filter((fault) => fault.endsWith('is lost'))).toEqual([]);
    }
  });
});

describe('a development start in a terminal', () => {
  const startInTerminal = async (environment: Record<string, string>) => {
    let output = '';
    const child = Bun.spawn([process.execPath, await programOf('src/main')], {
      cwd: temporaryFolder(),
      env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', DRAIN_MS: '0', ...environment },
      terminal: {
        cols: 200,
        data: (_, bytes) => {
          output += new TextDecoder().decode(bytes);
        },
      },
    });
    atEnd(() => child.kill('SIGKILL'));
    await until(() => /address +http/.test(output));
    return { child, output: () => output };
  };

  test('F23 a development start ends when its terminal is closed', async () => {
    const { child } = await startInTerminal({});
    child.terminal?.close();
    expect(await child.exited).toBe(0);
  });

  test('F23 a development start reloads its secrets on SIGHUP when a setting names a secret file', async () => {
    const file = join(temporaryFolder(), 'secret');
    await Bun.write(file, productionSettings.AUTH_SECRET);
    const { child, output } = await startInTerminal({ AUTH_SECRET_FILE: file });
    child.kill('SIGHUP');
    await until(() => output().includes('the secrets were read again'));
    expect(child.exitCode).toBeNull();
  });
});

test('F23 a long import ends after a signal with its exit code and keeps whole batches; the next run stores the rest', async () => {
  const line = await createCommandLine(productionSettings, { isProcess: true });
  await line.write('staff.csv', 'id,role,firstName,lastName,managerId\nboss,salesManager,A,B,\n');
  const days = Array.from({ length: rows }, (_, index) => String((index % 28) + 1).padStart(2, '0'));
  const activities = days.map((day, index) => `a${index},boss,quote,1.00,2026-03-${day}`);
  await line.write('activities.csv', ['externalId,staffId,kind,amount,occurredAt', ...activities].join('\n'));
  expect((await line.planning('import', 'staff', 'staff.csv')).exitCode).toBe(0);
  const file = new SqliteFile(join(line.cwd, 'data/planning.db'));
  file.run('PRAGMA busy_timeout = 5000');
  const stored = () => v.parse(Count, file.query('SELECT count(*) AS count FROM activities').get()).count;
  for (const [signal, exitCode] of [
    ['SIGHUP', 129],
    ['SIGINT', 130],
    ['SIGQUIT', 131],
    ['SIGTERM', 143],
  ] as const) {
    const importing = line.start('import', 'activities', 'activities.csv');
    const before = stored();
    await until(() => stored() > before);
    const begun = stored();
    importing.kill('SIGUSR1');
    importing.kill('SIGUSR2');
    await until(() => stored() > begun);
    importing.kill(signal);
    expect(await importing.exited).toBe(exitCode);
    expect(await new Response(importing.stderr).text()).toContain('run the command again to store the rest');
    expect(stored()).toBeLessThan(rows);
  }
  expect((await line.planning('import', 'activities', 'activities.csv')).exitCode).toBe(0);
  expect(stored()).toBe(rows);
  file.close();
});
