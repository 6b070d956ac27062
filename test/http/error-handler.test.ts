import { afterAll, describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import { serveOptions } from '../../src/app';
import { users } from '../../src/db/schema/people';
import { createErrorHandler, createRouteTable } from '../../src/http/problem-response';
import { createCors, createRequestContext } from '../../src/http/request-context';
import { createLog } from '../../src/log';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, readResponse, testConfig } from '../support/app';
import { connectRaw } from '../support/http';

const canary = 'canary-4711';
const logLines: string[] = [];
const log = createLog('debug', { write: (line) => logLines.push(line) });
const cors = createCors(testConfig);

/** One route for each way a handler can fail, behind the real error handler. */
const failing = new Elysia({
  serve: serveOptions({ config: testConfig, log, newRequestId: () => crypto.randomUUID() }),
})
  .use(
    createRequestContext(
      {
        log,
        newRequestId: () => crypto.randomUUID(),
        lifecycle: { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined },
        metrics: undefined,
        tracing: undefined,
      },
      cors,
    ),
  )
  .use(createErrorHandler({ log, rateLimits: undefined }, { routeTable: createRouteTable(), cors }))
  .get('/error', () => {
    throw new Error(`secret ${canary}`, { cause: new Error(canary) });
  })
  .get('/code', () => {
    throw Object.assign(new Error(canary), { code: 'NOT_FOUND', status: 200 });
  })
  .get('/null', () => {
    throw null;
  })
  .get('/text', () => {
    throw canary;
  })
  .get('/reject', () => Promise.reject(undefined))
  .get('/status', ({ status }) => {
    throw status(409, canary);
  })
  .get('/response', () => JSON.parse(`{"id":"${canary}"}`), { response: { 200: v.object({ id: v.number() }) } })
  .get('/cyclic', () => {
    const cyclic: Record<string, unknown> = { canary };
    cyclic.self = cyclic;
    return cyclic;
  })
  .get('/header', ({ set }) => {
    set.headers['x-broken'] = `${canary}\r\nx: y`;
    return 'ok';
  })
  .listen({ port: 0, hostname: '127.0.0.1' });
afterAll(() => failing.stop(true));

describe('internal error', () => {
  test.each(['error', 'code', 'null', 'text', 'reject', 'status', 'response', 'cyclic', 'header'])(
    'returns a 500 problem without internals: %s',
    async (path) => {
      const response = await readResponse(await fetch(`http://127.0.0.1:${failing.server?.port}/${path}`));
      expect(response.status).toBe(500);
      expect(response.headers.get('content-type')).toBe('application/problem+json');
      expect(response.body).toMatchObject({ type: '/problems/internal-error', code: 300, http_code: 500, status: 500 });
      expect(response.text).not.toContain(canary);
      expect(response.text).not.toContain('.ts');
      expect(response.headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
      expect(logLines.join('\n')).not.toContain(canary);
    },
  );

  test('logs the request id and stack frames', async () => {
    logLines.length = 0;
    await fetch(`http://127.0.0.1:${failing.server?.port}/error`, {
      headers: { 'x-request-id': 'find-me-in-the-log' },
    });
    const line = JSON.parse(logLines.find((each) => each.includes('request failed')) ?? '{}');
    expect(line).toMatchObject({ level: 'error', requestId: 'find-me-in-the-log', problem: 'internal-error' });
    expect(line.frames[0]).toContain('error-handler.test.ts');
  });
});

describe('invalid Host header', () => {
  test.each(['[', '', 'a b', 'x:99999', 'é', 'a/b', 'x'.repeat(3000)])('returns a 4xx response: %p', async (host) => {
    const testApp = await createTestApp();
    testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
    const socket = await connectRaw(testApp.app.server?.port ?? 0);
    const response = await socket.exchange(
      `GET /v2/private/user HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    );
    expect(response).toMatch(/^HTTP\/1.1 4\d\d /);
    if (response.includes('problem+json')) expect(response).toMatch(/x-request-id: [\w-]{8,64}/i);
    await testApp.app.stop(true);
  });
});

test('Host header of one letter routes correctly', async () => {
  const testApp = await createTestApp();
  testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
  for (const path of ['/v2/private/healthAndCare/', '/v2/private/user/', '/health/live/']) {
    const { exchange } = await connectRaw(testApp.app.server?.port ?? 0);
    const response = await exchange(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(response).toStartWith(path.startsWith('/health/') ? 'HTTP/1.1 200 ' : 'HTTP/1.1 401 ');
  }
  for (const path of ['/a/v2/private/user/', '/private/user/']) {
    const { exchange } = await connectRaw(testApp.app.server?.port ?? 0);
    const response = await exchange(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(response).toStartWith('HTTP/1.1 404 ');
  }
  await testApp.app.stop(true);
});

describe('database error', () => {
  test('returns 503 with Retry-After when it is transient', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const response = await testApp.call('GET', '/v2/private/user', { as: 'reader' });
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('1');
    expect(response.body).toMatchObject({ type: '/problems/database-unavailable', code: 301 });
  });

  test('returns 500 without SQL or values in response and log when it is permanent', async () => {
    const testApp = await createTestApp();
    await testApp.db.$client.execute(
      "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    const response = await testApp.call('POST', '/v2/private/user/profile', {
      as: canary,
      body: { firstName: canary },
    });
    expect(response.status).toBe(500);
    const written = response.text + testApp.logLines.join('\n');
    expect(written).not.toContain(canary);
    expect(written).not.toMatch(/insert|select|json_patch|no such column/i);
    expect(testApp.logLines.join('\n')).toContain('SQLITE_CONSTRAINT');
  });

  test('rejects a stored section that is not JSON', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'holder', body: {} });
    const broken = testApp.db.$client.execute({ sql: `UPDATE users SET profile = '{' WHERE id = 'holder'`, args: [] });
    await expect(broken).rejects.toMatchObject({ code: 'SQLITE_CONSTRAINT' });
    expect(await testApp.db.select().from(users).where(eq(users.id, 'holder'))).toMatchObject([{ profile: null }]);
  });
});

describe('problem catalogue', () => {
  test('has a unique code for every kind and Retry-After for 409, 429, 503 and 504', () => {
    const codes = Object.values(problemKinds).map(({ code }) => code);
    expect(new Set(codes).size).toBe(codes.length);
    for (const kind of Object.values(problemKinds)) {
      if ([409, 429, 503, 504].includes(kind.status)) expect(kind).toHaveProperty('retryAfterSeconds');
    }
  });
});
