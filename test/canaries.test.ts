import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { createSecretKey } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import * as v from 'valibot';
import { magicLastNames } from '../src/carrier-sandbox/server';
import { readResponse, testSecret } from './support/app';
import { canary, canaryRequests, canaryWord, findCanaries } from './support/canaries';
import { privateRoutes } from './support/contract';
import { keys } from './support/database';
import { echoCount, startEchoCarrier } from './support/echo-carrier';
import { type Service, startService } from './support/processes';
import { temporaryFolder, until } from './support/resources';
import { metricsToken, startReceiver } from './support/telemetry';

const own = canaryWord('subject');
const coverage = '/v2/private/ltc/totalCoverage';
const profile = '/v2/private/user/profile';
const Errors = v.looseObject({
  instance: v.optional(v.string()),
  errors: v.optional(v.array(v.looseObject({ pointer: v.string() }))),
});

const sign = (claims: object, expiresIn = '1h', secret = testSecret) =>
  new SignJWT({ name: canary('claim'), email: canaryWord('claim@example.com'), ...claims })
    .setProtectedHeader({ alg: 'HS256' })
    .setExpirationTime(expiresIn)
    .sign(createSecretKey(secret, 'utf8'));
const token = await sign({ sub: own });

/** The headers that clients and proxies send, each with a canary. */
const headers = {
  'user-agent': canary('agent'),
  cookie: `session=${canaryWord('cookie')}`,
  referer: `http://localhost/${canaryWord('referer')}`,
  'x-forwarded-for': canaryWord('address'),
  'x-request-id': `${canaryWord('id')}!`,
  'accept-language': canaryWord('language'),
  tracestate: `a=${canaryWord('state')}`,
  baggage: `a=${canaryWord('baggage')}`,
};

interface Sent {
  readonly method?: string;
  readonly authorization?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** A string is sent unchanged, any other value as JSON. */
  readonly body?: unknown;
}

/** Sends requests full of canaries and expects that a problem repeats no value that was sent. */
function createCanaryClient(service: Service) {
  const statuses = new Map<number, number>();
  const send = async (path: string, { method, authorization, body, ...more }: Sent = {}) => {
    const response = await readResponse(
      await fetch(service.address + path, {
        method: method ?? (body === undefined ? 'GET' : 'POST'),
        redirect: 'manual',
        headers: {
          ...headers,
          authorization: authorization ?? `Bearer ${token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...more.headers,
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      }),
    );
    statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    if (response.status >= 400) {
      const { instance: _, errors = [], ...problem } = v.parse(Errors, response.body);
      expect(findCanaries(JSON.stringify([problem, errors.map(({ pointer: _, ...rest }) => rest)]))).toEqual([]);
      expect(findCanaries(JSON.stringify([...response.headers]))).toEqual([]);
    }
    return response;
  };
  return { send, statuses };
}

/** Files that may contain canaries: the databases and their WALs. */
const isDatabase = (name: string) => /\.db(?:-wal|-shm)?$/.test(name);

const receiver = startReceiver();

/** Stops the service and expects no canary outside the databases and the responses to their owner. */
async function expectNoneElsewhere(service: Service, cwd: string): Promise<void> {
  const places: Record<string, Uint8Array | string> = {
    arguments: readFileSync(`/proc/${service.process.pid}/cmdline`),
    'working folder': readdirSync(cwd, { recursive: true }).join('\n'),
  };
  for (const path of ['/health/live', '/health/ready', '/swagger/json']) {
    places[path] = await (await fetch(`${service.address}${path}`)).text();
  }
  const another = {
    authorization: `Bearer ${await sign({ sub: 'another', name: '', email: '', roles: ['salesManager'] })}`,
  };
  for (const { method, path } of privateRoutes) {
    if (method === 'GET') places[path] = await (await fetch(`${service.address}${path}`, { headers: another })).text();
  }
  for (const name of readdirSync(cwd, { recursive: true, encoding: 'utf8' })) {
    const path = join(cwd, name);
    if (statSync(path).isFile() && !isDatabase(name)) places[name] = readFileSync(path);
  }
  const scrape = await fetch(`${service.address}/metrics`, { headers: { authorization: `Bearer ${metricsToken}` } });
  places.metrics = await scrape.text();
  expect(places.metrics).toContain('http_requests_total{');
  service.process.kill('SIGTERM');
  await service.process.exited;
  places.output = service.output();
  places.traces = receiver.sent.join('\n');
  expect(places.traces).toContain('/v2/private/user/profile');
  const database = new SqliteDatabase(join(cwd, 'data/planning.db'), { readonly: true });
  const { userIds, ...auditLog } = auditOf(database);
  database.close();
  expect(userIds).toContain(own);
  places['audit log'] = JSON.stringify(auditLog);
  for (const [place, bytes] of Object.entries(places)) expect([place, findCanaries(bytes)]).toEqual([place, []]);
}

/** The user ids of the audit log, and its other columns. */
function auditOf(database: SqliteDatabase) {
  const events = database.query<Record<string, unknown>, []>('SELECT * FROM audit_events').all();
  return { userIds: events.map((event) => event.user_id), others: events.map(({ user_id: _, ...rest }) => rest) };
}

const environment = {
  METRICS_TOKEN: metricsToken,
  OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
  LOG_LEVEL: 'debug',
  AUTH_SECRET: testSecret,
  DATABASE_TIMEOUT_MS: '300',
  CARRIER_TIMEOUT_MS: '300',
  CARRIER_ATTEMPTS: '2',
  CARRIER_BREAKER_FAILURES: '1000',
};

describe('findCanaries', () => {
  test.each([
    ['unchanged', canary()],
    ['in upper case', canary().toUpperCase()],
    ['in JSON', JSON.stringify({ a: [canary()] })],
    ['URL-encoded', encodeURIComponent(canary())],
    ['percent-encoded', '%71%7A%6B%61%6E%61%72%69%78'],
    ['in hex', Buffer.from(`é${canary()}`).toString('hex').toUpperCase()],
    ['in base64', Buffer.from(`é${canary()}`).toString('base64')],
    ['in base64, shifted by one byte', Buffer.from(`${canary()}`).toString('base64url')],
    ['in base64, shifted by two bytes', Buffer.from(`x${canary()}`).toString('base64')],
    ['in a token', token],
    ['among bytes', Buffer.concat([Buffer.from([0, 255]), Buffer.from(canary())])],
    ['as a date', 'born 1951-07-19'],
    ['as a number', '{"careCosts":987654321.17}'],
  ])('finds a canary %s', (_, bytes) => {
    expect(findCanaries(bytes)).not.toEqual([]);
  });
});

describe('personal data', () => {
  test('stays in the database and the responses to its owner after success, rejections and failures at log level debug', async () => {
    const cwd = temporaryFolder();
    const service = await startService({ cwd, environment, hasErrorsInOutput: true });
    const { send, statuses } = createCanaryClient(service);
    const requests = canaryRequests(await (await fetch(`${service.address}/swagger/json`)).json());
    expect(requests.length).toBeGreaterThanOrEqual(8);

    for (const { path, body } of requests) expect([path, (await send(path, { body })).status]).toEqual([path, 200]);
    for (const { path } of privateRoutes.filter(({ method }) => method === 'GET')) {
      await send(path);
      await send(`${path}?q=${canaryWord('query')}`);
    }
    expect(findCanaries((await send('/v2/private/user')).text).length).toBeGreaterThanOrEqual(5);

    for (const { path, body, wrong } of requests) {
      if (Object.keys(body).length > 0) expect(wrong.length).toBeGreaterThan(10);
      const statuses = new Set<number>();
      for (const each of wrong) statuses.add((await send(path, { body: each.body })).status);
      // Any text is valid in a free-text field.
      statuses.delete(200);
      expect([path, [...statuses]]).toEqual([path, Object.keys(body).length > 0 ? [422] : []]);
      await send(path, { body: { [canaryWord('key')]: canary() } });
      await send(path, { body: `{"${canary()}` });
      await send(`${path}?q=${canaryWord('query')}&${canaryWord('name')}=1`, { body });
      await send(path, { body: canary(), headers: { 'content-type': canaryWord('type') } });
      await send(path, { body: { ...body, [canaryWord('key')]: canary().repeat(30_000) } });
      await send(path, { body, headers: { 'if-match': `"${canaryWord('tag')}"` } });
      await send(path, { method: 'DELETE' });
    }
    await send(`/v2/private/${canaryWord('path')}`);
    await send(`/v2/private/cemetery/all?page=${canaryWord('page')}&sort=${canaryWord('sort')}`);
    await send(`/v2/private/user/salesManager/monthly-glance?month=${canaryWord('month')}`);
    const invalidTokens = [
      canaryWord('scheme'),
      `Bearer ${canaryWord('token')}`,
      `Bearer ${await sign({ sub: own }, '-1h')}`,
      `Bearer ${await sign({ sub: own }, '1h', `${testSecret}${canary()}`)}`,
      `Bearer ${await sign({ sub: canary().repeat(50) })}`,
    ];
    for (const authorization of invalidTokens)
      expect((await send('/v2/private/user', { authorization })).status).toBe(401);
    await send('/v2/private/user', {
      authorization: `Bearer ${await sign({ sub: own, roles: [{ role: canary() }] })}`,
    });

    const applicant = requests.find(({ path }) => path === coverage)?.body;
    const key = { 'idempotency-key': canaryWord('key') };
    await send(coverage, { body: { ...applicant, firstName: canary('first use') }, headers: key });
    expect((await send(coverage, { body: applicant, headers: key })).status).toBe(422);
    await send(coverage, { body: applicant, headers: { 'idempotency-key': canary('with spaces') } });
    for (const lastName of Object.keys(magicLastNames)) {
      const body = { ...applicant, lastName, firstName: canary(lastName) };
      await Promise.all([send(coverage, { body }), send(coverage, { body })]);
    }

    const beside = new SqliteDatabase(join(cwd, 'data/planning.db'));
    beside.run('PRAGMA busy_timeout = 2000');
    beside.run('BEGIN IMMEDIATE');
    for (const { path, body } of requests) await send(path, { body: { ...body, firstName: canary('locked') } });
    beside.run('ROLLBACK');
    for (const kind of ['INSERT', 'UPDATE']) {
      beside.run(`CREATE TRIGGER refused_${kind} BEFORE ${kind} ON users BEGIN SELECT RAISE(ABORT, 'refused'); END`);
    }
    expect((await send(profile, { body: { firstName: canary('refused') } })).status).toBe(500);
    for (const kind of ['INSERT', 'UPDATE']) beside.run(`DROP TRIGGER refused_${kind}`);
    beside.close();

    const seen = [200, 400, 401, 403, 404, 405, 412, 413, 415, 422, 500, 502, 503, 504];
    expect(seen.filter((status) => !statuses.has(status))).toEqual([]);
    await until(() => service.output().includes('request failed'));
    expect(service.output()).toContain('carrier request');
    expect(service.output()).toContain('request refused');
    expect(service.output()).not.toContain('"dropped"');
    await expectNoneElsewhere(service, cwd);
    const stored = readdirSync(join(cwd, 'data')).filter(isDatabase);
    expect(stored.flatMap((name) => findCanaries(readFileSync(join(cwd, 'data', name)))).length).toBeGreaterThan(5);
  }, 60_000);

  test('stays inside when the carrier echoes request data in any part of its response', async () => {
    const cwd = temporaryFolder();
    const carrier = { CARRIER_URL: startEchoCarrier(), CARRIER_API_KEY: canaryWord('key'), CARRIER_ATTEMPTS: '1' };
    const service = await startService({ cwd, environment: { ...environment, ...carrier }, hasErrorsInOutput: true });
    const { send } = createCanaryClient(service);
    const requests = canaryRequests(await (await fetch(`${service.address}/swagger/json`)).json());
    const applicant = requests.find(({ path }) => path === coverage)?.body;
    for (let call = 0; call < 2 * echoCount; call += 1) {
      const response = await send(coverage, { body: { ...applicant, firstName: canary(String(call >> 1)) } });
      expect([502, 503, 504]).toContain(response.status);
    }
    expect(service.output()).toContain('carrier request');
    await expectNoneElsewhere(service, cwd);
  }, 60_000);

  test('appears in no file when encryption is on', async () => {
    const cwd = temporaryFolder();
    const key = { DATABASE_ENCRYPTION_KEY: keys.right };
    const service = await startService({ cwd, environment: { ...environment, ...key }, hasErrorsInOutput: true });
    const { send } = createCanaryClient(service);
    for (const { path, body } of canaryRequests(await (await fetch(`${service.address}/swagger/json`)).json())) {
      expect([path, (await send(path, { body })).status]).toEqual([path, 200]);
    }
    const files = readdirSync(cwd, { recursive: true, encoding: 'utf8' }).filter((name) =>
      statSync(join(cwd, name)).isFile(),
    );
    expect(files.filter(isDatabase).length).toBeGreaterThanOrEqual(4);
    for (const name of files) expect([name, findCanaries(readFileSync(join(cwd, name)))]).toEqual([name, []]);
  });
});
