import { describe, expect, test } from 'bun:test';
import { createRateLimits } from '../../src/http/rate-limits';
import { createLog } from '../../src/log';
import { openTelemetry } from '../../src/telemetry/telemetry';
import { applicant, startSandbox } from '../support/app';
import { atEnd, freePort, until } from '../support/resources';
import { createWatchedApp, type Receiver, type Span, startReceiver } from '../support/telemetry';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const sampled = `00-${traceId}-b7ad6b7169203331-01`;
const notSampled = `00-${traceId}-b7ad6b7169203331-00`;
const profile = '/v2/private/user/profile';
const read = '/v2/private/user/applications';
const serverKind = 2;
const clientKind = 3;

const named = (spans: readonly Span[], name: string) => spans.filter((span) => span.name === name);

type Options = Parameters<typeof createWatchedApp>[0];

/** An app that exports its spans to a receiver. `finish` returns those of that many requests. */
async function createTracedApp(options: Options = {}) {
  const receiver = startReceiver();
  const testApp = await createWatchedApp({ receiver, ...options });
  const finish = async (requests = 1) => {
    // Elysia reports a request after its response.
    await until(() => testApp.logLines.filter((line) => line.includes('"msg":"request"')).length >= requests);
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
    for (const span of spans) expect(span.endTimeUnixNano).toBeGreaterThan(span.startTimeUnixNano);
    expect(receiver.resources[0]).toMatchObject({ 'service.name': 'test' });
    const line = testApp.logLines.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'request');
    expect(line).toMatchObject({ requestId: 'the-id-of-this', traceId: server?.traceId });
  });

  test('keeps spans of parallel requests separate, and reports a failure by its status code only', async () => {
    const { testApp, finish } = await createTracedApp();
    const save = (as: string) => testApp.call('POST', profile, { as, body: { firstName: 'Ada' } });
    await Promise.all(Array.from({ length: 30 }, (_, index) => save(`person-${index}`)));
    testApp.db.$client.close();
    await save('late');
    await testApp.call('GET', '/nowhere/at-all');
    const spans = await finish(32);
    const servers = serversOf(spans);
    const saves = named(servers, `POST ${profile}`);
    expect([saves.length, new Set(saves.map((span) => span.traceId)).size]).toEqual([31, 31]);
    for (const { traceId, spanId } of saves) {
      const writes = named(spans, 'database write').filter((span) => span.traceId === traceId);
      expect(writes.map(({ parentSpanId }) => parentSpanId)).toEqual([spanId]);
    }
    expect(saves.at(-1)).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': '503' } });
    const write = named(spans, 'database write').at(-1);
    expect(write).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': 'unavailable' } });
    const [unknown] = named(servers, 'GET');
    expect(unknown?.attributes).toMatchObject({ 'http.response.status_code': 404 });
    expect(unknown?.attributes).not.toHaveProperty('http.route');
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
    const servers = serversOf(await finish(invalid.length));
    expect(servers.length).toBe(invalid.length);
    expect(servers.filter((span) => span.parentSpanId !== undefined || span.traceId === traceId)).toEqual([]);
  });

  test('decides the sampling only for authenticated requests', async () => {
    const rateLimits = createRateLimits({ perMinute: 2, trustedProxyCount: 0 }, () => 0);
    const { testApp, finish } = await createTracedApp({ ratio: 0, overrides: { rateLimits } });
    const headers = { traceparent: sampled };
    const invalid = { headers: { ...headers, authorization: 'Bearer x.y.z' }, body: {} };
    const statuses: number[] = [];
    for (const [method, path, options] of [
      ['GET', read, { headers }],
      ['POST', profile, invalid],
      ['GET', read, { headers }],
      ['GET', '/v2/private/nowhere', { headers }],
      ['DELETE', read, { headers }],
      ['GET', '/health/ready', { headers }],
      ['GET', '/v2/private/../../health/ready', { headers }],
    ] as const) {
      statuses.push((await testApp.call(method, path, options)).status);
    }
    expect(statuses).toEqual([401, 401, 429, 404, 405, 200, 200]);
    expect(await finish(7)).toEqual([]);
  });

  test('decides the sampling of an authenticated request that is rejected, too', async () => {
    const rateLimits = createRateLimits({ perMinute: 4, trustedProxyCount: 0 }, () => 0);
    const { testApp, finish } = await createTracedApp({ ratio: 0, overrides: { rateLimits } });
    const save = (body: unknown, headers = {}) => testApp.call('POST', profile, { as: 'plain-user', body, headers });
    await save({});
    for (const body of [{}, '{', { nope: 1 }, {}]) await save(body, { traceparent: sampled });
    const spans = await finish(5);
    const statuses = serversOf(spans).map(({ attributes }) => attributes['http.response.status_code']);
    expect(statuses).toEqual([200, 400, 422, 429]);
    expect(new Set(serversOf(spans).map(({ parentSpanId }) => parentSpanId))).toEqual(new Set(['b7ad6b7169203331']));
    expect(new Set(spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
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
  /** Records the spans of requests, by default more than a batch of 512, so that the export starts before the stop. */
  async function recordSpans({ url }: Pick<Receiver, 'url'>, count = 600) {
    const lines: { msg: string; reason?: string }[] = [];
    const log = createLog('info', { write: (line) => lines.push(JSON.parse(line)) });
    const tracing = { endpoint: url, headers: {}, serviceName: 'test', ratio: 1 };
    const opened = await openTelemetry(
      { metricsToken: undefined, tracing, replica: undefined, database: { url: 'file:none.db' } },
      log,
    );
    const completed = { requestId: 'the-same-id', method: 'GET', route: '/health/live', status: 200, durationMs: 1 };
    const record = (times: number) => {
      for (let index = 0; index < times; index += 1) {
        const request = new Request('http://localhost/health/live');
        opened.tracing?.inRequestSpan(request, () => undefined);
        opened.tracing?.requestCompleted(request, completed);
      }
    };
    record(count);
    const warnings = () => lines.flatMap(({ msg, reason }) => (/^spans/.test(msg) ? [`${msg}: ${reason}`] : []));
    return { record, warnings, stop: async () => opened.tracing?.stop() };
  }

  test('logs one warning when the receiver is unreachable', async () => {
    const { stop, warnings } = await recordSpans({ url: `http://127.0.0.1:${await freePort()}` });
    await stop();
    expect(warnings()).toEqual(['spans cannot be exported: unreachable']);
  });

  test('logs a warning when the receiver returns 503, and another line when it recovers', async () => {
    const receiver = startReceiver();
    receiver.reply = 503;
    const { record, stop, warnings } = await recordSpans(receiver);
    await until(() => warnings().length > 0);
    receiver.reply = 200;
    record(600);
    await until(() => warnings().length > 1);
    await stop();
    expect(warnings()).toEqual(['spans cannot be exported: status-503', 'spans are exported: undefined']);
  });

  test('delays neither requests nor the stop when the receiver never responds', async () => {
    const receiver = startReceiver();
    receiver.reply = 'never';
    const testApp = await createWatchedApp({ receiver });
    const { stop, warnings } = await recordSpans(receiver);
    await until(() => receiver.sent.length > 0);
    expect((await testApp.call('GET', read, { as: 'plain-user' })).status).toBe(200);
    await Promise.all([stop(), testApp.tracing?.stop()]);
    // The export has neither ended nor reached its time limit.
    expect(warnings()).toEqual([]);
  });

  test('buffers a bounded number of spans when the receiver never responds', async () => {
    const receiver = startReceiver();
    receiver.reply = 'never';
    const spans = 20_000;
    const { stop } = await recordSpans(receiver, spans);
    receiver.reply = 200;
    await stop();
    expect(receiver.spans.length).toBeGreaterThan(500);
    expect(receiver.spans.length).toBeLessThan(spans / 3);
  });
});
