import { describe, expect, test } from 'bun:test';
import packageJson from '../../package.json';
import { createRateLimits } from '../../src/http/rate-limits';
import { createTracing, type TracerSettings } from '../../src/telemetry/tracing';
import { applicant, callerOf, canaryApplicant, startSandbox, testSecret } from '../support/app';
import { startService } from '../support/processes';
import { atEnd, freePort, until } from '../support/resources';
import { createWatchedApp, type Receiver, type Span, startReceiver, type WatchedApp } from '../support/telemetry';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const sampled = `00-${traceId}-b7ad6b7169203331-01`;
const notSampled = `00-${traceId}-b7ad6b7169203331-00`;
const profile = '/v2/private/user/profile';
const read = '/v2/private/user/applications';
const anonymous = { headers: { traceparent: sampled } };
const invalidToken = { authorization: 'Bearer x.y.z' };
const serverKind = 2;
const clientKind = 3;

const named = (spans: readonly Span[], name: string) => spans.filter((span) => span.name === name);

/** A proxy to the carrier sandbox that records request headers. */
async function startRecordingCarrier() {
  const sandbox = await startSandbox();
  const headers: Record<string, string>[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch(request) {
      headers.push(request.headers.toJSON());
      const { pathname } = new URL(request.url);
      return fetch(`${sandbox.url}${pathname}`, {
        method: request.method,
        headers: { authorization: 'Bearer test-key' },
        body: request.body,
      });
    },
  });
  atEnd(() => server.stop(true));
  return { url: server.url.origin, headers };
}

describe('trace of a request', () => {
  test('has a server span with route, status and request id, and a child span for each database call', async () => {
    const receiver = startReceiver();
    const testApp = await createWatchedApp({ receiver });
    const headers = { 'x-request-id': 'the-id-of-this' };
    await testApp.call('POST', profile, { as: 'plain-user', body: { firstName: 'Ada' }, headers });
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const [server, ...more] = receiver.spans.filter(({ kind }) => kind === serverKind);
    expect(more).toEqual([]);
    expect(server).toMatchObject({
      name: `POST ${profile}`,
      attributes: {
        'http.request.method': 'POST',
        'http.route': profile,
        'http.response.status_code': 200,
        'planning.request_id': 'the-id-of-this',
      },
      status: { code: 0 },
    });
    expect(server?.parentSpanId).toBeUndefined();
    const [write] = named(receiver.spans, 'database write');
    expect(write).toMatchObject({
      kind: clientKind,
      traceId: server?.traceId,
      parentSpanId: server?.spanId,
      attributes: { 'db.system.name': 'sqlite', 'db.operation.name': 'write', 'planning.database': 'primary' },
      events: [{ name: 'transaction begins' }],
    });
    for (const { startTimeUnixNano, endTimeUnixNano } of receiver.spans) {
      expect(endTimeUnixNano).toBeGreaterThan(startTimeUnixNano);
    }
    expect(receiver.resources[0]).toMatchObject({ 'service.name': 'test' });
    const line = testApp.logLines.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'request');
    expect(line).toMatchObject({ requestId: 'the-id-of-this', traceId: server?.traceId });
  });

  test('keeps spans of parallel requests separate', async () => {
    const receiver = startReceiver();
    const testApp = await createWatchedApp({ receiver });
    const people = Array.from({ length: 30 }, (_, index) => `person-${index}`);
    await Promise.all(people.map((as) => testApp.call('POST', profile, { as, body: { firstName: 'Ada' } })));
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const servers = receiver.spans.filter(({ kind }) => kind === serverKind);
    expect(new Set(servers.map((span) => span.traceId)).size).toBe(people.length);
    for (const { traceId, spanId } of servers) {
      const writes = named(receiver.spans, 'database write').filter((span) => span.traceId === traceId);
      expect(writes.map(({ parentSpanId }) => parentSpanId)).toEqual([spanId]);
    }
  });

  test('reports a failure by its status code only', async () => {
    const receiver = startReceiver();
    const testApp = await createWatchedApp({ receiver });
    testApp.db.$client.close();
    await testApp.call('POST', profile, { as: 'plain-user', body: { firstName: 'Ada' } });
    await testApp.call('GET', '/nowhere/at-all');
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const [failed] = named(receiver.spans, `POST ${profile}`);
    expect(failed).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': '503' } });
    const [write] = named(receiver.spans, 'database write');
    expect(write).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': 'unavailable' } });
    const [unknown] = named(receiver.spans, 'GET');
    expect(unknown?.attributes).toMatchObject({ 'http.response.status_code': 404 });
    expect(unknown?.attributes['http.route']).toBeUndefined();
  });
});

describe('incoming traceparent', () => {
  test('continues to each carrier attempt without tracestate and baggage', async () => {
    const receiver = startReceiver();
    const carrier = await startRecordingCarrier();
    const testApp = await createWatchedApp({ receiver, carrierUrl: carrier.url });
    const headers = { traceparent: sampled, tracestate: 'canary=secret', baggage: 'canary=secret' };
    const body = { ...applicant, lastName: 'Broken' };
    await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body, headers });
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const [server] = receiver.spans.filter(({ kind }) => kind === serverKind);
    expect(server).toMatchObject({ traceId, parentSpanId: 'b7ad6b7169203331' });
    const attempts = named(receiver.spans, 'POST /applications');
    expect(attempts.map((span) => span.traceId)).toEqual([traceId, traceId]);
    expect(attempts.map(({ attributes }) => attributes)).toEqual(
      Array(2).fill({
        'http.request.method': 'POST',
        'url.template': '/applications',
        'http.response.status_code': 500,
        'error.type': '500',
      }),
    );
    expect(carrier.headers.map(({ traceparent }) => traceparent)).toEqual(
      attempts.map(({ spanId }) => `00-${traceId}-${spanId}-01`),
    );
    expect(JSON.stringify(carrier.headers)).not.toContain('canary');
    expect(receiver.sent.join()).not.toContain('canary');
  });

  test.each([
    '',
    'garbage',
    sampled.slice(1),
    `${sampled}-more`,
    sampled.toUpperCase(),
    `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    `ff-${traceId}-b7ad6b7169203331-01`,
    `00-${traceId}-b7ad6b7169203331-0g`,
    `00-${traceId}-b7ad6b7169203331-01, ${sampled}`,
    'x'.repeat(8000),
  ])('has no effect when invalid: %p', async (traceparent) => {
    const receiver = startReceiver();
    const testApp = await createWatchedApp({ receiver });
    const response = await testApp.call('GET', '/v2/private/user/applications', { as: 'a', headers: { traceparent } });
    expect(response.status).toBe(200);
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const [server] = receiver.spans.filter(({ kind }) => kind === serverKind);
    expect(server?.parentSpanId).toBeUndefined();
    expect(server?.traceId).not.toBe(traceId);
  });

  test('decides the sampling only for authenticated requests', async () => {
    const receiver = startReceiver();
    const unsampled = await createWatchedApp({ receiver, ratio: 0 });
    await unsampled.call('GET', read, { as: 'plain-user' });
    await unsampled.call('GET', read, { headers: { traceparent: sampled } });
    await unsampled.call('POST', profile, { body: {}, headers: { traceparent: sampled } });
    await unsampled.call('GET', '/health/ready', { headers: { traceparent: sampled } });
    await unsampled.call('GET', '/v2/private/../../health/ready', { headers: { traceparent: sampled } });
    await unsampled.call('GET', read, { as: 'plain-user', headers: { traceparent: sampled } });
    await Bun.sleep(0);
    await unsampled.tracing?.stop();
    const servers = receiver.spans.filter(({ kind }) => kind === serverKind);
    expect(servers.map(({ name }) => name)).toEqual([`GET ${read}`]);
    expect(servers[0]?.parentSpanId).toBe('b7ad6b7169203331');
    expect(new Set(receiver.spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
  });

  test.each<[condition: string, status: number, request: (app: WatchedApp) => Promise<{ status: number }>]>([
    ['without a token', 401, (app) => app.call('GET', read, anonymous)],
    [
      'with an invalid token',
      401,
      (app) => app.call('POST', profile, { body: {}, headers: { ...invalidToken, traceparent: sampled } }),
    ],
    ['for an unknown path', 404, (app) => app.call('GET', '/v2/private/nowhere', anonymous)],
    ['for an unsupported method', 405, (app) => app.call('DELETE', read, anonymous)],
    [
      'over the rate limit',
      429,
      async (app) => (await app.call('GET', read, anonymous)) && app.call('GET', read, anonymous),
    ],
  ])('exports nothing for an unauthenticated request %s', async (_, status, request) => {
    const receiver = startReceiver();
    const rateLimits = createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => performance.now());
    const testApp = await createWatchedApp({ receiver, ratio: 0, overrides: { rateLimits } });
    expect((await request(testApp)).status).toBe(status);
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    expect(receiver.spans).toEqual([]);
  });

  test('exports an authenticated request that is rejected', async () => {
    const receiver = startReceiver();
    const rateLimits = createRateLimits({ perMinute: 3, trustedProxyCount: 0 }, () => performance.now());
    const testApp = await createWatchedApp({ receiver, ratio: 0, overrides: { rateLimits } });
    const save = (body: unknown) =>
      testApp.call('POST', profile, { as: 'plain-user', body, headers: { traceparent: sampled } });
    for (const body of [{}, '{', { nope: 1 }, {}]) await save(body);
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    const servers = receiver.spans.filter(({ kind }) => kind === serverKind);
    const statuses = servers.map(({ attributes }) => attributes['http.response.status_code']);
    expect(statuses).toEqual([200, 400, 422, 429]);
  });

  test('exports nothing and propagates sampled=0 to the carrier when it is not sampled', async () => {
    const receiver = startReceiver();
    const carrier = await startRecordingCarrier();
    const testApp = await createWatchedApp({ receiver, carrierUrl: carrier.url });
    const headers = { traceparent: notSampled };
    await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body: applicant, headers });
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    expect(receiver.sent).toEqual([]);
    expect(carrier.headers.map(({ traceparent }) => traceparent?.replace(/-[\da-f]{16}-/, '-…-'))).toEqual([
      `00-${traceId}-…-00`,
    ]);
  });
});

test('carrier requests have no traceparent, and the log no trace id, when tracing is off', async () => {
  const carrier = await startRecordingCarrier();
  const testApp = await createWatchedApp({ carrierUrl: carrier.url });
  const headers = { traceparent: sampled };
  await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body: applicant, headers });
  await Bun.sleep(0);
  expect(carrier.headers).toHaveLength(1);
  expect(carrier.headers[0]?.traceparent).toBeUndefined();
  expect(testApp.logLines.join('')).not.toContain('traceId');
});

describe('trace export', () => {
  const sendRequests = async (receiver: Pick<Receiver, 'url'>) => {
    const testApp = await createWatchedApp({ receiver });
    const read = () => testApp.call('GET', '/v2/private/user/applications', { as: 'plain-user' });
    // More than one batch, so that the export starts during the requests.
    for (let index = 0; index < 600; index += 1) expect((await read()).status).toBe(200);
    await Bun.sleep(0);
    return testApp;
  };
  const warnings = (lines: readonly string[]) =>
    lines
      .map((line) => JSON.parse(line))
      .flatMap(({ msg, reason }) => (/^spans/.test(msg) ? [`${msg}: ${reason}`] : []));

  test('delays no request and logs one warning when the receiver is unreachable', async () => {
    const testApp = await sendRequests({ url: `http://127.0.0.1:${await freePort()}` });
    await testApp.tracing?.stop();
    expect(warnings(testApp.logLines)).toEqual(['spans cannot be exported: unreachable']);
  });

  test('logs a warning when the receiver returns 503, and another line when it recovers', async () => {
    const receiver = startReceiver();
    receiver.reply = 503;
    const testApp = await sendRequests(receiver);
    await until(() => warnings(testApp.logLines).length > 0);
    receiver.reply = 200;
    await until(async () => {
      await testApp.call('GET', '/health/live');
      return receiver.spans.length > 0;
    });
    await until(() => warnings(testApp.logLines).length > 1);
    expect(warnings(testApp.logLines)).toEqual([
      'spans cannot be exported: status-503',
      'spans are exported: undefined',
    ]);
  });

  test('delays neither requests nor the stop when the receiver never responds', async () => {
    const receiver = startReceiver();
    receiver.reply = 'never';
    const testApp = await sendRequests(receiver);
    const startedAtMs = performance.now();
    await testApp.tracing?.stop();
    expect(performance.now() - startedAtMs).toBeLessThan(5_000);
    expect(receiver.sent.length).toBeGreaterThan(0);
  });

  test('buffers a bounded number of spans when the receiver never responds', async () => {
    const receiver = startReceiver();
    receiver.reply = 'never';
    const settings: TracerSettings = {
      endpoint: receiver.url,
      headers: {},
      serviceName: 'test',
      version: '1',
      ratio: 1,
      onExportChange: () => undefined,
    };
    const tracing = createTracing(settings);
    const answered = { requestId: 'the-same-id', method: 'GET', route: '/health/live', status: 200, durationMs: 1 };
    const spans = 50_000;
    for (let index = 0; index < spans; index += 1) {
      const request = new Request('http://localhost/health/live');
      tracing.inRequestSpan(request, () => undefined);
      tracing.requestCompleted(request, answered);
    }
    receiver.reply = 200;
    await tracing.stop();
    expect(receiver.spans.length).toBeGreaterThan(500);
    expect(receiver.spans.length).toBeLessThan(spans / 10);
  });
});

describe('service process', () => {
  test('flushes spans at stop and ignores OTEL variables that are not settings', async () => {
    const receiver = startReceiver();
    const service = await startService({
      environment: {
        AUTH_SECRET: testSecret,
        OTEL_EXPORTER_OTLP_ENDPOINT: `${receiver.url}/`,
        OTEL_EXPORTER_OTLP_HEADERS: 'x-api-key=a%20secret%2Ckey,x-other=1',
        OTEL_SERVICE_NAME: 'planning-test',
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:1/elsewhere',
        OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-api-key=another',
        OTEL_RESOURCE_ATTRIBUTES: 'canary=of-the-environment',
        OTEL_SDK_DISABLED: 'true',
        OTEL_TRACES_SAMPLER: 'always_off',
        OTEL_BSP_MAX_QUEUE_SIZE: '1',
        OTEL_BSP_SCHEDULE_DELAY: '3600000',
        OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: '1',
      },
    });
    const call = callerOf(service.address);
    expect((await call('POST', profile, { as: 'plain-user', body: { firstName: 'Ada' } })).status).toBe(200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    expect(named(receiver.spans, `POST ${profile}`)[0]?.attributes).toMatchObject({ 'http.route': profile });
    expect(receiver.resources[0]).toEqual({ 'service.name': 'planning-test', 'service.version': packageJson.version });
    const sent = receiver.sent.join('\n');
    expect(sent).toContain('"x-api-key":"a secret,key"');
    expect(sent).not.toContain('of-the-environment');
    expect(service.output()).not.toContain('secret');
  });
});

test('spans contain no personal data after success and failures', async () => {
  const receiver = startReceiver();
  const testApp = await createWatchedApp({ receiver });
  const as = 'canary-subject';
  const canaries = [
    ...[canaryApplicant.firstName, canaryApplicant.lastName, canaryApplicant.email, canaryApplicant.dateOfBirth],
    ...[as, 'canary-title', 'canary-query', 'canary-agent', 'canary-state', 'CANARYFIELD', 'Bearer'],
  ];
  const headers = {
    'user-agent': 'canary-agent',
    traceparent: sampled,
    tracestate: 'a=canary-state',
    baggage: 'a=canary-state',
  };
  const options = { as, headers };
  for (const lastName of [canaryApplicant.lastName, 'Broken', 'Garbled', 'Declined', 'Dropped', 'Slow', 'Busy']) {
    const body = { ...canaryApplicant, lastName };
    await testApp.call('POST', '/v2/private/life/totalCoverage', { ...options, body });
  }
  await testApp.call('POST', profile, { ...options, body: { firstName: canaryApplicant.firstName } });
  await testApp.call('POST', profile, { ...options, body: { CANARYFIELD: 'canary-title' } });
  await testApp.call('POST', profile, { ...options, body: '{"firstName": "canary-title' });
  await testApp.call('GET', '/v2/private/canary-title?email=canary-query', options);
  await testApp.call('GET', '/v2/private/cemetery/all?page=canary-query', options);
  await testApp.call('PROPFIND', '/canary-title', options);
  await testApp.db.$client.execute(
    "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
  );
  expect((await testApp.call('POST', profile, { ...options, body: { firstName: 'Canaryfirst' } })).status).toBe(500);
  testApp.db.$client.close();
  expect((await testApp.call('GET', '/v2/private/user', options)).status).toBe(503);
  await Bun.sleep(0);
  await testApp.tracing?.stop();
  expect(receiver.spans.filter(({ status }) => status.code === 2).length).toBeGreaterThan(5);
  const sent = receiver.sent.join('\n');
  for (const canary of canaries) expect(sent).not.toContain(canary);
});
