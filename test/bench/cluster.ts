import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { seedDatabase } from '../../src/seed';
import { type Sandbox, startSandbox, testSecret, testToken } from '../support/app';
import { type Service, startService } from '../support/processes';
import { type Sqld, startSqld } from '../support/servers';

export const databaseTimeoutMs = 2_000;

export interface TimedResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
  readonly tookMs: number;
}

export interface Cluster {
  readonly primary: Sqld;
  readonly replicas: readonly Sqld[];
  readonly services: readonly Service[];
  readonly sandbox: Sandbox;
  /** Sends a GET, or a POST when there is a body; the status is 0 when no response arrives. */
  call(
    service: Service,
    path: string,
    as: string,
    options?: { body?: object; ifNoneMatch?: string },
  ): Promise<TimedResponse>;
}

/** Starts a migrated and seeded libSQL server. */
export async function startPrimary(): Promise<Sqld> {
  const primary = await startSqld();
  const db = await openDatabase({ url: primary.url, timeoutMs: 10_000 });
  await migrateDatabase(db, undefined, { forDevelopment: true });
  await seedDatabase(db, { withDemo: true, now: new Date() });
  db.$client.close();
  return primary;
}

/** Settings of a service on a libSQL server that accepts the tokens of `callService`. */
export function serviceEnvironment(primary: Sqld, of: Readonly<Record<string, string>> = {}) {
  return {
    DATABASE_URL: primary.url,
    DATABASE_TIMEOUT_MS: String(databaseTimeoutMs),
    AUTH_SECRET: testSecret,
    LOG_LEVEL: 'error',
    ...of,
  };
}

/**
 * Starts a primary with two replicas, and four services on one carrier: two that read from a replica server, one with
 * an embedded replica, and one that uses only the primary.
 */
export async function startCluster(of: Readonly<Record<string, string>> = {}): Promise<Cluster> {
  const primary = await startPrimary();
  const replicas = await Promise.all([startSqld({ replicaOf: primary }), startSqld({ replicaOf: primary })]);
  const sandbox = await startSandbox(() => new Date());
  const readers = [
    ...replicas.map(({ url }) => ({ DATABASE_READ_URL: url })),
    { DATABASE_REPLICA_PATH: 'replica/planning.db', DATABASE_SYNC_INTERVAL_MS: '100' },
    {},
  ];
  const settings = { ...of, CARRIER_URL: sandbox.url, CARRIER_API_KEY: 'test-key' };
  const services = await Promise.all(
    readers.map((reader) => startService({ environment: serviceEnvironment(primary, { ...reader, ...settings }) })),
  );
  return { primary, replicas, services, sandbox, call: callService };
}

const tokens = new Map<string, Promise<string>>();

export async function callService(
  service: Service,
  path: string,
  as: string,
  { body, ifNoneMatch }: { body?: object; ifNoneMatch?: string } = {},
): Promise<TimedResponse> {
  const token = tokens.get(as) ?? testToken({ id: as, now: new Date() });
  tokens.set(as, token);
  const headers = new Headers({ authorization: `Bearer ${await token}` });
  if (body !== undefined) headers.set('content-type', 'application/json');
  if (ifNoneMatch !== undefined) headers.set('if-none-match', ifNoneMatch);
  const startedAtMs = performance.now();
  try {
    const response = await fetch(`${service.address}${path}`, {
      headers,
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const tookMs = performance.now() - startedAtMs;
    return {
      status: response.status,
      headers: response.headers,
      body: text === '' ? undefined : JSON.parse(text),
      tookMs,
    };
  } catch {
    return { status: 0, headers: new Headers(), body: undefined, tookMs: performance.now() - startedAtMs };
  }
}

/** Chooses items pseudo-randomly; the same seed repeats the choices. */
export function chooseBy(seed: number) {
  let state = seed;
  return <Item>(items: readonly Item[]): Item => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    const item = items[(state >> 8) % items.length];
    if (item === undefined) throw new RangeError('There is nothing to choose from');
    return item;
  };
}
