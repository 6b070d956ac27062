/** The service on a libSQL server: failures, tokens, and contents of another kind. */
import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createCemeteryStore } from '../../src/modules/cemeteries/store';
import { createUserStore } from '../../src/modules/users/store';
import { seedDatabase } from '../../src/seed';
import { diagnose } from '../support/command';
import { expectConcurrentWritesMatchModel } from '../support/database';
import { readMarkdown } from '../support/pages';
import { createDeployment } from '../support/processes';
import { amount, atEnd, runProgram, temporaryFolder, until } from '../support/resources';
import { hasSqld, newServerDatabase, type Sqld, startPrimary, startSqld } from '../support/servers';

const ltc = '/v2/private/ltc/lifetimeCare';
type Deployment = Awaited<ReturnType<typeof createDeployment>>;
type Started = Awaited<ReturnType<Deployment['start']>>;

const save = ({ call }: Pick<Started, 'call'>, careCosts = 1) => call('POST', ltc, { as: 'ada', body: { careCosts } });
const isSaved = async (service: Pick<Started, 'call'>) => (await save(service)).status === 200;
const read = ({ call }: Started) => call('GET', '/v2/private/user', { as: 'ada' });
const list = ({ call }: Started) => call('GET', '/v2/private/cemetery/all', { as: 'ada' });
const readiness = async ({ call }: Started) => (await call('GET', '/health/ready')).body;
const fatalLines = ({ logLines }: Started) => logLines().filter(({ level }) => level === 'fatal');
const writesAvailable = { status: 'ready', writes: 'available' };
const unavailable = { status: 503, body: { type: '/problems/database-unavailable' } };

async function startService(sqld: Sqld, scheme = 'http', environment: Record<string, string> = {}) {
  const settings = { ...environment, DATABASE_URL: `${scheme}://127.0.0.1:${sqld.port}` };
  const deployment = await createDeployment(settings, { isEmpty: true });
  return { deployment, service: await deployment.start() };
}

describe.skipIf(!hasSqld)('a libSQL server', () => {
  test('serves the same stores through every URL scheme', async () => {
    const url = await newServerDatabase();
    const now = new Date('2026-03-10T12:00:00Z');
    const first = await openDatabase({ url, timeoutMs: 10_000 });
    await migrateDatabase(first, undefined, { forDevelopment: true });
    for (const _ of ['first', 'second']) await seedDatabase(first, { withDemo: true, now });
    first.$client.close();
    const addresses = [url, url.replace('http', 'ws'), `${url.replace('http', 'libsql')}?tls=0`];
    for (const [index, url] of addresses.entries()) {
      const db = await openServiceDatabase({ url, timeoutMs: 5000 });
      const saved = await createUserStore(db).saveSection({
        userId: 'remote',
        section: 'lifeInsurance',
        patch: { policySupport: { selections: [{ id: index, title: 'é🎻' }] }, livingStatus: null },
        requestId: 'request-1',
        now,
      });
      expect(saved).toMatchObject({
        sections: `"profile":{},"insurance":{},"ltc":{},"purchase":{},"lifeInsurance":{"policySupport":{"selections":[{"id":${index},"title":"é🎻"}],"customSelections":[]}},"lifetimeCare":{}`,
        version: index + 1,
      });
      expect(await createUserStore(db).find('remote')).toEqual(saved);
      const page = await createCemeteryStore(db).listPage({ page: 2, limit: 10, sort: 'asc' });
      expect(page).toMatchObject({ count: 12, rows: [{}, {}] });
      if (index === 0) await expectConcurrentWritesMatchModel(db, 15);
      db.$client.close();
    }
  });

  test.concurrent.each([
    ['http', 'cannot be reached. Start the server'],
    ['ws', 'closes the connection. Check the server'],
  ])(
    'causes 503 and one log line while it hangs or is killed, and a repeated save counts once, over %s',
    async (scheme, reason) => {
      const sqld = await startPrimary();
      const { service } = await startService(sqld, scheme, { DATABASE_TIMEOUT_MS: '1000' });
      /** The version of the record once a save is acknowledged; on a busy machine some are too slow. */
      const savedVersion = async (careCosts: number) => {
        let tag: string | null = null;
        await until(async () => {
          tag = (await save(service, careCosts)).headers.get('etag');
          return tag !== null;
        });
        return Number(/^"-?\d+-(\d+)-/.exec(tag ?? '')?.[1]);
      };
      const writeLines = () => service.logLines().filter(({ msg }) => msg.startsWith('the database takes '));
      const isBack = async () => (await isSaved(service)) && writeLines().at(-1)?.level === 'info';
      const version = await savedVersion(5);

      sqld.pause();
      const refused = await save(service, 6);
      expect(refused).toMatchObject(unavailable);
      expect(refused.headers.get('retry-after')).toBe('1');
      sqld.resume();
      // The first save may have been stored or not.
      expect([await savedVersion(6), await savedVersion(6)]).toEqual([version + 1, version + 1]);
      await until(isBack);

      await sqld.kill();
      expect(await save(service)).toMatchObject(unavailable);
      expect([await service.health(), await service.health('live')]).toEqual([503, 200]);
      await sqld.start();
      await until(isBack);
      const noWrites = (words: string) => expect.stringContaining(`takes no writes: ${words}`);
      const isSlow = noWrites('no row could be written within DATABASE_TIMEOUT_MS');
      // On a busy machine a slow save adds a failure and a recovery.
      const lines = writeLines();
      expect(lines.map(({ level }) => level)).toEqual(lines.map((_, index) => (index % 2 === 0 ? 'error' : 'info')));
      expect([...new Set(lines.map(({ msg }) => msg))]).toEqual([
        isSlow,
        'the database takes writes again',
        noWrites(`its server ${reason}`),
      ]);
    },
  );

  test('has every acknowledged save and exactly its audit event after it was killed under eight writers', async () => {
    const sqld = await startPrimary();
    for (let round = 0; round < amount({ long: 20, short: 2 }); round += 1) {
      const db = await openServiceDatabase({ url: sqld.url, timeoutMs: 5000 });
      const acknowledged = new Map<string, number>();
      const saveUntilKilled = async (userId: string) => {
        for (let careCosts = 1; ; careCosts += 1) {
          const of = { userId, requestId: `${userId}-${careCosts}`, now: new Date(), patch: { careCosts } };
          const saved = createUserStore(db).saveSection({ ...of, section: 'ltcLifetimeCare' });
          if ((await saved.catch(() => undefined)) === undefined) return;
          acknowledged.set(userId, careCosts);
        }
      };
      const saving = Promise.all(Array.from({ length: 8 }, (_, index) => saveUntilKilled(`round-${round}-${index}`)));
      await until(() => (acknowledged.get(`round-${round}-0`) ?? 0) >= 10);
      await sqld.kill();
      await saving;
      await sqld.start();
      const { rows } = await db.$client.execute(`SELECT users.id, version, count(*) AS events,
        json_extract(ltc_lifetime_care, '$.careCosts') AS value,
        count(DISTINCT audit_events.request_id) AS requests, max(audit_events.request_id = users.request_id) AS isLast
        FROM users LEFT JOIN audit_events ON user_id = users.id GROUP BY users.id`);
      for (const { version, ...others } of rows) {
        expect(others).toMatchObject({ value: version, events: version, requests: version, isLast: 1 });
      }
      const versions = new Map(rows.map(({ id, version }) => [String(id), Number(version)]));
      for (const [userId, last] of acknowledged) expect(versions.get(userId)).toBeWithin(last, last + 2);
      const foreign = 'SELECT * FROM audit_events WHERE user_id NOT IN (SELECT id FROM users)';
      expect((await db.$client.execute(foreign)).rows).toEqual([]);
      db.$client.close();
    }
  });

  test('stops start, commands and doctor while it has another content, which stays', async () => {
    const url = await newServerDatabase();
    const db = await openDatabase({ url, timeoutMs: 5000 });
    const deployment = await createDeployment({ DATABASE_URL: url }, { isEmpty: true });
    const contents = async () => (await db.$client.execute('SELECT name, sql FROM sqlite_schema ORDER BY name')).rows;
    const expectRefused = async (refusal: string, ...commands: string[][]) => {
      const before = JSON.stringify(await contents());
      expect(await deployment.refusedStart()).toBe(refusal);
      expect((await deployment.planning('doctor')).stdout).toContain(refusal);
      for (const args of commands) {
        const stderr = expect.stringContaining(refusal);
        expect(await deployment.planning(...args)).toMatchObject({ exitCode: 1, stderr });
      }
      expect(JSON.stringify(await contents())).toEqual(before);
    };
    const toCreate = 'Run `bun planning migrate` to create it, or correct DATABASE_URL.';
    await expectRefused(`The database ${url} has no tables. ${toCreate}`, ['seed']);
    await db.$client.execute('CREATE TABLE orders (id)');
    await expectRefused(
      `The database ${url} belongs to another program. Nothing was changed. Correct DATABASE_URL.`,
      ...[['migrate'], ['migrate', '--dry-run'], ['migrate', '--repair'], ['seed']],
    );
    db.$client.close();
  });

  test('gets no demo data from a command in development', async () => {
    const url = await newServerDatabase();
    const { planning } = await createDeployment({ DATABASE_URL: url, NODE_ENV: 'development' }, { isEmpty: true });
    expect((await planning('migrate')).stdout).toContain('is created, migrated and seeded');
    expect((await planning('seed')).exitCode).toBe(0);
    expect((await planning('demo', 'remove', '--dry-run')).stdout).toContain('There is no demo data to remove');
  });

  test('causes 503 with one fatal line when it restarts on an empty folder', async () => {
    const sqld = await startPrimary();
    const { service } = await startService(sqld);
    expect([(await list(service)).status, (await save(service)).status]).toEqual([200, 200]);
    await sqld.kill();
    rmSync(sqld.folder, { recursive: true });
    await sqld.start();
    const responses = await Promise.all(Array.from({ length: 10 }, () => [list(service), save(service)]).flat());
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([503]));
    await until(() => fatalLines(service).length > 0);
    expect(fatalLines(service)).toMatchObject([{ code: 'SCHEMA_EMPTY' }]);
  });

  test.concurrent('takes writes with a round trip of 400 ms', async () => {
    const port = await startDelay((await startPrimary()).port, 400);
    const deployment = await createDeployment({ DATABASE_URL: `http://127.0.0.1:${port}` }, { isEmpty: true });
    const diagnosis = diagnose(deployment);
    const service = await deployment.start();
    expect(await isSaved(service)).toBe(true);
    expect(await readiness(service)).toEqual(writesAvailable);
    const { findingOf } = await diagnosis;
    expect(findingOf('writes')).toEqual({ check: 'writes', result: 'ok', detail: 'a test row was written' });
    expect(await readiness(service)).toEqual(writesAvailable);
  });
});

/** A TCP proxy that delays every byte by half of `roundTripMs` in each direction. */
async function startDelay(port: number, roundTripMs: number): Promise<number> {
  const pipe = (from: Socket, to: Socket) => {
    from.on('data', (bytes) => setTimeout(() => to.writable && to.write(bytes), roundTripMs / 2));
    from.on('end', () => setTimeout(() => to.end(), roundTripMs / 2));
    from.on('error', () => to.destroy());
    from.on('close', () => setTimeout(() => to.destroy(), roundTripMs));
  };
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    pipe(near, far);
    pipe(far, near);
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, '127.0.0.1', resolve);
  await promise;
  atEnd(() => server.close());
  return v.parse(v.object({ port: v.number() }), server.address()).port;
}

/** A libSQL server that requires a token, and a deployment that reads its token from a file. */
async function startWithToken(scheme: string, environment: Record<string, string> = {}) {
  const folder = temporaryFolder();
  const keyFile = join(folder, 'sqld.pem');
  const tokenFile = join(folder, 'token');
  const [key, otherKey] = [generateKeyPairSync('ed25519'), generateKeyPairSync('ed25519')];
  const accept = (publicKey: KeyObject) => writeFileSync(keyFile, publicKey.export({ type: 'spki', format: 'pem' }));
  const use = async (access: 'rw' | 'ro', { seconds = 3600, by = key.privateKey } = {}) => {
    const token = new SignJWT({ a: access }).setProtectedHeader({ alg: 'EdDSA' });
    const signed = await token.setExpirationTime(Math.floor(Date.now() / 1000) + seconds).sign(by);
    writeFileSync(tokenFile, `${signed}\n`, { mode: 0o600 });
  };
  accept(key.publicKey);
  await use('rw');
  const sqld = await startPrimary({ keyFile });
  const settings = { DATABASE_AUTH_TOKEN_FILE: tokenFile, ...environment };
  const { deployment, service } = await startService(sqld, scheme, settings);
  /** Restarts the server with another key. */
  const restart = async ({ publicKey }: { readonly publicKey: KeyObject }) => {
    await sqld.kill();
    accept(publicKey);
    await sqld.start();
  };
  const tokenLines = () =>
    service.logLines().filter(({ setting, level }) => setting === 'DATABASE_AUTH_TOKEN' && level !== 'warn');
  return { deployment, service, sqld, key, otherKey, use, restart, tokenLines };
}

const refusedToken =
  'It does not accept DATABASE_AUTH_TOKEN: the token is missing, has expired or is signed with another key.';

describe.skipIf(!hasSqld)('the token of a libSQL server', () => {
  test.concurrent.each(['http', 'ws'])(
    'stops reads and saves when it is refused, and restores them when it is accepted again, over %s',
    async (scheme) => {
      const { deployment, service, sqld, key, otherKey, use, restart, tokenLines } = await startWithToken(scheme);
      expect(await isSaved(service)).toBe(true);
      expect(await readiness(service)).toEqual(writesAvailable);
      expect(tokenLines()).toEqual([]);

      await use('rw', { seconds: -3600 });
      service.reloadSecrets();
      await until(async () => !(await isSaved(service)));
      const refused = await save(service);
      expect(refused).toMatchObject(unavailable);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
      expect([(await read(service)).status, await service.health(), await service.health('live')]).toEqual([
        503, 503, 200,
      ]);
      expect(fatalLines(service)).toMatchObject([
        { code: 'TOKEN_REFUSED', msg: 'the database refuses this token: nothing can be read or saved' },
      ]);
      expect((await diagnose(deployment)).findingOf('database')).toEqual({
        check: 'database',
        result: 'failed',
        detail: `${scheme}://127.0.0.1:${sqld.port} cannot be used (TOKEN_REFUSED). ${refusedToken}`,
      });

      await use('rw');
      service.reloadSecrets();
      await until(() => isSaved(service));
      expect(await service.health()).toBe(200);
      expect(tokenLines().at(-1)).toMatchObject({ level: 'info', msg: 'the database accepts the token' });

      await restart(otherKey);
      await until(async () => (await save(service)).status === 503 && fatalLines(service).length === 2);
      // The token is valid again without a signal.
      await restart(key);
      await until(() => isSaved(service));
      expect(await service.health()).toBe(200);
      expect(fatalLines(service)).toHaveLength(2);
    },
    60_000,
  );

  test.concurrent('allows reads when it is read-only, and appears as the reason that saves fail', async () => {
    const { deployment, service, use } = await startWithToken('http');
    expect(await isSaved(service)).toBe(true);
    await use('ro');
    service.reloadSecrets();
    await until(async () => (await save(service)).status === 503);
    const refused = await save(service);
    expect(refused).toMatchObject(unavailable);
    expect(refused.headers.has('retry-after')).toBe(true);
    expect((await read(service)).status).toBe(200);
    const readOnly = { status: 'ready', writes: 'unavailable', reason: 'TOKEN_READ_ONLY' };
    await until(async () => Bun.deepEquals(await readiness(service), readOnly));
    expect(fatalLines(service)).toMatchObject([
      { code: 'TOKEN_READ_ONLY', msg: 'the database lets this token only read: nothing can be saved' },
    ]);
    expect((await diagnose(deployment)).findingOf('writes')).toEqual({
      check: 'writes',
      result: 'failed',
      detail: 'writes fail (TOKEN_READ_ONLY). DATABASE_AUTH_TOKEN has no write permission: set a token that has it.',
    });
    await use('rw');
    service.reloadSecrets();
    await until(() => isSaved(service));
    await until(async () => Bun.deepEquals(await readiness(service), writesAvailable));
  });

  test.concurrent('is read again by an embedded replica when the secrets are reloaded', async () => {
    const replica = { DATABASE_REPLICA_PATH: join(temporaryFolder(), 'replica.db'), DATABASE_SYNC_INTERVAL_MS: '100' };
    const { service, otherKey, use, restart, tokenLines } = await startWithToken('http', replica);
    const replicaLines = () => service.logLines().filter(({ msg }) => msg.includes('the replica'));
    const isFollowing = () => replicaLines().at(-1)?.msg === 'the replica follows the primary';
    await until(isFollowing);
    await use('rw', { by: otherKey.privateKey });
    await restart(otherKey);
    expect((await save(service)).status).toBe(503);
    await until(() => replicaLines().length > 1 && tokenLines().some(({ level }) => level === 'fatal'));
    service.reloadSecrets();
    await until(isFollowing);
    await until(() => isSaved(service));
    expect(await service.health()).toBe(200);
    expect(replicaLines().some(({ reason }) => reason === 'process-ended')).toBe(false);
  }, 60_000);

  test.skipIf(Bun.which('openssl') === null)('can be created by the steps in docs/security.md', async () => {
    const page = await Bun.file(new URL('../../docs/security.md', import.meta.url)).text();
    const steps = readMarkdown(page).shown.filter(({ text }) => text.includes('sqld-private.pem'));
    expect(steps.length).toBe(2);
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'secrets'));
    await runProgram(folder, ['sh', '-eu', '-c', steps.map(({ text }) => text).join('\n')]);
    expect(readdirSync(folder).sort()).toEqual(['secrets', 'sqld-private.pem', 'sqld-public.pem']);
    const tokenFile = join(folder, 'secrets/database-token');
    expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
    const sqld = await startSqld({ keyFile: join(folder, 'sqld-public.pem') });
    const settings = { DATABASE_URL: sqld.url, DATABASE_AUTH_TOKEN_FILE: tokenFile };
    const { planning } = await createDeployment(settings, { isEmpty: true });
    expect(await planning('migrate')).toMatchObject({ exitCode: 0 });
    writeFileSync(tokenFile, 'x.y.z');
    const stderr = `The database cannot be opened (TOKEN_REFUSED). ${refusedToken}\n`;
    expect(await planning('migrate')).toMatchObject({ exitCode: 1, stderr });
  });
});
