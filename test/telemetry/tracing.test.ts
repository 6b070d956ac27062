import { describe, expect, test } from 'bun:test';
import { createRateLimits } from '../../src/http/rate-limits';
import { createTracing, type TracerSettings } from '../../src/telemetry/tracing';
import { applicant, startSandbox } from '../support/app';
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

type Options = Parameters<typeof createWatchedApp>[0];

/** An app that exports its spans to a receiver. `finish` returns those of the completed requests. */
async function createTracedApp(options: Options = {}) {
  const receiver = startReceiver();
  const testApp = await createWatchedApp({ receiver, ...options });
  const finish = async () => {
    // Elysia reports a request one turn after its response.
    await Bun.sleep(0);
    await testApp.tracing?.stop();
    return receiver.spans;
  };
  return { receiver, testApp, finish };
}
const serversOf = (spans: readonly Span[]) => spans.filter(({ kind }) => kind === serverKind);

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
    const { receiver, testApp, finish } = await createTracedApp();
    const headers = { 'x-request-id': 'the-id-of-this' };
    await testApp.call('POST', profile, { as: 'plain-user', body: { firstName: 'Ada' }, headers });
    const spans = await finish();
    const [server, ...more] = serversOf(spans);
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
    const [write] = named(spans, 'database write');
    expect(write).toMatchObject({
      kind: clientKind,
      traceId: server?.traceId,
      parentSpanId: server?.spanId,
      attributes: { 'db.system.name': 'sqlite', 'db.operation.name': 'write', 'planning.database': 'primary' },
      events: [{ name: 'transaction begins' }],
    });
    for (const { startTimeUnixNano, endTimeUnixNano } of spans) {
      expect(endTimeUnixNano).toBeGreaterThan(startTimeUnixNano);
    }
    expect(receiver.resources[0]).toMatchObject({ 'service.name': 'test' });
    const line = testApp.logLines.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'request');
    expect(line).toMatchObject({ requestId: 'the-id-of-this', traceId: server?.traceId });
  });

  test('keeps spans of parallel requests separate', async () => {
    const { testApp, finish } = await createTracedApp();
    const people = Array.from({ length: 30 }, (_, index) => `person-${index}`);
    await Promise.all(people.map((as) => testApp.call('POST', profile, { as, body: { firstName: 'Ada' } })));
    const spans = await finish();
    const servers = serversOf(spans);
    expect(new Set(servers.map((span) => span.traceId)).size).toBe(people.length);
    for (const { traceId, spanId } of servers) {
      const writes = named(spans, 'database write').filter((span) => span.traceId === traceId);
      expect(writes.map(({ parentSpanId }) => parentSpanId)).toEqual([spanId]);
    }
  });

  test('reports a failure by its status code only', async () => {
    const { testApp, finish } = await createTracedApp();
    testApp.db.$client.close();
    await testApp.call('POST', profile, { as: 'plain-user', body: { firstName: 'Ada' } });
    await testApp.call('GET', '/nowhere/at-all');
    const spans = await finish();
    const [failed] = named(spans, `POST ${profile}`);
    expect(failed).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': '503' } });
    const [write] = named(spans, 'database write');
    expect(write).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': 'unavailable' } });
    const [unknown] = named(spans, 'GET');
    expect(unknown?.attributes).toMatchObject({ 'http.response.status_code': 404 });
    expect(unknown?.attributes['http.route']).toBeUndefined();
  });
});

describe('incoming traceparent', () => {
  test('continues to each carrier attempt without tracestate and baggage', async () => {
    const carrier = await startRecordingCarrier();
    const { receiver, testApp, finish } = await createTracedApp({ carrierUrl: carrier.url });
    const headers = { traceparent: sampled, tracestate: 'canary=secret', baggage: 'canary=secret' };
    const body = { ...applicant, lastName: 'Broken' };
    await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body, headers });
    const spans = await finish();
    const [server] = serversOf(spans);
    expect(server).toMatchObject({ traceId, parentSpanId: 'b7ad6b7169203331' });
    const attempts = named(spans, 'POST /applications');
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

  test('has no effect when it is invalid', async () => {
    const { testApp, finish } = await createTracedApp();
    const invalid = [
      ...['', 'garbage', 'x'.repeat(8000), sampled.slice(1), `${sampled}-more`, sampled.toUpperCase()],
      `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
      `00-${traceId}-${'0'.repeat(16)}-01`,
      `ff-${traceId}-b7ad6b7169203331-01`,
      `00-${traceId}-b7ad6b7169203331-0g`,
      `00-${traceId}-b7ad6b7169203331-01, ${sampled}`,
    ];
    for (const traceparent of invalid) {
      expect((await testApp.call('GET', read, { as: 'a', headers: { traceparent } })).status).toBe(200);
    }
    const servers = serversOf(await finish());
    expect(servers.length).toBe(invalid.length);
    expect(servers.filter((span) => span.parentSpanId !== undefined || span.traceId === traceId)).toEqual([]);
  });

  test('decides the sampling only for authenticated requests', async () => {
    const { testApp: unsampled, finish } = await createTracedApp({ ratio: 0 });
    await unsampled.call('GET', read, { as: 'plain-user' });
    await unsampled.call('GET', read, { headers: { traceparent: sampled } });
    await unsampled.call('POST', profile, { body: {}, headers: { traceparent: sampled } });
    await unsampled.call('GET', '/health/ready', { headers: { traceparent: sampled } });
    await unsampled.call('GET', '/v2/private/../../health/ready', { headers: { traceparent: sampled } });
    await unsampled.call('GET', read, { as: 'plain-user', headers: { traceparent: sampled } });
    const spans = await finish();
    const servers = serversOf(spans);
    expect(servers.map(({ name }) => name)).toEqual([`GET ${read}`]);
    expect(servers[0]?.parentSpanId).toBe('b7ad6b7169203331');
    expect(new Set(spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
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
    const rateLimits = createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => performance.now());
    const { testApp, finish } = await createTracedApp({ ratio: 0, overrides: { rateLimits } });
    expect((await request(testApp)).status).toBe(status);
    expect(await finish()).toEqual([]);
  });

  test('exports an authenticated request that is rejected', async () => {
    const rateLimits = createRateLimits({ perMinute: 3, trustedProxyCount: 0 }, () => performance.now());
    const { testApp, finish } = await createTracedApp({ ratio: 0, overrides: { rateLimits } });
    const save = (body: unknown) =>
      testApp.call('POST', profile, { as: 'plain-user', body, headers: { traceparent: sampled } });
    for (const body of [{}, '{', { nope: 1 }, {}]) await save(body);
    const spans = await finish();
    const servers = serversOf(spans);
    const statuses = servers.map(({ attributes }) => attributes['http.response.status_code']);
    expect(statuses).toEqual([200, 400, 422, 429]);
  });

  test('exports nothing and propagates sampled=0 to the carrier when it is not sampled', async () => {
    const carrier = await startRecordingCarrier();
    const { receiver, testApp, finish } = await createTracedApp({ carrierUrl: carrier.url });
    const headers = { traceparent: notSampled };
    await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'plain-user', body: applicant, headers });
    await finish();
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
    // More than a batch of 512 spans, so that the export starts during the requests.
    for (let index = 0; index < 300; index += 1) expect((await read()).status).toBe(200);
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
    await testApp.tracing?.stop();
    expect(receiver.sent.length).toBeGreaterThan(0);
    // The export has neither ended nor reached its time limit.
    expect(warnings(testApp.logLines)).toEqual([]);
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
    const spans = 20_000;
    for (let index = 0; index < spans; index += 1) {
      const request = new Request('http://localhost/health/live');
      tracing.inRequestSpan(request, () => undefined);
      tracing.requestCompleted(request, answered);
    }
    receiver.reply = 200;
    await tracing.stop();
    expect(receiver.spans.length).toBeGreaterThan(500);
    expect(receiver.spans.length).toBeLessThan(spans / 3);
  });
});
