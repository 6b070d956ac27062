import { join } from 'node:path';
import * as v from 'valibot';
import { type App, createApp } from '../../src/app';
import { signToken } from '../../src/auth/signing';
import { createTokenVerifier } from '../../src/auth/verifier';
import { createCarrierSandbox, createSandboxStore, type SandboxStore } from '../../src/carrier-sandbox/server';
import { type Database, openDatabase } from '../../src/db/client';
import { replicaOrPrimary } from '../../src/db/replica';
import type { AppDeps } from '../../src/deps';
import { createLog } from '../../src/log';
import type { Operator } from '../../src/modules/audit/store';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import { ApplicationsBody, type CoverageDeps, createCoverageService } from '../../src/modules/coverage/service';
import { createApplicationStore } from '../../src/modules/coverage/store';
import { createSubmissions, type SubmissionDeps } from '../../src/modules/coverage/submissions';
import type { ActivityRecord, StaffRecord } from '../../src/modules/sales/model';
import { UserBody } from '../../src/modules/users/model';
import { createUserStore } from '../../src/modules/users/store';
import { seedDemo } from '../../src/seed';
import { type Carrier, type CarrierDecision, CarrierError } from '../../src/shared/carrier';
import { watchedHandle } from './conformance';
import { temporaryDatabase } from './database';
import { atEnd, temporaryFolder } from './resources';

/** Short timeouts, so that tests are fast. */
export const testCarrier = { attempts: 2, timeoutMs: 5_000, breakerFailures: 5, breakerMs: 100 };

export interface Sandbox {
  readonly store: SandboxStore;
  readonly url: string;
  carrier(settings?: Partial<typeof testCarrier>): Carrier;
}

const testNow = new Date('2026-03-10T12:00:00.000Z');

/** The sandbox carrier on a free port with a temporary database. */
export async function startSandbox(clock: () => Date = () => testNow): Promise<Sandbox> {
  const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'sandbox.db')}`, timeoutMs: 20_000 });
  const store = await createSandboxStore(db);
  const app = createCarrierSandbox({ store, clock, apiKey: 'test-key' }).listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(async () => {
    await app.stop(true);
    db.$client.close();
  });
  const url = `http://127.0.0.1:${app.server?.port}`;
  return {
    store,
    url,
    carrier: (settings) => createHttpCarrier({ ...testCarrier, ...settings, url, apiKey: 'test-key' }),
  };
}

export const testSecret = 'a secret that only the tests know, 32+';
export const testConfig = {
  bodyLimitBytes: 262_144,
  carrier: { applicationsPerDay: 0, attempts: 2, timeoutMs: 500 },
  metricsToken: undefined,
  chat: { id: 'test-chat', token: 'test-chat-token' },
  corsOrigins: [],
  database: { timeoutMs: 2_000 },
  publicUrl: undefined,
  reportTimeZone: 'UTC',
  requestTimeoutMs: 10_000,
} satisfies AppDeps['config'];
const claims = { issuer: undefined, audience: undefined, rolesClaim: 'roles' };

export interface TestResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Parsed when the content type is JSON. */
  readonly body: unknown;
}

export interface CallOptions {
  /** Subject of the token; without it no token is sent. */
  readonly as?: string;
  readonly roles?: readonly string[];
  /** A string is sent unchanged, any other value as JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Sends a request to a service and reads the response. */
export type Call = (method: string, path: string, options?: CallOptions) => Promise<TestResponse>;

export interface TestApp {
  readonly app: App;
  readonly db: Database;
  readonly url: string;
  readonly lifecycle: AppDeps['lifecycle'];
  readonly logLines: string[];
  now: Date;
  readonly call: Call;
}

/** The real app on a temporary database, with a frozen clock that a test can set. */
export async function createTestApp(overrides: Partial<AppDeps> = {}): Promise<TestApp> {
  const { db, url } = await temporaryDatabase();
  const logLines: string[] = [];
  const lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };
  const clock = () => testApp.now;
  const { db: primary = db, replica, monotonicMs = () => clock().getTime() } = overrides;
  const app = createApp({
    config: testConfig,
    carrier: createHttpCarrier({ ...testCarrier, url: 'http://127.0.0.1:1', apiKey: undefined }),
    db,
    clock,
    systemClock: clock,
    monotonicMs,
    demoTokens: undefined,
    hasTokenKeys: () => true,
    lifecycle,
    metrics: undefined,
    tracing: undefined,
    log: createLog('debug', { write: (line) => logLines.push(line) }),
    newId: () => Bun.randomUUIDv7(),
    newRequestId: () => Bun.randomUUIDv7(),
    publicUrl: () => 'http://localhost',
    rateLimits: undefined,
    reads: replica === undefined ? primary : replicaOrPrimary(replica, primary),
    replica,
    verifyToken: await createTokenVerifier(
      { key: { kind: 'secret', secret: testSecret }, ...claims },
      clock,
      monotonicMs,
    ),
    ...overrides,
  });
  app.handle = watchedHandle(app.handle);
  const testApp: TestApp = {
    app,
    db,
    url,
    lifecycle,
    logLines,
    now: testNow,
    call: async (method, path, options) =>
      readResponse(await app.handle(await toRequest('http://localhost', testApp.now, method, path, options))),
  };
  return testApp;
}

interface Listening {
  listen(options: { port: number; hostname: string }): unknown;
  stop(closeConnections: boolean): unknown;
  readonly server: { readonly port?: number | undefined } | null;
}

/** Listens until the end of the tests, and returns the port. */
export function listen({ app }: { readonly app: Listening }, { port = 0, hostname = '127.0.0.1' } = {}): number {
  app.listen({ port, hostname });
  atEnd(() => app.server && app.stop(true));
  return app.server?.port ?? 0;
}

/** The app with demo data and demo tokens, which listens on loopback by default. `tokenOf` signs other tokens. */
export async function listenWithDemoData(
  overrides: Partial<AppDeps> = {},
  at: { port?: number; hostname?: string } = {},
) {
  const tokenOf = (id: string, roles: string[] = []) => testToken({ id, roles, now: testNow });
  const demoTokens = {
    'demo-user': await tokenOf('demo-user'),
    'demo-manager': await tokenOf('demo-manager', ['salesManager']),
  };
  const testApp = await createTestApp({ demoTokens, ...overrides });
  await seedDemo(testApp.db, testNow);
  return { ...testApp, tokenOf, demoTokens, address: `http://127.0.0.1:${listen(testApp, at)}` };
}

/** Calls a service at an address with tokens signed with `testSecret`. */
export function callerOf(address: string): Call {
  return async (method, path, options) =>
    readResponse(await fetch(await toRequest(address, new Date(), method, path, options)));
}

async function toRequest(
  address: string,
  now: Date,
  method: string,
  path: string,
  { as, roles = [], body, headers = {} }: CallOptions = {},
): Promise<Request> {
  const token = as === undefined ? undefined : await testToken({ id: as, roles, now });
  return new Request(`${address}${path}`, {
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
}

export function testToken(options: { id: string; roles?: readonly string[]; now: Date }): Promise<string> {
  return signToken({ secret: testSecret, ...claims, roles: [], ttlSeconds: 3600, ...options });
}

export async function readResponse(response: Response): Promise<TestResponse> {
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.includes('json') ?? false;
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson && text !== '' ? JSON.parse(text) : undefined,
  };
}

/** A valid applicant whose names and e-mail address must not appear in a log. */
export const canaryApplicant = {
  firstName: 'Canaryfirst',
  lastName: 'Canarylast',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'canary@example.com',
} as const;

/** Another valid applicant. */
export const applicant = {
  ...canaryApplicant,
  ...{ firstName: 'Ada', lastName: 'Byron', email: 'ada@example.com' },
} as const;

/** The coverage service and the reconciler of a test app with the given carrier. */
export function coverageServiceOf(testApp: TestApp, carrier: Carrier, systemClock = () => testApp.now) {
  const deps = coverageDepsOf(testApp, carrier, systemClock);
  const applications = createApplicationStore(testApp.db);
  const submissions = createSubmissions(deps, applications);
  const users = createUserStore(testApp.db);
  return { ...submissions, ...createCoverageService(deps, { users, applications, submissions }) };
}

export function coverageDepsOf(
  testApp: TestApp,
  carrier: Carrier,
  systemClock = () => testApp.now,
): CoverageDeps & SubmissionDeps {
  return {
    db: testApp.db,
    clock: () => testApp.now,
    systemClock,
    config: { ...testConfig, carrier: { ...testConfig.carrier, timeoutMs: 300 } },
    carrier,
    newId: () => Bun.randomUUIDv7(),
    log: createLog('debug', { write: (line) => testApp.logLines.push(line) }),
  };
}

export const carrierPricing = [
  { product: 'TERM_10', coverage: 500_000, terms: [{ years: 10, price: 12.34, riders: [] }] },
];
export const accepted = (applicationNumber: number, pricing = carrierPricing): CarrierDecision => ({
  kind: 'accepted',
  applicationNumber,
  pricing,
  reply: '201',
});
export const declined: CarrierDecision = { kind: 'declined', reason: 'declined', reply: '422' };
export const refused = () => new CarrierError('bad-answer', '400', { status: 400 });
export const unavailable = () => new CarrierError('unavailable', '503', { status: 503 });

type CarrierReply = CarrierDecision | CarrierError;
type Respond = (call: { reference: string; count: number }) => CarrierReply | Promise<CarrierReply>;

/** A carrier in this process. Gives each reference a number from 1, unless the test sets `respond`. */
export function createTestCarrier(id = 'test-carrier') {
  const numbers = new Map<string, number>();
  const calls: string[] = [];
  const acceptAll: Respond = ({ reference }) => {
    numbers.set(reference, numbers.get(reference) ?? numbers.size + 1);
    return accepted(numbers.get(reference) ?? 0);
  };
  const carrier = {
    ...{ id, calls, numbers, acceptAll, respond: acceptAll },
    async start({ clientReference: reference }: Parameters<Carrier['start']>[0]) {
      calls.push(reference);
      const reply = await carrier.respond({ reference, count: calls.length });
      if (reply instanceof CarrierError) throw reply;
      return reply;
    },
    /** Holds the responses of `count` calls until the test resolves them. */
    hold(count: number) {
      const held = Array.from({ length: count }, () => ({
        arrived: Promise.withResolvers<void>(),
        reply: Promise.withResolvers<CarrierReply>(),
      }));
      const first = calls.length;
      carrier.respond = (call) => {
        const current = held[call.count - first - 1];
        current?.arrived.resolve();
        return current?.reply.promise ?? acceptAll(call);
      };
      return held.map(({ arrived, reply }) => ({ arrived: arrived.promise, respond: reply.resolve }));
    },
  };
  return carrier;
}

/** An app with a carrier in this process, and requests of applicants. */
export async function createCoverageApp(
  overrides: Partial<AppDeps> & { applicationsPerDay?: number; carrier?: ReturnType<typeof createTestCarrier> } = {},
) {
  const { applicationsPerDay = 0, carrier = createTestCarrier(), ...deps } = overrides;
  const config = { ...testConfig, ...deps.config, carrier: { ...testConfig.carrier, applicationsPerDay } };
  const testApp = await createTestApp({ ...deps, config, carrier });
  const service = coverageServiceOf(testApp, carrier);
  const { now } = testApp;
  return {
    ...{ testApp, db: testApp.db, carrier, service },
    start: (identity: object = {}, { as = 'ada', flow = 'ltc', headers = {} } = {}) =>
      testApp.call('POST', `/v2/private/${flow}/totalCoverage`, { as, body: { ...applicant, ...identity }, headers }),
    async list(as = 'ada', query = '') {
      const { body } = await testApp.call('GET', `/v2/private/user/applications${query}`, { as });
      return v.parse(ApplicationsBody, body).data;
    },
    async user(as = 'ada') {
      return v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as })).body).user;
    },
    saveProfile: (body: object, as = 'ada') => testApp.call('POST', '/v2/private/user/profile', { as, body }),
    reconcile: (holder = 'one') => service.reconcile(holder, () => false),
    pass(ms: number) {
      testApp.now = new Date(testApp.now.getTime() + ms);
    },
    /** Restores the clock and the carrier, and removes people, applications, sales and log lines, but no audit events. */
    async reset({ applicationsPerDay = 0, respond = carrier.acceptAll } = {}) {
      const tables = 'application_attempts applications idempotency_keys users activities staff leases'.split(' ');
      await testApp.db.$client.batch(
        tables.map((table) => `DELETE FROM ${table}`),
        'write',
      );
      carrier.numbers.clear();
      for (const list of [carrier.calls, testApp.logLines]) list.length = 0;
      carrier.respond = respond;
      config.carrier.applicationsPerDay = applicationsPerDay;
      testApp.now = now;
    },
  };
}

export const testOperator: Operator = { actorId: 'tester', requestId: 'command-1' };

export function manager(id: string, lastName = 'Manager', firstName = 'A'): StaffRecord {
  return { id, role: 'salesManager', firstName, lastName, managerId: undefined };
}

export function counselor(id: string, managerId: string, lastName = 'Counselor', firstName = 'A'): StaffRecord {
  return { id, role: 'counselor', firstName, lastName, managerId };
}

let sold = 0;

/** An activity with a unique external id, as an import row. */
export function activity(
  staffId: string,
  occurredAt: string | number,
  of: Partial<Pick<ActivityRecord, 'kind' | 'amountCents' | 'managerId' | 'externalId'>> = {},
): ActivityRecord {
  sold += 1;
  return {
    externalId: `sold-${sold}`,
    staffId,
    kind: 'quote',
    amountCents: 0,
    managerId: undefined,
    occurredAt: typeof occurredAt === 'number' ? occurredAt : Date.parse(occurredAt),
    ...of,
  };
}

/** JSON Merge Patch, RFC 7396, section 2. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const merged = new Map(
    typeof target === 'object' && target !== null && !Array.isArray(target) ? Object.entries(target) : [],
  );
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name);
    else merged.set(name, mergePatch(merged.get(name), value));
  }
  return Object.fromEntries(merged);
}
