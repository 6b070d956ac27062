import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { readConfig } from '../../src/config/settings';
import { createTestApp, testConfig } from '../support/app';

const origin = 'https://app.example.com';
const listed = await createTestApp({ config: { ...testConfig, corsOrigins: [origin] } });
const development = await createTestApp({ config: { ...testConfig, corsOrigins: readConfig({}).corsOrigins } });
const path = '/v2/private/user/profile';

function preflight(app: typeof listed, from: string, asked?: string) {
  const headers = {
    origin: from,
    'access-control-request-method': 'POST',
    ...(asked === undefined ? {} : { 'access-control-request-headers': asked }),
  };
  return app.call('OPTIONS', path, { headers });
}

describe('a preflight request of a listed origin', () => {
  test.each([
    ['authorization,content-type,sentry-trace,baggage', 'authorization, content-type, sentry-trace, baggage'],
    ['x-datadog-origin, x-datadog-parent-id', 'x-datadog-origin, x-datadog-parent-id'],
    ['newrelic,traceparent,tracestate', 'newrelic, traceparent, tracestate'],
    ['x-requested-with', 'x-requested-with'],
    ['cache-control,pragma', 'cache-control, pragma'],
    ['b3,x-b3-traceid', 'b3, x-b3-traceid'],
    ['elastic-apm-traceparent', 'elastic-apm-traceparent'],
    ['uber-trace-id,x-amzn-trace-id,x-cloud-trace-context', 'uber-trace-id, x-amzn-trace-id, x-cloud-trace-context'],
    ['ngrok-skip-browser-warning', 'ngrok-skip-browser-warning'],
    ["x-!#$%&'*+.^_`|~", "x-!#$%&'*+.^_`|~"],
    ['authorization,,x y,é,"a",x-ok,(x)', 'authorization, x-ok'],
  ])('C2 allows the requested headers: %s', async (asked, allowed) => {
    const response = await preflight(listed, origin, asked);
    expect(response.status).toBe(204);
    expect(response.headers.get('access-control-allow-headers')).toBe(allowed);
  });

  test('C2 allows no header when none is requested', async () => {
    const response = await preflight(listed, origin);
    expect([response.status, response.headers.get('access-control-allow-headers')]).toEqual([204, null]);
  });

  test('C2 allows a bounded number of headers', async () => {
    const asked = Array.from({ length: 1_000 }, (_, index) => `x-${index}`).join();
    const response = await preflight(listed, origin, asked);
    expect(response.headers.get('access-control-allow-headers')?.split(', ')).toHaveLength(64);
  });
});

const Refusal = v.object({ type: v.string(), detail: v.string() });
const RequestLine = v.object({ msg: v.literal('request'), refusedOrigin: v.optional(v.string()) });

async function lastRequestLine(app: typeof listed) {
  await new Promise((resolve) => setImmediate(resolve));
  return v.parse(RequestLine, JSON.parse(app.logLines.findLast((line) => line.includes('"msg":"request"')) ?? ''));
}

describe('CORS in development without CORS_ORIGINS', () => {
  test.each([
    'http://localhost',
    'http://localhost:5173',
    'https://localhost:5173',
    'http://127.0.0.1:3001',
    'http://[::1]:65535',
  ])('B3 allows the page of %s', async (from) => {
    expect((await preflight(development, from, 'authorization')).status).toBe(204);
    const response = await development.call('GET', '/v2/private/user', { as: 'ada', headers: { origin: from } });
    expect(response.headers.get('access-control-allow-origin')).toBe(from);
    expect(await lastRequestLine(development)).not.toHaveProperty('refusedOrigin');
  });

  test.each([
    'http://localhost.example:5173',
    'http://localhost:5173.example',
    'http://127.0.0.1.example',
    'http://evil.example:*',
    'http://localhost:*',
    'ws://localhost:5173',
    'null',
  ])('B3 refuses the page of %s', async (from) => {
    expect((await preflight(development, from)).status).toBe(405);
    const response = await development.call('GET', '/v2/private/user', { as: 'ada', headers: { origin: from } });
    expect(response.headers.get('access-control-allow-origin')).toBeNull();
  });
});

test('B3 allows no page in production without CORS_ORIGINS', () => {
  const settings = { NODE_ENV: 'production', AUTH_SECRET: 'kI8sJd72bXqPz0VnM4tYwQe1RuA9cLf6', AUTH_ISSUER: 'i' };
  const others = { AUTH_AUDIENCE: 'a', CARRIER_URL: 'https://c.example', CARRIER_API_KEY: 'k1', CHAT_ID: 'c' };
  expect(readConfig({ ...settings, ...others, CHAT_TOKEN: 't-1' }).corsOrigins).toEqual([]);
});

describe('a page of an origin that is not listed', () => {
  test.each(['/v2/private/user/profile', '/nowhere'])(
    'B3 receives a preflight response that names CORS_ORIGINS: %s',
    async (at) => {
      const headers = { origin: 'https://other.example:8443', 'access-control-request-method': 'GET' };
      const response = await listed.call('OPTIONS', at, { headers });
      expect(response.status).toBeGreaterThanOrEqual(400);
      expect(v.parse(Refusal, response.body).detail).toContain('CORS_ORIGINS');
      expect(response.text).not.toContain('other.example');
      expect(await lastRequestLine(listed)).toMatchObject({ refusedOrigin: 'https://other.example:8443' });
    },
  );

  test.each([
    ['https://other.example', 'https://other.example'],
    ['null', 'null'],
    ['capacitor://localhost', 'capacitor://localhost'],
    ['https://app.example.com/', 'unlisted'],
    [`https://${'a'.repeat(200)}.example`, 'unlisted'],
    ['https://a.example","forged":"1', 'unlisted'],
    ['Ada Byron', 'unlisted'],
  ])('B3 appears in the request’s log line: %s', async (from, named) => {
    await listed.call('GET', '/v2/private/user', { as: 'ada', headers: { origin: from } });
    expect(await lastRequestLine(listed)).toMatchObject({ refusedOrigin: named });
  });

  test.each([{}, { origin }, { origin: 'https://localhost', host: 'localhost' }])(
    'B3 does not appear in the log line of a request with the headers %j',
    async (headers) => {
      await listed.call('GET', '/v2/private/user', { as: 'ada', headers });
      expect(await lastRequestLine(listed)).not.toHaveProperty('refusedOrigin');
    },
  );
});
