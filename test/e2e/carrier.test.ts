import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import { UserBody } from '../../src/modules/users/model';
import { applicant, createTestApp, startSandbox, testCarrier, testSecret, testToken } from '../support/app';
import { programOf } from '../support/artifacts';
import { type Service, startService } from '../support/processes';
import { amount, atEnd, cases, isLong, temporaryFolder, until } from '../support/resources';

const path = '/v2/private/ltc/totalCoverage';
const commandLine = await programOf('src/cli/main');
const numberOf = (body: unknown) => v.parse(UserBody, body).user.purchase.partner?.appNumber;

const environment = {
  LOG_LEVEL: 'error',
  AUTH_SECRET: testSecret,
  CARRIER_API_KEY: 'test-key',
  // A killed service still waits for the carrier, also on a busy machine.
  CARRIER_TIMEOUT_MS: '2000',
  CARRIER_ATTEMPTS: '1',
  CARRIER_BREAKER_MS: '50',
};

async function postTo(service: Service, body: object, as = 'ada') {
  const token = await testToken({ id: as, roles: [], now: new Date() });
  const response = await fetch(`${service.address}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  }).catch(() => undefined);
  return {
    status: response?.status ?? 0,
    number: response?.status === 200 ? numberOf(await response.json()) : undefined,
  };
}

const modes = ['Fine', 'Dropped', 'Busy', 'Declined', 'Slow', 'Broken', 'Garbled', 'Huge', 'Notfiled'];
const kills = [
  ['before the carrier response is stored', 'writing'],
  ['before the carrier receives the request', 'before'],
  ['before the carrier response arrives', 'after'],
] as const;

test(
  'two service processes start one application in every failure of the carrier, and when one is killed',
  async () => {
    const cwd = temporaryFolder();
    const sandbox = await startSandbox(() => new Date());
    const gate = startGate(sandbox.url);
    const start = () => startService({ cwd, environment: { ...environment, CARRIER_URL: gate.url } });
    let [first, second] = await Promise.all([start(), start()]);
    const requests = amount({ long: 100, short: 20 });
    let accepted = 0;
    for (const lastName of cases(modes, 4)) {
      const body = { ...applicant, lastName };
      const post = (index: number) => postTo(index % 2 ? first : second, body);
      const responses = await Promise.all(Array.from({ length: requests }, (_, index) => post(index)));
      const isAccepted = !['Busy', 'Declined', 'Notfiled'].includes(lastName);
      const numbers = new Set(responses.filter(({ status }) => status === 200).map(({ number }) => number));
      if (isAccepted) {
        accepted += 1;
        await until(async () => {
          const { status, number } = await post(0);
          if (status === 200) numbers.add(number);
          else await Bun.sleep(100);
          return status === 200;
        });
      }
      expect({ lastName, numbers: [...numbers], atCarrier: await sandbox.store.count() }).toEqual({
        lastName,
        numbers: isAccepted ? [100_000 + accepted] : [],
        atCarrier: accepted,
      });
      const settled = isAccepted ? 200 : 422;
      const expected = [409, 502, 503, 504, ...(lastName === 'Busy' ? [] : [settled])];
      for (const { status } of responses) expect(expected).toContain(status);
    }

    for (const [as, when] of cases(kills, 1)) {
      const held = gate.hold(when === 'before' ? 'before' : 'after');
      const dying = postTo(first, applicant, as);
      await held.reached;
      const file = new SqliteDatabase(join(cwd, 'data/planning.db'));
      if (when === 'writing') {
        file.run('PRAGMA busy_timeout = 5000');
        file.run('BEGIN IMMEDIATE');
        held.open();
        await Bun.sleep(100);
      }
      first.process.kill('SIGKILL');
      expect((await dying).status).toBe(0);
      await first.process.exited;
      if (when === 'writing') file.run('ROLLBACK');
      expect(file.query('SELECT state FROM applications WHERE user_id = ?').all(as)).toEqual([{ state: 'submitting' }]);
      held.open();
      // Without a repeated request, the other process settles the open application.
      const partner = file.query("SELECT purchase ->> '$.partner.appNumber' AS number FROM users WHERE id = ?");
      accepted += 1;
      const number = 100_000 + accepted;
      await until(() => Bun.deepEquals(partner.all(as), [{ number }]));
      file.close();
      expect(await postTo(second, applicant, as)).toEqual({ status: 200, number });
      expect(await sandbox.store.count()).toBe(accepted);
      if (isLong) first = await start();
    }
  },
  amount({ long: 300_000, short: 60_000 }),
);

describe('kill -9 of the carrier', () => {
  const points = [
    ['before its response is sent', 'during', 503],
    ['before it receives the application', 'before', 503],
    ['after its response', 'after', 200],
  ] as const;
  test.each(cases(points, 1))(
    'leaves one application and one number when killed %s',
    async (_, when, status) => {
      const cwd = temporaryFolder();
      const killed = await startCarrierProcess(cwd, 0);
      const body = { ...applicant, lastName: when === 'during' ? 'Slow' : 'Byron' };
      const gate = startGate(killed.url);
      const held = gate.hold(when === 'before' ? 'before' : 'after');
      const patient = { ...testCarrier, attempts: 1, timeoutMs: 3_000, apiKey: undefined };
      const testApp = await createTestApp({ carrier: createHttpCarrier({ ...patient, url: gate.url }) });
      const dying = testApp.call('POST', path, { as: 'ada', body });
      const rows = () => {
        const db = new SqliteDatabase(join(cwd, 'data/carrier-sandbox.db'), { readonly: true });
        const numbers = db.query('SELECT application_number FROM carrier_applications').all();
        db.close();
        return numbers;
      };
      if (when === 'during') await until(() => rows().length > 0);
      else await held.reached;
      killed.process.kill('SIGKILL');
      await killed.process.exited;
      held.open();
      expect((await dying).status).toBe(status);
      const again = await startCarrierProcess(cwd, Number(new URL(killed.url).port));
      const repeated = await testApp.call('POST', path, { as: 'ada', body });
      expect(repeated.status).toBe(200);
      expect(numberOf(repeated.body)).toBe(100_001);
      expect(rows()).toHaveLength(1);
      again.process.kill('SIGTERM');
      expect(await again.process.exited).toBe(0);
    },
    60_000,
  );
});

/** A proxy in front of a carrier. Between `hold` and `open` it holds each call, so that a test can kill one side. */
function startGate(target: string) {
  const newHold = (side: 'before' | 'after') => ({
    ...{ side, reached: Promise.withResolvers<void>(), opened: Promise.withResolvers<void>() },
  });
  let held: ReturnType<typeof newHold> | undefined;
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    idleTimeout: 60,
    async fetch(request) {
      const { url, method, headers } = request;
      const current = held;
      const wait = async (side: 'before' | 'after') => {
        if (current?.side !== side) return;
        current.reached.resolve();
        await current.opened.promise;
      };
      const body = method === 'POST' ? await request.text() : null;
      await wait('before');
      const response = await fetch(`${target}${new URL(url).pathname}`, { method, headers, body })
        .then(async (forwarded) => new Response(await forwarded.text(), { status: forwarded.status }))
        .catch(() => new Response('gone', { status: 502 }));
      await wait('after');
      return response;
    },
  });
  atEnd(() => server.stop(true));
  return {
    url: `http://127.0.0.1:${server.port}`,
    hold(side: 'before' | 'after') {
      held = newHold(side);
      const { reached, opened } = held;
      const open = () => {
        held = undefined;
        opened.resolve();
      };
      return { reached: reached.promise, open };
    },
  };
}

async function startCarrierProcess(cwd: string, port: number) {
  const child = Bun.spawn([process.execPath, commandLine, 'carrier', '--port', String(port)], {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development' },
    stdout: 'pipe',
    stderr: 'inherit',
  });
  atEnd(async () => {
    child.kill('SIGKILL');
    await child.exited;
  });
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    const url = /http:\/\/\S+/.exec(text)?.[0];
    if (url !== undefined) return { url, process: child };
  }
  throw new Error('The carrier ended before it listened');
}
