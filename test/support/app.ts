import { type App, createApp } from '../../src/app';
import { signToken } from '../../src/auth/signing';
import { createTokenVerifier } from '../../src/auth/verifier';
import type { Database } from '../../src/db/client';
import { replicaOrPrimary } from '../../src/db/replica';
import type { AppDeps } from '../../src/deps';
import { createLog } from '../../src/log';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import { temporaryDatabase } from './database';
import { testCarrier } from './sandbox';
import { watchedHandle } from './traffic';

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
    now: new Date('2026-03-10T12:00:00.000Z'),
    call: async (method, path, options) =>
      readResponse(await app.handle(await toRequest('http://localhost', testApp.now, method, path, options))),
  };
  return testApp;
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
