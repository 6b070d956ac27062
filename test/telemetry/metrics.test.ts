import { describe, expect, test } from 'bun:test';
import { createClient } from '@libsql/client';
import { Elysia } from 'elysia';
import { serveOptions } from '../../src/app';
import { createMetricsRoute } from '../../src/http/operations';
import { createErrorHandler, createRouteTable } from '../../src/http/problem-response';
import { createRateLimits } from '../../src/http/rate-limits';
import { createCors } from '../../src/http/request-context';
import { createLog } from '../../src/log';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { createPrometheusMetrics } from '../../src/telemetry/metrics';
import { applicant as anApplicant, createTestApp, listen, testConfig } from '../support/app';
import { until } from '../support/resources';
import { aScrape, createWatchedApp, metricsToken, readSamples, type Sample } from '../support/telemetry';

const authorization = `Bearer ${metricsToken}`;
/** For tests that need no exact counts. */
const shared = await createWatchedApp();

describe('GET /metrics', () => {
  test('returns 404 and has no route when METRICS_TOKEN is not set', async () => {
    const testApp = await createTestApp();
    expect(testApp.app.routes.filter(({ path }) => path === '/metrics')).toEqual([]);
    for (const headers of [{}, { authorization }, { authorization: 'Bearer undefined' }]) {
      const response = await testApp.call('GET', '/metrics/', { headers });
      expect(response.status).toBe(404);
      expect(response.body).toMatchObject({ type: '/problems/route-not-found', instance: '/metrics/' });
    }
  });

  test('returns the same 401 response for every wrong token', async () => {
    const wrong = ['', 'x', metricsToken.slice(0, -1), `${metricsToken}x`, metricsToken.toUpperCase()];
    const basic = `Basic ${btoa(`metrics:${metricsToken}`)}`;
    const refused = ['', metricsToken, 'Bearer', basic, ...wrong.map((token) => `Bearer ${token}`)];
    const responses = await Promise.all([
      shared.call('GET', '/metrics', { as: 'plain-user', roles: ['salesManager'] }),
      shared.call('GET', '/metrics'),
      ...refused.map((sent) => shared.call('GET', '/metrics', { headers: { authorization: sent } })),
    ]);
    const seen = responses.map(({ status, headers, text }) =>
      [status, headers.get('cache-control'), text.replaceAll(headers.get('x-request-id') ?? '', '')].join(),
    );
    expect(new Set(seen).size).toBe(1);
    expect(seen[0]).toStartWith('401,no-store,');
  });

  test('returns 429 to an address that keeps guessing, and 200 with the token', async () => {
    const rateLimits = createRateLimits({ perMinute: 2, trustedProxyCount: 0 }, () => performance.now());
    const metrics = createPrometheusMetrics({ replica: undefined });
    const { call } = await createTestApp({ config: { ...testConfig, metricsToken }, metrics, rateLimits });
    const statuses: number[] = [];
    for (const sent of ['Bearer x', 'Bearer y', 'Bearer z', authorization, authorization, authorization])
      statuses.push((await call('GET', '/metrics', { headers: { authorization: sent } })).status);
    expect(statuses).toEqual([401, 401, 429, 200, 200, 200]);
  });

  test('returns uncacheable text, an empty HEAD response, and 405 for other methods', async () => {
    const headers = { authorization };
    const response = await shared.call('GET', '/metrics', { headers });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(await shared.call('HEAD', '/metrics', { headers })).toMatchObject({ status: 200, text: '' });
    expect((await shared.call('HEAD', '/metrics')).status).toBe(401);
    const post = await shared.call('POST', '/metrics', { headers });
    expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  test('returns the other metrics while the database is unavailable, and no time of a task that never succeeded', async () => {
    const before = await shared.scrape();
    expect(before).toContain('planning_applications{');
    expect(before).not.toContain('task="backup"');
    const withoutDatabase = await createWatchedApp();
    withoutDatabase.db.$client.close();
    const text = await withoutDatabase.scrape();
    expect(text).toContain('process_open_fds');
    expect(text).not.toContain('planning_applications{');
    expect(text).toMatch(/planning_database_calls_total\{database="primary",kind="read",outcome="unavailable"\} 1\n/);
  });

  test('returns metrics while the database is stalled, with one query for all scrapes and the last known result of writes', async () => {
    const never = new Promise<undefined>(() => undefined);
    let probe: Promise<undefined> = never;
    let queries = 0;
    let nowMs = 0;
    const route = createMetricsRoute({
      metrics: createPrometheusMetrics({ replica: undefined }),
      config: { metricsToken },
      rateLimits: undefined,
      lifecycle: { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined },
      monotonicMs: () => nowMs,
      whyUnwritable: () => probe,
      readFacts() {
        queries += 1;
        return new Promise(() => undefined);
      },
    });
    const app = new Elysia().use(route);
    const scrape = () => app.handle(new Request('http://localhost/metrics', { headers: { authorization } }));
    const writesAvailable = async (response: Promise<Response>) =>
      readSamples(await (await response).text()).find(({ name }) => name === 'planning_writes_available')?.value;
    const first = await Promise.all([scrape(), scrape(), scrape()].map(writesAvailable));
    expect(first).toEqual([0, 0, 0]);
    nowMs += 60_000;
    probe = Promise.resolve(undefined);
    expect(await writesAvailable(scrape())).toBe(1);
    expect(queries).toBe(1);
    probe = never;
    expect(await writesAvailable(scrape())).toBe(1);
  });
});

describe('request metrics', () => {
  const requestsOf = (samples: readonly Sample[]) =>
    samples
      .filter(({ name }) => name === 'http_requests_total')
      .map(({ labels: { method, route, status }, value }) => `${method} ${route} ${status} ${value}`);

  test('count requests by route pattern and final status, and have bounded series for unknown paths and methods', async () => {
    const testApp = await createWatchedApp();
    const { call } = testApp;
    const profile = '/v2/private/user/profile';
    await call('POST', profile, { as: 'a', body: {} });
    await call('POST', `${profile}/`, { as: 'b', body: {} });
    await call('POST', profile, { as: 'a', body: { firstName: 5 } });
    await call('POST', profile, { body: {} });
    await call('GET', '/problems/forbidden?a=b');
    await call('DELETE', '/health/live');
    const odd = ['PROPFIND', 'MKCOL', 'LOCK', 'SEARCH', 'PURGE', 'TRACE', 'QUERY'];
    for (let index = 0; index < 50; index += 1) await call('GET', `/secret-${index}@example.com?a=${index}`);
    for (const method of odd) {
      await call(method, '/v2/private/user');
      await call(method, `/secret-${method}`);
    }
    await until(async () => (await testApp.sample('http_requests_total', { status: '404', method: 'other' })) === 7);
    const samples = readSamples(await testApp.scrape()).filter(({ labels }) => labels.route !== '/metrics');
    expect(requestsOf(samples)).toEqual([
      `POST ${profile} 200 2`,
      `POST ${profile} 422 1`,
      `POST ${profile} 401 1`,
      'GET /problems/:slug 200 1',
      'DELETE none 405 1',
      'GET none 404 50',
      'other none 405 7',
      'other none 404 7',
    ]);
    const timed = samples.filter(({ name }) => name === 'http_request_duration_seconds_count');
    expect(timed.map(({ labels, value }) => `${labels.route} ${value}`)).toEqual([
      `${profile} 4`,
      '/problems/:slug 1',
      ...['none 1', 'none 50', 'none 14'],
    ]);
  });

  test('count failures outside of the handlers', async () => {
    const metrics = createPrometheusMetrics({ replica: undefined });
    const log = createLog('silent');
    const serve = serveOptions({ config: testConfig, log, metrics, newRequestId: () => crypto.randomUUID() });
    const paths = { routeTable: createRouteTable(), cors: createCors(testConfig) };
    const app = new Elysia({ serve })
      .use(createErrorHandler({ log, rateLimits: undefined, server: () => null }, paths))
      .get('/null', () => {
        throw null;
      });
    expect((await fetch(`http://127.0.0.1:${listen({ app })}/null`)).status).toBe(500);
    expect(requestsOf(readSamples(await metrics.print(aScrape)))).toEqual(['other none 500 1']);
  });
});

describe('database metrics', () => {
  test('report the size of write groups and an empty queue', async () => {
    const testApp = await createWatchedApp();
    const save = (index: number) =>
      testApp.call('POST', '/v2/private/user/profile', { as: `person-${index}`, body: { firstName: 'Ada' } });
    const responses = await Promise.all(Array.from({ length: 40 }, (_, index) => save(index)));
    expect(responses.every(({ status }) => status === 200)).toBeTrue();
    const write = { database: 'primary', kind: 'write' };
    // Each scrape probes the database by a write of its own, every two seconds at most.
    for (const [name, labels] of [
      ['planning_write_group_units_sum', {}],
      ['planning_write_group_statements_sum', {}],
      ['planning_write_wait_seconds_count', {}],
      ['planning_database_calls_total', { ...write, outcome: 'ok' }],
      ['planning_database_call_duration_seconds_count', write],
    ] as const) {
      const counted = await testApp.sample(name, labels);
      expect([name, counted >= 40 && counted < 45]).toEqual([name, true]);
    }
    expect(await testApp.sample('planning_write_group_units_count')).toBeLessThan(40);
    expect(await testApp.sample('planning_write_queue_units')).toBe(0);
  });

  test('distinguish a lock from an unavailable database and report the waiting write', async () => {
    const testApp = await createWatchedApp({ databaseTimeoutMs: 300 });
    const save = () => testApp.call('POST', '/v2/private/user/profile', { as: 'person', body: { firstName: 'Ada' } });
    // A busy machine may exceed the time limit.
    const isSaved = async () => (await save()).status === 200;
    await until(isSaved);
    const other = createClient({ url: testApp.url });
    const lock = await other.transaction('write');
    const saving = save();
    await until(async () => (await testApp.sample('planning_write_queue_units')) === 1);
    expect((await saving).status).toBe(503);
    await lock.rollback();
    other.close();
    const calls = (outcome: string) =>
      testApp.sample('planning_database_calls_total', { database: 'primary', kind: 'write', outcome });
    // The scrapes probe the database too.
    expect(await calls('busy')).toBeGreaterThanOrEqual(1);
    await until(isSaved);
    expect(await calls('ok')).toBeGreaterThanOrEqual(2);
    testApp.db.$client.close();
    expect((await save()).status).toBe(503);
    expect(await calls('unavailable')).toBe(1);
  });
});

describe('carrier metrics', () => {
  const apply = (testApp: Awaited<ReturnType<typeof createWatchedApp>>, lastName: string, as = lastName) =>
    testApp.call('POST', '/v2/private/ltc/totalCoverage', { as, body: { ...anApplicant, lastName } });

  test('count calls by outcome, and attempts by status class', async () => {
    const testApp = await createWatchedApp();
    for (const lastName of ['Byron', 'Declined', 'Garbled', 'Broken']) await apply(testApp, lastName);
    const calls = (outcome: string) => testApp.sample('planning_carrier_call_duration_seconds_count', { outcome });
    for (const outcome of ['accepted', 'declined', 'bad-answer', 'unavailable'])
      expect([outcome, await calls(outcome)]).toEqual([outcome, 1]);
    const attempts = (outcome: string) =>
      testApp.sample('planning_carrier_attempts_total', { endpoint: 'start', outcome });
    expect([await attempts('2xx'), await attempts('4xx'), await attempts('5xx')]).toEqual([2, 1, 2]);
  });

  test('report an open circuit, rejected calls and the closed circuit after it', async () => {
    const testApp = await createWatchedApp();
    const breaker = () => testApp.sample('planning_carrier_breaker_state', { endpoint: 'start' });
    expect(await breaker()).toBe(0);
    for (const lastName of ['Broken', 'Broken', 'Broken', 'Busy', 'Dropped', 'Busy']) await apply(testApp, lastName);
    expect(await breaker()).toBe(2);
    // When its time is over, an open circuit lets one call through, which fails here.
    await Promise.all(['one', 'two', 'three'].map((person) => apply(testApp, 'Broken', person)));
    const rejected = { outcome: 'not-asked' };
    expect(await testApp.sample('planning_carrier_call_duration_seconds_count', rejected)).toBeGreaterThan(0);
    await until(async () => {
      await apply(testApp, `Byron${crypto.randomUUID().replace(/[^a-f]/g, '')}`);
      return (await breaker()) === 0;
    });
  });
});

describe('metrics of stored data', () => {
  test('count applications by state like the table after every kind of change', async () => {
    const testApp = await createWatchedApp();
    for (const lastName of ['Byron', 'Lovelace', 'Declined', 'Garbled']) {
      await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: lastName, body: { ...anApplicant, lastName } });
    }
    const { db } = testApp;
    const read = async (sql: string) => (await db.$client.execute(sql)).rows.map(({ name, n }) => `${name} ${n}`);
    const counted = () =>
      read(`SELECT table_name AS name, row_count AS n FROM row_counts
        WHERE table_name LIKE 'applications:%' AND row_count <> 0 ORDER BY 1`);
    const recounted = () =>
      read(`SELECT 'applications:' || CASE WHEN abandoned_at IS NOT NULL AND state IN ('submitting', 'unknown')
        THEN 'abandoned' ELSE state END AS name, count(*) AS n FROM applications GROUP BY 1 ORDER BY 1`);
    expect(await counted()).toEqual(['applications:declined 1', 'applications:submitted 2', 'applications:unknown 1']);
    for (const [state, count] of Object.entries({ submitted: 2, declined: 1, unknown: 1, submitting: 0 })) {
      expect([state, await testApp.sample('planning_applications', { state })]).toEqual([state, count]);
    }
    for (const change of [
      "UPDATE applications SET state = 'submitting' WHERE state = 'unknown'",
      "UPDATE applications SET state = 'unknown', attempt = attempt + 1",
      'UPDATE applications SET attempt = attempt + 1',
      'UPDATE applications SET abandoned_at = 1 WHERE rowid % 2',
      "UPDATE applications SET state = 'submitting'",
      'INSERT OR IGNORE INTO applications SELECT * FROM applications',
      'DELETE FROM applications WHERE rowid % 2',
      "UPDATE applications SET state = 'declined'",
      "UPDATE applications SET state = 'unknown'",
      'UPDATE applications SET abandoned_at = NULL',
    ]) {
      await db.$client.execute(change);
      expect(await counted()).toEqual(await recounted());
    }
  });

  test('report the catalogue version of the matches', async () => {
    const testApp = await createWatchedApp();
    expect(await testApp.sample('planning_catalog_version')).toBe(0);
    const match = () => testApp.call('POST', '/v2/private/engine/matches', { as: 'plain-user' });
    await match();
    expect(await testApp.sample('planning_catalog_version')).toBe(1);
    const catalog = readShippedCatalog();
    await createCatalogStore(testApp.db).add(
      { ...catalog, products: catalog.products.slice(1) },
      { source: 'imported', contentHash: 'another', now: testApp.now },
    );
    testApp.now = new Date(testApp.now.getTime() + 10_000);
    await match();
    expect(await testApp.sample('planning_catalog_version')).toBe(2);
  });
});

describe('process metrics', () => {
  test('report memory, open files, CPU time, the build and a blocked event loop', async () => {
    const { sample } = shared;
    const before = await sample('event_loop_delay_seconds_sum');
    await Bun.sleep(50);
    Bun.sleepSync(200);
    await until(async () => (await sample('event_loop_delay_seconds_sum')) - before > 0.1);
    expect(await sample('process_resident_memory_bytes')).toBeGreaterThan(10_000_000);
    expect(await sample('process_heap_bytes')).toBeGreaterThan(100_000);
    if (process.platform === 'linux') expect(await sample('process_open_fds')).toBeGreaterThan(3);
    const startedAtSeconds = await sample('process_start_time_seconds');
    expect(Math.abs(startedAtSeconds - performance.timeOrigin / 1000)).toBeLessThan(5);
    const first = await sample('process_cpu_seconds_total');
    expect(first).toBeGreaterThan(0);
    expect(await sample('process_cpu_seconds_total')).toBeGreaterThanOrEqual(first);
    expect(await sample('planning_build_info', { bun: Bun.version })).toBe(1);
  });
});

describe('docs/monitoring.md', async () => {
  const [page, alerts] = await Promise.all(
    ['monitoring.md', 'alerts.yml'].map((name) => Bun.file(new URL(`../../docs/${name}`, import.meta.url)).text()),
  );
  const row = (name: string, type: string, labels: Iterable<string>) =>
    `${name} ${type} ${[...labels].sort().join(' ')}`;

  const testApp = await createWatchedApp();
  const body = { ...anApplicant, lastName: 'Broken' };
  await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body });
  await until(async () => (await testApp.sample('http_requests_total', { method: 'POST' })) > 0);
  const withReplica = createPrometheusMetrics({ replica: 'file', hasJwks: true });
  const database = { applications: {}, completedTasks: { backup: 1 } };
  const text = `${await testApp.scrape()}\n${await withReplica.print({ ...aScrape, database })}`;
  const types = new Map([...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => [name, type]));
  const samples = readSamples(text);

  test('lists exactly the exported metrics with types and labels', () => {
    const listed = [...(page ?? '').matchAll(/^\| `((?:http|planning|process|event)_\w+)` \| (\w+) \|([^|]*)\|/gm)].map(
      ([, name = '', type = '', labels = '']) => row(name, type, labels.match(/(?<=`)\w+(?=`)/g) ?? []),
    );
    const exported = [...types].map(([name, type]) => {
      const own = samples.filter(
        (each) => each.name === name || each.name.replace(/_(?:sum|count|bucket)$/, '') === name,
      );
      return row(name, type, new Set(own.flatMap(({ labels: { le: _, ...labels } }) => Object.keys(labels))));
    });
    expect(listed.length).toBeGreaterThan(15);
    expect(listed.sort()).toEqual(exported.sort());
  });

  test('has every metric of docs/alerts.yml', () => {
    const names = [...types].flatMap(([name, type]) =>
      type === 'histogram' ? ['bucket', 'count', 'sum'].map((part) => `${name}_${part}`) : [name],
    );
    const used = (alerts ?? '').match(/\b(?:http|planning|process|event)_\w+/g) ?? [];
    expect(used.length).toBeGreaterThan(15);
    expect(used.filter((name) => !names.includes(name))).toEqual([]);
  });
});
