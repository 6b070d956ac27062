import { describe, expect, test } from 'bun:test';
import { createSecretKey } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import Connection from 'libsql';
import * as v from 'valibot';
import { magicLastNames } from '../../src/carrier-sandbox/server';
import { ConfigError, readConfig } from '../../src/config/settings';
import { encryptionOption } from '../../src/db/database-file';
import { readResponse, testSecret } from '../support/app';
import { createCommandLine } from '../support/command';
import { documentOfSources } from '../support/conformance';
import { privateRoutes } from '../support/contract';
import { type Service, startService } from '../support/processes';
import { atEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, startPrimary } from '../support/servers';
import { createWatchedApp, metricsToken, startReceiver } from '../support/telemetry';

/** Part of every canary text. Letters only, so that JSON, URLs and headers do not change it. */
const mark = 'qzkanarix';
/** Canaries for fields without letters. Reversed, the measure must not look like the seconds of a timestamp. */
const plain = { birthDate: '1951-07-19', amount: 987_654_321.17, count: 987_654_321, measure: 167.86 };
const canary = (what = 'text') => `${mark} ${what}`;
/** A canary without a space, for headers, keys and tokens. */
const canaryWord = (what = 'word') => `${mark}-${what}`;

/** The encoded forms of a text. Base64 has three, one for each byte offset. */
const encodings: Readonly<Record<string, (text: string) => string[]>> = {
  plain: (text) => [text],
  reversed: (text) => [[...text].toReversed().join('')],
  hex: (text) => [Buffer.from(text).toString('hex')],
  'wide characters': (text) => [[...text].join('\0')],
  'percent signs': (text) => [[...text].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('')],
  'JSON escapes': (text) => [
    [...text].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
  ],
  base64: (text) =>
    ['', 'x', 'xx'].map((before) => {
      const encoded = Buffer.from(before + text).toString('base64');
      return encoded.slice(Math.ceil((before.length * 8) / 6), Math.trunc(((before.length + text.length) * 8) / 6));
    }),
};
const forms = [mark, ...Object.values(plain).map(String)].flatMap((text) =>
  Object.entries(encodings).flatMap(([encoding, encode]) =>
    encode(text).map((form) => ({ what: `${text} as ${encoding}`, form, isCased: encoding === 'base64' })),
  ),
);

/** The canaries in `bytes` in any common encoding; request durations are ignored. */
function findCanaries(bytes: Uint8Array | string): string[] {
  const latin1 = typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('latin1');
  const text = latin1.replace(/"durationMs":[\d.]+/g, '');
  const lower = text.toLowerCase();
  return forms.filter(({ form, isCased }) => (isCased ? text : lower).includes(form)).map(({ what }) => what);
}

const Schema = v.looseObject({
  $ref: v.optional(v.string()),
  anyOf: v.optional(v.array(v.unknown())),
  type: v.optional(v.string()),
  enum: v.optional(v.array(v.unknown())),
  pattern: v.optional(v.string()),
  maximum: v.optional(v.number()),
  properties: v.optional(v.record(v.string(), v.unknown())),
  items: v.optional(v.unknown()),
});
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A valid body with a canary in each field that can contain one, for each operation of the OpenAPI document. */
async function canaryRequests() {
  const { operations, schemas } = await documentOfSources();
  const resolve = (schema: unknown): v.InferOutput<typeof Schema> => {
    const parsed = v.parse(Schema, schema);
    const name = parsed.$ref?.split('/').at(-1);
    return name === undefined ? parsed : resolve(schemas[name]);
  };
  const fill = (given: unknown, field: string): unknown => {
    const schema = resolve(given);
    const { anyOf, type, properties = {} } = schema;
    const filled = anyOf?.find((each) => resolve(each).type !== 'null');
    if (filled !== undefined) return fill(filled, field);
    if (schema.enum !== undefined) return schema.enum[0];
    if (type === 'object') {
      return Object.fromEntries(Object.entries(properties).map(([name, property]) => [name, fill(property, name)]));
    }
    if (type === 'array') return [fill(schema.items, field)];
    if (type === 'boolean') return true;
    if (type === 'integer' || field === 'id') return plain.count;
    if (type === 'number') return (schema.maximum ?? plain.amount) < plain.amount ? plain.measure : plain.amount;
    if (/date/i.test(field)) return plain.birthDate;
    if (field === 'state') return 'VA';
    return schema.pattern?.includes('@') ? `${mark}@example.com` : canary(field);
  };
  return operations.flatMap(({ path, body }) => {
    const filled = body && fill(body.schema, 'body');
    return isObject(filled) ? [{ path, body: filled }] : [];
  });
}

/** Copies of a body in which all values at one depth are replaced by an invalid one that contains a canary. */
function wrongBodies(body: unknown): unknown[] {
  const replaceAt = (depth: number, value: unknown, wrong: unknown): unknown => {
    if (depth === 0) return wrong;
    if (Array.isArray(value)) return value.map((item) => replaceAt(depth - 1, item, wrong));
    if (!isObject(value)) return wrong;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replaceAt(depth - 1, item, wrong)]));
  };
  const texts = [canary('wrong'), `${canary()}\0`, 'x'.repeat(300) + canary()];
  const wrong = [...texts, -plain.amount, [[canary('in a list')]], { [canaryWord('key')]: canary() }];
  return wrong.flatMap((each) => [1, 2, 3].map((depth) => replaceAt(depth, body, each)));
}

/** Every secret setting, each with a distinct word, so that a failure names it. */
const secrets = {
  AUTH_SECRET: 'sesame-auth-Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8',
  CARRIER_API_KEY: 'sesame-carrier-7Qe2Rk9',
  CHAT_TOKEN: 'sesame-chat-Zb4Wd6Tn1',
  DATABASE_AUTH_TOKEN: 'sesame-database-Vy8Ls3Hc5',
  DATABASE_ENCRYPTION_KEY: 'sesame-encryption-Hc5Pg3Fa9Lw6Xz2Bu8',
} as const;
const secretsIn = (text: string) => [...new Set(text.match(/sesame-\w+/g) ?? [])];
const { CARRIER_API_KEY, DATABASE_AUTH_TOKEN, ...ownSecrets } = secrets;

const own = canaryWord('subject');
const coverage = '/v2/private/ltc/totalCoverage';
const profile = '/v2/private/user/profile';
const sign = (claims: object, { expiresIn = '1h', secret = secrets.AUTH_SECRET as string } = {}) =>
  new SignJWT({ name: canary('claim'), email: canaryWord('claim@example.com'), ...claims })
    .setProtectedHeader({ alg: 'HS256' })
    .setExpirationTime(expiresIn)
    .sign(createSecretKey(secret, 'utf8'));
const token = await sign({ sub: own });

/** The headers that clients and proxies send, each with a canary. */
const canaryHeaders = {
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
  readonly headers?: Readonly<Record<string, string>>;
  /** A string is sent unchanged, any other value as JSON. */
  readonly body?: unknown;
}
const Event = v.looseObject({ user_id: v.string() });
const Errors = v.looseObject({
  instance: v.optional(v.string()),
  errors: v.optional(v.array(v.looseObject({ pointer: v.string() })), []),
});

/** The response of this path contains the token of the chat. */
const lists = '/v2/private/healthAndCare/';

/** Sends requests full of canaries. Expects that a problem repeats no value that was sent, and that no secret is shown. */
function createCanaryClient(handle: (request: Request) => Promise<Response>, address: string, secret?: string) {
  const signed = sign({ sub: own }, secret === undefined ? {} : { secret });
  const statuses = new Set<number>();
  const send = async (path: string, { method, headers, body }: Sent = {}) => {
    const request = new Request(address + path, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      redirect: 'manual',
      headers: {
        ...canaryHeaders,
        authorization: `Bearer ${await signed}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const response = await readResponse(await handle(request));
    statuses.add(response.status);
    const shown = secretsIn(response.text + JSON.stringify([...response.headers]));
    expect([path, shown]).toEqual([path, response.status === 200 && path.startsWith(lists) ? ['sesame-chat'] : []]);
    if (response.status >= 400) {
      const { instance: _, errors, ...problem } = v.parse(Errors, response.body);
      const parts = [problem, errors.map(({ pointer: _, ...rest }) => rest), [...response.headers]];
      expect(findCanaries(JSON.stringify(parts))).toEqual([]);
    }
    return response;
  };
  return { send, statuses };
}

const expectNone = (places: Readonly<Record<string, Uint8Array | string>>) => {
  for (const [place, bytes] of Object.entries(places)) expect([place, findCanaries(bytes)]).toEqual([place, []]);
};
const filesIn = (cwd: string) =>
  readdirSync(cwd, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(cwd, name)).isFile())
    .map((name) => [name, readFileSync(join(cwd, name))] as const);

/** Everything that a service shows and writes except the responses to `own`. */
async function placesOf(service: Service, cwd: string): Promise<Record<string, Uint8Array | string>> {
  const another = await sign({ sub: 'another', name: '', email: '', roles: ['salesManager'] });
  const read = async (path: string, authorization: string) =>
    (await fetch(`${service.address}${path}`, { headers: { authorization: `Bearer ${authorization}` } })).text();
  const paths = privateRoutes.flatMap(({ method, path }) => (method === 'GET' ? [path] : []));
  const responses = [...paths, '/health/live', '/health/ready', '/swagger/json'].map(async (path) => [
    path,
    await read(path, another),
  ]);
  return {
    ...Object.fromEntries(await Promise.all(responses)),
    arguments: readFileSync(`/proc/${service.process.pid}/cmdline`),
    'working folder': readdirSync(cwd, { recursive: true }).join('\n'),
    ...Object.fromEntries(filesIn(cwd)),
    metrics: await read('/metrics', metricsToken),
  };
}

describe('findCanaries', () => {
  test.each([
    ['in upper case', canary().toUpperCase()],
    ['percent-encoded', '%71%7A%6B%61%6E%61%72%69%78'],
    ['in hex', Buffer.from(`é${canary()}`).toString('hex').toUpperCase()],
    ...['', 'x', 'é'].map((before) => ['in base64', Buffer.from(before + canary()).toString('base64url')] as const),
    ['in a token', token],
    ['among bytes', Buffer.concat([Buffer.from([0, 255]), Buffer.from(canary())])],
    ['as a date', 'born 1951-07-19'],
    ['as a number', '{"careCosts":987654321.17}'],
  ])('finds a canary %s', (_, bytes) => {
    expect(findCanaries(bytes)).not.toEqual([]);
  });
});

describe('personal data', () => {
  test('stays, as the secrets do, in the encrypted files of a service and the responses to its owner when requests succeed and fail at log level debug', async () => {
    const cwd = temporaryFolder();
    const receiver = startReceiver();
    const environment = {
      ...ownSecrets,
      CHAT_ID: 'room',
      METRICS_TOKEN: metricsToken,
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      LOG_LEVEL: 'debug',
      DATABASE_TIMEOUT_MS: '1000',
      CARRIER_TIMEOUT_MS: '500',
      CARRIER_ATTEMPTS: '2',
      CARRIER_BREAKER_FAILURES: '1000',
    };
    const service = await startService({ cwd, environment, hasErrorsInOutput: true });
    const { send, statuses } = createCanaryClient((request) => fetch(request), service.address);
    const requests = await canaryRequests();
    expect(requests.length).toBeGreaterThanOrEqual(8);

    for (const { path, body } of requests) expect([path, (await send(path, { body })).status]).toEqual([path, 200]);
    for (const { path } of privateRoutes.filter(({ method }) => method === 'GET')) {
      await send(path);
      await send(`${path}?q=${canaryWord('query')}`);
    }
    expect(findCanaries((await send('/v2/private/user')).text).length).toBeGreaterThanOrEqual(5);

    const applicant = requests.find(({ path }) => path === coverage)?.body;
    for (const lastName of Object.keys(magicLastNames)) {
      const body = { ...applicant, lastName, firstName: canary(lastName) };
      await Promise.all([send(coverage, { body }), send(coverage, { body })]);
    }

    for (const { path, body } of requests) {
      const wrong = Object.keys(body).length === 0 ? [] : wrongBodies(body);
      const seen = new Set(await Promise.all(wrong.map(async (body) => (await send(path, { body })).status)));
      // Any text is valid in a free-text field.
      seen.delete(200);
      expect([path, [...seen]]).toEqual([path, wrong.length === 0 ? [] : [422]]);
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
    for (const authorization of [
      canaryWord('scheme'),
      `Bearer ${canaryWord('token')}`,
      `Bearer ${await sign({ sub: own }, { expiresIn: '-1h' })}`,
      `Bearer ${await sign({ sub: own }, { secret: `${secrets.AUTH_SECRET}${canary()}` })}`,
      `Bearer ${await sign({ sub: canary().repeat(50) })}`,
    ]) {
      expect((await send('/v2/private/user', { headers: { authorization } })).status).toBe(401);
    }
    const roles = await sign({ sub: own, roles: [{ role: canary() }] });
    await send('/v2/private/user', { headers: { authorization: `Bearer ${roles}` } });

    const idempotent = { 'idempotency-key': canaryWord('key') };
    await send(coverage, { body: { ...applicant, firstName: canary('first use') }, headers: idempotent });
    expect((await send(coverage, { body: applicant, headers: idempotent })).status).toBe(422);
    await send(coverage, { body: applicant, headers: { 'idempotency-key': canary('with spaces') } });

    const key = encryptionOption(secrets.DATABASE_ENCRYPTION_KEY);
    const beside = new Connection(join(cwd, 'data/planning.db'), { timeout: 2000, ...key });
    beside.exec('BEGIN IMMEDIATE');
    await Promise.all(requests.map(({ path, body }) => send(path, { body: { ...body, firstName: canary('locked') } })));
    beside.exec('ROLLBACK');
    for (const kind of ['INSERT', 'UPDATE']) {
      beside.exec(`CREATE TRIGGER refused_${kind} BEFORE ${kind} ON users BEGIN SELECT RAISE(ABORT, 'refused'); END`);
    }
    expect((await send(profile, { body: { firstName: canary('refused') } })).status).toBe(500);
    for (const kind of ['INSERT', 'UPDATE']) beside.exec(`DROP TRIGGER refused_${kind}`);

    const expected = [200, 400, 401, 403, 404, 405, 412, 413, 415, 422, 500, 502, 503, 504];
    expect(expected.filter((status) => !statuses.has(status))).toEqual([]);
    // The reconciler repeats the applications that the carrier has not decided.
    const written = ['carrier request', 'request refused', 'request failed', 'application not settled'];
    await until(() => written.every((line) => service.output().includes(line)));
    const events = v.parse(v.array(Event), beside.prepare('SELECT * FROM audit_events').all());
    beside.close();
    const { [lists]: listsOfAnother, ...places } = await placesOf(service, cwd);
    service.process.kill('SIGTERM');
    await service.process.exited;
    const [output, traces] = [service.output(), receiver.sent.join('\n')];
    expect(output).not.toContain('"dropped"');
    expect(places.metrics).toContain('http_requests_total{');
    expect(traces).toContain(profile);
    expect(events.map(({ user_id }) => user_id)).toContain(own);
    const auditLog = JSON.stringify(events.map(({ user_id: _, ...rest }) => rest));
    const all = { ...places, output, traces, 'audit log': auditLog };
    const databases = ['planning.db', 'carrier-sandbox.db'].flatMap((name) => [`data/${name}`, `data/${name}-wal`]);
    expect(Object.keys(all)).toEqual(expect.arrayContaining(databases));
    expectNone({ ...all, lists: listsOfAnother ?? '' });
    for (const [place, bytes] of Object.entries(all)) {
      expect([place, secretsIn(Buffer.from(bytes).toString('latin1'))]).toEqual([place, []]);
    }
  }, 60_000);

  test('stays inside when the carrier echoes the request in any part of its response', async () => {
    const http = (status: string, body: string, headers = '') =>
      `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nConnection: close\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
    const echoes: ((body: string) => string)[] = [
      (body) => http('500 Failed', `{"error":${body}}`),
      (body) => http(`500 ${body.slice(0, 2000)}`, '{}'),
      (body) => http('400 Bad', body, `X-Echo: ${body}\r\nSet-Cookie: ${body}\r\n`),
      (body) => http('201 Created', `{"applicationNumber":${body}`),
      (body) => http('201 Created', JSON.stringify({ applicationNumber: body, pricing: [] })),
      (body) => http('422 Refused', JSON.stringify({ decision: body })),
      (body) => http('302 Found', '', `Location: http://127.0.0.1:1/${encodeURIComponent(body)}\r\n`),
      (body) => body,
      (body) => `HTTP/1.1 200 OK\r\n${body}: 1\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
      (body) => http('201 Created', body).slice(0, -20),
    ];
    let calls = 0;
    const server = Bun.listen<{ received: string }>({
      hostname: '127.0.0.1',
      port: 0,
      socket: {
        open(socket) {
          socket.data = { received: '' };
        },
        data(socket, chunk) {
          socket.data.received += chunk.toString();
          const [head = '', body = ''] = socket.data.received.split('\r\n\r\n');
          const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
          if (Buffer.byteLength(body) < length) return;
          const echo = echoes[calls % echoes.length];
          calls += 1;
          socket.end(echo?.(body || head.replaceAll('\r\n', ' ')) ?? '');
        },
      },
    });
    atEnd(() => server.stop(true));
    const receiver = startReceiver();
    const watched = await createWatchedApp({
      receiver,
      carrierUrl: `http://127.0.0.1:${server.port}`,
      carrierSettings: { attempts: 1, timeoutMs: 200, breakerFailures: 1_000 },
    });
    watched.now = new Date();
    const { send } = createCanaryClient((request) => watched.app.handle(request), 'http://localhost', testSecret);
    const applicant = {
      firstName: canary(),
      lastName: canary(),
      dateOfBirth: plain.birthDate,
      gender: 'Female',
      state: 'VA',
      email: `${mark}@example.com`,
    };
    for (let call = 0; call < 2 * echoes.length; call += 1) {
      const { status } = await send(coverage, { body: { ...applicant, firstName: canary(String(call >> 1)) } });
      expect([502, 503, 504]).toContain(status);
    }
    expect(calls).toBeGreaterThanOrEqual(2 * echoes.length);
    const metrics = await watched.scrape();
    await watched.tracing?.stop();
    const places = { metrics, log: watched.logLines.join('\n'), traces: receiver.sent.join('\n') };
    expect(places.log).toContain('carrier request');
    expect(places.traces).toContain(coverage);
    expectNone(places);
    // The key of the carrier, which it echoes too.
    for (const text of Object.values(places)) expect(text).not.toContain('test-key');
  });
});

const settings = {
  NODE_ENV: 'production',
  AUTH_ISSUER: 'https://issuer.example',
  AUTH_AUDIENCE: 'planning',
  CARRIER_URL: 'http://127.0.0.1:1',
  CARRIER_ATTEMPTS: '1',
  CHAT_ID: 'room',
  LOG_LEVEL: 'debug',
  PORT: '0',
};
const inAddress = 'sesame-user:sesame-password';

describe('secrets', () => {
  test.each([
    ['DATABASE_URL', `http://${inAddress}@127.0.0.1:1`],
    ['DATABASE_URL', `ws://${inAddress}@127.0.0.1:1`],
    ['AUTH_JWKS_URL', `http://${inAddress}@127.0.0.1:1/jwks?key=sesame-query`],
  ])('do not appear in commands when %s has credentials and is unreachable: %s', async (key, address) => {
    const { AUTH_SECRET, DATABASE_ENCRYPTION_KEY, ...others } = secrets;
    const environment = { ...settings, ...others, ...(key === 'DATABASE_URL' && { AUTH_SECRET }), [key]: address };
    const line = await createCommandLine(environment);
    for (const args of [['user', 'show', 'ada'], ['doctor'], ['migrate']]) {
      const { stdout, stderr } = await line.planning(...args);
      expect(stdout + stderr).not.toBe('');
      expect({ args, seen: secretsIn(stdout + stderr) }).toEqual({ args, seen: [] });
    }
  });

  test.each([
    { CARRIER_URL: `https://${inAddress}@carrier.example` },
    { PUBLIC_URL: `https://${inAddress}@planning.example` },
    { DATABASE_URL: 'libsql://db.example?authToken=sesame-query' },
    { AUTH_PUBLIC_KEY: 'sesame-private', AUTH_SECRET: 'sesame-auth' },
    { AUTH_SECRET: 'sesame-short', DATABASE_ENCRYPTION_KEY: 'sesame-short', CARRIER_API_KEY: 'sesame with space' },
    { DATABASE_URL: 'file:sesame-folder/nowhere/%' },
  ])('do not appear when a setting is rejected: %j', (bad) => {
    const read = () => readConfig({ ...settings, ...secrets, ...bad });
    expect(read).toThrow(ConfigError);
    expect(read).toThrow('These settings cannot be used:\n');
    expect(read).not.toThrow(/sesame/);
  });

  test('do not appear in the output of failing commands and doctor', async () => {
    const environment = { ...settings, ...ownSecrets, CARRIER_API_KEY };
    const line = await createCommandLine({ ...environment, NEW_DATABASE_ENCRYPTION_KEY: 'sesame-new' });
    await line.write('bad.json', '[{"a":');
    const other = await createCommandLine({ ...environment, DATABASE_ENCRYPTION_KEY: `${secrets.AUTH_SECRET}1` });
    await other.write('data/planning.db', readFileSync(join(line.cwd, 'data/planning.db')));
    for (const [{ planning }, ...args] of [
      [line, 'doctor'],
      [line, 'rekey', '--yes'],
      [line, 'restore', 'bad.json', '--yes'],
      [line, 'backup', 'data/planning.db'],
      [line, 'import', 'products', 'bad.json'],
      [line, 'user', 'show', 'unknown'],
      [other, 'doctor'],
      [other, 'migrate'],
    ] as const) {
      const { exitCode, stdout, stderr } = await planning(...args);
      expect({ args, exitCode, seen: secretsIn(stdout + stderr) }).toEqual({ args, exitCode: 1, seen: [] });
    }
  });

  test.skipIf(!hasSqld || process.platform !== 'linux')(
    'do not appear in the environment of the replica sync process, also with an .env file in the folder',
    async () => {
      const primary = await startPrimary();
      const cwd = temporaryFolder();
      const environment = {
        ...settings,
        ...secrets,
        DATABASE_URL: primary.url,
        DATABASE_REPLICA_PATH: 'data/replica.db',
      };
      const lines = Object.entries(environment).map(([key, value]) => `${key}=${value}\n`);
      await Bun.write(join(cwd, '.env'), lines.join(''));
      const service = await startService({ cwd, environment: { NODE_ENV: 'production' } });
      const { pid } = service.process;
      const children = () =>
        readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
      await until(() => children().length > 0 && service.output().includes('the replica follows the primary'));
      for (const child of children()) {
        const seen = ['environ', 'cmdline'].map((name) => readFileSync(`/proc/${child}/${name}`, 'utf8')).join('\0');
        expect(seen).toContain('replica-sync');
        expect(secretsIn(seen)).toEqual([]);
      }
      expect(secretsIn(service.output())).toEqual([]);
    },
  );
});
