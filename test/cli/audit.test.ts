import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createSalesStore } from '../../src/modules/sales/store';
import { createTestApp, manager } from '../support/app';
import { type CommandLine, createCommandLine } from '../support/command';
import { auditLinesOf, fillEvents } from '../support/database';
import { startService } from '../support/processes';
import { amount, atEnd } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const me = Bun.spawnSync(['id', '-un']).stdout.toString().trim();
const operatorModule = join(import.meta.dirname, '../../src/cli/context.ts');
const AuditLog = v.object({
  user: v.string(),
  events: v.array(
    v.strictObject({
      time: v.pipe(v.string(), v.isoTimestamp()),
      action: v.string(),
      section: v.nullable(v.string()),
      actor: v.string(),
      actorId: v.nullable(v.string()),
      requestId: v.nullable(v.string()),
      applicationId: v.nullable(v.string()),
    }),
  ),
});

async function setUp(line: CommandLine, url = line.databaseUrl) {
  const db = await openDatabase({ url, timeoutMs: 5000 });
  atEnd(() => db.$client.close());
  const testApp = await createTestApp({ db });
  const audit = async (...args: string[]) => {
    const { exitCode, stdout, stderr } = await line.planning('audit', ...args, '--json');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    return v
      .parse(AuditLog, JSON.parse(stdout))
      .events.map(({ action, section, requestId }) =>
        [action, section, requestId?.startsWith('request-') ? requestId : '…'].join(' '),
      );
  };
  const save = (requestId: string, careCosts: number) =>
    testApp.call('POST', '/v2/private/ltc/lifetimeCare', {
      as: 'ada',
      body: { careCosts },
      headers: { 'x-request-id': requestId },
    });
  return { db, testApp, audit, save };
}

describe('planning audit', () => {
  test('prints the events of a user, newest first, and records its own read', async () => {
    const line = await createCommandLine();
    const { testApp, audit, save } = await setUp(line);
    testApp.now = new Date('2026-03-10T12:00:00.000Z');
    await save('request-1', 1);
    testApp.now = new Date('2026-03-11T12:00:00.000Z');
    await save('request-2', 2);
    const { stdout } = await line.planning('audit', 'ada');
    const [header, ownRead, ...lines] = stdout.trimEnd().split('\n');
    expect(header).toMatch(/^time +action +section +actor +request +application$/);
    expect(ownRead).toMatch(new RegExp(`^\\S+Z  read +audit +operator ${me} +[\\w-]{36}$`));
    expect(lines.map((text) => text.split(/ {2,}/))).toEqual([
      ['2026-03-11T12:00:00.000Z', 'saved', 'ltc.lifetimeCare', 'person', 'request-2'],
      ['2026-03-10T12:00:00.000Z', 'saved', 'ltc.lifetimeCare', 'person', 'request-1'],
    ]);
    const saved = ['saved ltc.lifetimeCare request-2', 'saved ltc.lifetimeCare request-1'];
    const auditRead = 'read audit …';
    expect(await audit('ada')).toEqual([auditRead, auditRead, ...saved]);
    expect(await audit('ada', '--limit', '1')).toEqual([auditRead]);
    expect(await audit('ada', '--since', '2026-03-11')).toEqual([...Array(4).fill(auditRead), saved[0] ?? '']);
  }, 30_000);

  test('records the user of the operating system, not the one in environment variables', async () => {
    const line = await createCommandLine({ USER: 'mallory', LOGNAME: 'mallory', SUDO_USER: 'mallory' });
    const { save } = await setUp(line);
    await save('request-1', 1);
    expect((await line.planning('audit', 'ada')).stdout).toMatch(new RegExp(` operator ${me} `));
    if (process.getuid?.() !== 0) return;
    // A user without a name is recorded by its number.
    const script = `const { currentOperator } = await import(${JSON.stringify(operatorModule)});
      process.setuid(54321);
      process.stdout.write(currentOperator().actorId);`;
    expect(Bun.spawnSync([process.execPath, '-e', script]).stdout.toString()).toBe('uid 54321');
  });

  test('prints reads by staff, and fails with a message for unknown users and invalid options', async () => {
    const line = await createCommandLine();
    const { db, testApp, audit } = await setUp(line);
    await createSalesStore(db).upsertStaff([manager('boss')], testApp.now);
    await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', {
      ...{ as: 'boss', roles: ['salesManager'] },
      headers: { 'x-request-id': 'request-1' },
    });
    expect(await audit('boss')).toEqual(['read audit …', 'read monthlyGlance/2026-03 request-1']);
    const refused = await Promise.all([
      line.planning('audit', 'unknown'),
      line.planning('audit', 'boss', '--since', 'yesterday'),
      line.planning('audit', 'boss', '--limit', '0'),
      line.planning('audit'),
    ]);
    expect(refused.map(({ exitCode, stdout }) => [exitCode, stdout])).toEqual(Array(4).fill([1, '']));
    expect(refused[0]?.stderr).toBe('The audit log has no events of this user.\n');
    expect(refused[1]?.stderr).toStartWith('--since must be a date that exists');
    expect(await auditLinesOf({ db }, 'unknown')).toEqual([]);
  }, 30_000);

  test.skipIf(!hasSqld)(
    'works with a running service on a libSQL server',
    async () => {
      const sqld = await startSqld();
      const migrating = await openDatabase({ url: sqld.url, timeoutMs: 5000 });
      await migrateDatabase(migrating);
      migrating.$client.close();
      const service = await startService({ environment: { DATABASE_URL: sqld.url } });
      const response = await fetch(`${service.address}/v2/private/ltc/lifetimeCare`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${await service.token()}`,
          'content-type': 'application/json',
          'x-request-id': 'request-1',
        },
        body: '{"careCosts":1}',
      });
      expect(response.status).toBe(200);
      const line = await createCommandLine({ DATABASE_URL: sqld.url });
      const { audit } = await setUp(line, sqld.url);
      expect(await audit('demo-user')).toEqual(['read audit …', 'saved ltc.lifetimeCare request-1']);
    },
    60_000,
  );

  test('streams a large history with bounded memory', async () => {
    const line = await createCommandLine({}, { isProcess: true });
    const { db } = await setUp(line);
    const rows = amount({ long: 600_000, short: 20_000 });
    await fillEvents(db, rows, 'value');
    const command = line.start('audit', 'ada', '--json');
    // A slow reader must not make the command buffer rows.
    await Bun.sleep(300);
    const text = await new Response(command.stdout).text();
    expect(await command.exited).toBe(0);
    expect(v.parse(AuditLog, JSON.parse(text)).events).toHaveLength(rows / 2 + 1);
    expect(command.resourceUsage()?.maxRSS).toBeLessThan(400 * 1024 * 1024);
  }, 120_000);

  test('prints the events of other commands, and the export contains them', async () => {
    const line = await createCommandLine();
    const { db, testApp, save } = await setUp(line);
    await createSalesStore(db).upsertStaff([manager('boss')], testApp.now);
    await save('request-1', 1);
    for (const args of [
      ['show', 'ada'],
      ['assign', 'ada', 'boss'],
      ['assign', 'ada', 'boss'],
    ]) {
      expect(await line.planning('user', ...args)).toMatchObject({ exitCode: 0 });
    }
    const exported = await line.planning('user', 'export', 'ada');
    const Export = v.object({ auditTrail: AuditLog.entries.events });
    expect(v.parse(Export, JSON.parse(exported.stdout)).auditTrail.map(({ action, actor }) => [action, actor])).toEqual(
      [
        ['exported', 'operator'],
        ['assigned', 'operator'],
        ['read', 'operator'],
        ['saved', 'person'],
      ],
    );
    const erased = await line.planning('user', 'erase', 'ada', '--yes');
    const keptAs = /The audit log keeps 4 events and this one as (erased:[0-9a-f]{32})\./.exec(erased.stdout)?.[1];
    expect(await auditLinesOf({ db }, 'ada')).toEqual([]);
    expect((await auditLinesOf({ db }, keptAs ?? '')).map((event) => event.split(' ')[0]).sort()).toEqual([
      'assigned',
      'erased',
      'exported',
      'read',
      'saved',
    ]);
    expect((await line.planning('audit', keptAs ?? '')).stdout).toMatch(/ erased +operator /);
    await line.write('staff.csv', 'id,role,firstName,lastName,managerId\nc1,counselor,Emmy,Noether,boss\n');
    expect(await line.planning('import', 'staff', 'staff.csv')).toMatchObject({ exitCode: 0 });
    expect((await line.planning('audit', 'c1')).stdout).toMatch(/ imported +staff +operator /);
  }, 60_000);
});
