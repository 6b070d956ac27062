import { Database as Sqlite } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { readMarkdown } from '../support/pages';
import { createProduction, type Production } from '../support/processes';
import { atEnd, runProgram, temporaryFolder, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

type Deployment = Awaited<ReturnType<typeof createProduction>>;

const ltc = '/v2/private/ltc/lifetimeCare';
const save = (service: Production) => service.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } });
const read = (service: Production) => service.call('GET', '/v2/private/user', { as: 'ada' });
const readiness = async ({ address }: Production) => {
  const response = await fetch(`${address}/health/ready`);
  return { status: response.status, body: await response.json() };
};
const tokenLines = (service: Production) =>
  service.logLines().filter(({ setting, level }) => setting === 'DATABASE_AUTH_TOKEN' && level !== 'warn');

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

async function doctorOf({ planning }: Deployment, check: string) {
  const { exitCode, stdout } = await planning('doctor', '--json');
  const found = v.parse(Findings, JSON.parse(stdout)).findings.find((each) => each.check === check);
  return { exitCode, result: found?.result, detail: found?.detail };
}

const newKey = () => generateKeyPairSync('ed25519');
const writeKey = (path: string, publicKey: KeyObject) =>
  writeFileSync(path, publicKey.export({ type: 'spki', format: 'pem' }));
const tokenBy = (key: KeyObject, access: 'rw' | 'ro', seconds: number) =>
  new SignJWT({ a: access })
    .setProtectedHeader({ alg: 'EdDSA' })
    .setExpirationTime(Math.floor(Date.now() / 1000) + seconds)
    .sign(key);

describe.skipIf(!hasSqld)('F12 the token of a libSQL server', () => {
  test.each(['http', 'ws'])(
    'F12 stops reads and saves when it is refused, and restores them when it is accepted again, over %s',
    async (scheme) => {
      const folder = temporaryFolder();
      const keyFile = join(folder, 'sqld.pem');
      const tokenFile = join(folder, 'token');
      const [key, otherKey] = [newKey(), newKey()];
      writeKey(keyFile, key.publicKey);
      const use = (token: string) => writeFileSync(tokenFile, `${token}\n`, { mode: 0o600 });
      const good = await tokenBy(key.privateKey, 'rw', 3600);
      use(good);
      const sqld = await startSqld({ keyFile });
      const production = await createProduction(
        { DATABASE_URL: `${scheme}://127.0.0.1:${sqld.port}`, DATABASE_AUTH_TOKEN_FILE: tokenFile },
        { isEmpty: true },
      );
      expect(await production.planning('migrate')).toMatchObject({ exitCode: 0 });
      const service = await production.start();
      const reload = () => service.process.kill('SIGHUP');
      const isSaving = async () => (await save(service)).status === 200;
      expect(await isSaving()).toBe(true);
      expect(await readiness(service)).toMatchObject({ status: 200, body: { writes: 'available' } });
      expect(tokenLines(service)).toEqual([]);

      use(await tokenBy(key.privateKey, 'rw', -3600));
      reload();
      await until(async () => !(await isSaving()));
      const refused = await save(service);
      expect(refused).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
      expect((await read(service)).status).toBe(503);
      expect(await service.health()).toBe(503);
      expect(await service.health('live')).toBe(200);
      const isFatal = ({ level }: { level: unknown }) => level === 'fatal';
      expect(tokenLines(service).filter(isFatal)).toMatchObject([
        { code: 'TOKEN_REFUSED', msg: 'the database refuses this token: nothing can be read or saved' },
      ]);
      expect(await doctorOf(production, 'database')).toEqual({
        exitCode: 1,
        result: 'failed',
        detail: `${scheme}://127.0.0.1:${sqld.port} cannot be used (TOKEN_REFUSED). It does not accept DATABASE_AUTH_TOKEN: the token is missing, has expired or is signed with another key.`,
      });

      use(good);
      reload();
      await until(isSaving);
      expect(await service.health()).toBe(200);
      expect(tokenLines(service).at(-1)).toMatchObject({ level: 'info', msg: 'the database accepts the token' });

      await sqld.kill();
      writeKey(keyFile, otherKey.publicKey);
      await sqld.start();
      await until(async () => (await save(service)).status === 503 && tokenLines(service).filter(isFatal).length === 2);
      await sqld.kill();
      writeKey(keyFile, key.publicKey);
      await sqld.start();
      // The token is valid again without a signal.
      await until(isSaving);
      expect(await service.health()).toBe(200);
      expect(tokenLines(service).filter(isFatal).length).toBe(2);
    },
    120_000,
  );

  test('F12 allows reads when it is read-only, and appears as the reason that saves fail', async () => {
    const folder = temporaryFolder();
    const keyFile = join(folder, 'sqld.pem');
    const tokenFile = join(folder, 'token');
    const key = newKey();
    writeKey(keyFile, key.publicKey);
    const use = async (access: 'rw' | 'ro') => writeFileSync(tokenFile, await tokenBy(key.privateKey, access, 3600));
    await use('rw');
    const sqld = await startSqld({ keyFile });
    const production = await createProduction(
      { DATABASE_URL: sqld.url, DATABASE_AUTH_TOKEN_FILE: tokenFile },
      { isEmpty: true },
    );
    await production.planning('migrate');
    const service = await production.start();
    expect((await save(service)).status).toBe(200);
    await use('ro');
    service.process.kill('SIGHUP');
    await until(async () => (await save(service)).status === 503);
    const refused = await save(service);
    expect(refused).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(refused.headers.has('retry-after')).toBe(true);
    expect((await read(service)).status).toBe(200);
    await until(async () => (await readiness(service)).body.writes === 'unavailable');
    expect(await readiness(service)).toEqual({
      status: 200,
      body: { status: 'ready', writes: 'unavailable', reason: 'TOKEN_READ_ONLY' },
    });
    expect(tokenLines(service).filter(({ level }) => level === 'fatal')).toMatchObject([
      { code: 'TOKEN_READ_ONLY', msg: 'the database lets this token only read: nothing can be saved' },
    ]);
    expect(await doctorOf(production, 'writes')).toEqual({
      exitCode: 1,
      result: 'failed',
      detail: 'writes fail (TOKEN_READ_ONLY). DATABASE_AUTH_TOKEN has no write permission: set a token that has it.',
    });
    await use('rw');
    service.process.kill('SIGHUP');
    await until(async () => (await save(service)).status === 200);
    await until(async () => (await readiness(service)).body.writes === 'available');
  });
});

describe.skipIf(!hasSqld)('F12 an embedded replica', () => {
  test('F12 syncs with the new token after SIGHUP', async () => {
    const folder = temporaryFolder();
    const keyFile = join(folder, 'sqld.pem');
    const tokenFile = join(folder, 'token');
    const [key, otherKey] = [newKey(), newKey()];
    writeKey(keyFile, key.publicKey);
    writeFileSync(tokenFile, await tokenBy(key.privateKey, 'rw', 3600));
    const sqld = await startSqld({ keyFile });
    const production = await createProduction(
      {
        DATABASE_URL: sqld.url,
        DATABASE_AUTH_TOKEN_FILE: tokenFile,
        DATABASE_REPLICA_PATH: join(folder, 'replica.db'),
        DATABASE_SYNC_INTERVAL_MS: '100',
      },
      { isEmpty: true },
    );
    await production.planning('migrate');
    const service = await production.start();
    const replicaLines = () => service.logLines().filter(({ msg }) => msg.includes('the replica'));
    await until(() => replicaLines().at(-1)?.msg === 'the replica follows the primary');
    await sqld.kill();
    writeKey(keyFile, otherKey.publicKey);
    writeFileSync(tokenFile, await tokenBy(otherKey.privateKey, 'rw', 3600));
    await sqld.start();
    await until(() => replicaLines().length > 1 && tokenLines(service).some(({ level }) => level === 'fatal'));
    service.process.kill('SIGHUP');
    await until(() => replicaLines().at(-1)?.msg === 'the replica follows the primary');
    await until(async () => (await save(service)).status === 200);
    expect(await service.health()).toBe(200);
    expect(replicaLines().some(({ reason }) => reason === 'process-ended')).toBe(false);
  }, 120_000);
});

describe.skipIf(!hasSqld || Bun.which('openssl') === null)('F12 the steps in docs/security.md', () => {
  test('F12 create a token that a libSQL server accepts', async () => {
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
    const { planning } = await createProduction(settings, { isEmpty: true });
    expect(await planning('migrate')).toMatchObject({ exitCode: 0 });
    writeFileSync(tokenFile, 'x.y.z');
    expect(await planning('migrate')).toMatchObject({
      exitCode: 1,
      stderr:
        'The database cannot be opened (TOKEN_REFUSED). It does not accept DATABASE_AUTH_TOKEN: the token is missing, has expired or is signed with another key.\n',
    });
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

describe('F11 writes', () => {
  test.skipIf(!hasSqld).each([130, 400])(
    'F11 succeed with a round trip of %d ms to the server',
    async (roundTripMs) => {
      const sqld = await startSqld();
      const port = await startDelay(sqld.port, roundTripMs);
      const production = await createProduction({ DATABASE_URL: `http://127.0.0.1:${port}` }, { isEmpty: true });
      const direct = await createProduction({ DATABASE_URL: sqld.url }, { isEmpty: true });
      expect(await direct.planning('migrate')).toMatchObject({ exitCode: 0 });
      const service = await production.start();
      expect((await save(service)).status).toBe(200);
      for (let poll = 0; poll < 5; poll += 1) {
        expect(await readiness(service)).toEqual({ status: 200, body: { status: 'ready', writes: 'available' } });
        await Bun.sleep(600);
      }
      expect(await doctorOf(production, 'writes')).toEqual({
        exitCode: 0,
        result: 'ok',
        detail: 'a test row was written',
      });
    },
    120_000,
  );

  test('F11 fail with SQLITE_BUSY while another process holds the lock', async () => {
    const production = await createProduction({ DATABASE_TIMEOUT_MS: '500' });
    const service = await production.start();
    expect(await readiness(service)).toEqual({ status: 200, body: { status: 'ready', writes: 'available' } });
    const other = new Sqlite(production.databasePath);
    other.run('PRAGMA busy_timeout = 5000');
    other.run('BEGIN IMMEDIATE');
    await until(async () => (await readiness(service)).body.writes === 'unavailable');
    expect(await readiness(service)).toMatchObject({ status: 200, body: { reason: 'SQLITE_BUSY' } });
    expect(await save(service)).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect((await read(service)).status).toBe(404);
    expect(await doctorOf(production, 'writes')).toEqual({
      exitCode: 1,
      result: 'failed',
      detail: expect.stringContaining('another process holds the write lock (SQLITE_BUSY)'),
    });
    other.run('ROLLBACK');
    other.close();
    await until(async () => (await readiness(service)).body.writes === 'available');
    expect((await save(service)).status).toBe(200);
  });
});
