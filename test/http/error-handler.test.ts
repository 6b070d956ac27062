import { afterAll, describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import { serveOptions } from '../../src/app';
import { users } from '../../src/db/schema/index';
import { createCors } from '../../src/http/cors';
import { createErrorHandler, createRouteTable } from '../../src/http/problem-response';
import { createRequestContext } from '../../src/http/request-context';
import { createLog } from '../../src/log';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, readAnswer, testConfig } from '../support/app';
import { connectRaw } from '../support/raw-socket';

const canary = 'canary-4711';
const logLines: string[] = [];
const log = createLog('debug', { write: (line) => logLines.push(line) });
const cors = createCors(testConfig);

/** Routes that fail in every way that a handler can, behind the real error handler. */
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

describe('a fault of ours', () => {
  test.each(['error', 'code', 'null', 'text', 'reject', 'status', 'response', 'cyclic', 'header'])(
    'in the shape of %s answers 500 in our own body, and tells nothing',
    async (path) => {
      const answer = await readAnswer(await fetch(`http://127.0.0.1:${failing.server?.port}/${path}`));
      expect(answer.status).toBe(500);
      expect(answer.headers.get('content-type')).toBe('application/problem+json');
      expect(answer.body).toMatchObject({ type: '/problems/internal-error', code: 300, http_code: 500, status: 500 });
      expect(answer.text).not.toContain(canary);
      expect(answer.text).not.toContain('.ts');
      expect(answer.headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
      expect(logLines.join('\n')).not.toContain(canary);
    },
  );

  test('is logged with the request id and where it happened', async () => {
    logLines.length = 0;
    await fetch(`http://127.0.0.1:${failing.server?.port}/error`, {
      headers: { 'x-request-id': 'find-me-in-the-log' },
    });
    const line = JSON.parse(logLines.find((each) => each.includes('request failed')) ?? '{}');
    expect(line).toMatchObject({ level: 'error', requestId: 'find-me-in-the-log', problem: 'internal-error' });
    expect(line.frames[0]).toContain('error-handler.test.ts');
  });
});

describe('a Host header of any shape', () => {
  test.each(['[', '', 'a b', 'x:99999', 'é', 'a/b', 'x'.repeat(3000)])(
    'gets the answer that its request deserves: %p',
    async (host) => {
      const testApp = await createTestApp();
      testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
      const socket = await connectRaw(testApp.app.server?.port ?? 0);
      const answer = await socket.exchange(
        `GET /v2/private/user HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      );
      expect(answer).toMatch(/^HTTP\/1.1 4\d\d /);
      if (answer.includes('problem+json')) expect(answer).toMatch(/x-request-id: [\w-]{8,64}/i);
      await testApp.app.stop(true);
    },
  );
});

test('a Host header of one letter leads to the same route', async () => {
  const testApp = await createTestApp();
  testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
  for (const path of ['/v2/private/healthAndCare/', '/v2/private/user/', '/health/live/']) {
    const { exchange } = await connectRaw(testApp.app.server?.port ?? 0);
    const answer = await exchange(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(answer).toStartWith(path.startsWith('/health/') ? 'HTTP/1.1 200 ' : 'HTTP/1.1 401 ');
  }
  for (const path of ['/a/v2/private/user/', '/private/user/']) {
    const { exchange } = await connectRaw(testApp.app.server?.port ?? 0);
    const answer = await exchange(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(answer).toStartWith('HTTP/1.1 404 ');
  }
  await testApp.app.stop(true);
});

describe('a fault of the database', () => {
  test('that may pass answers 503 with Retry-After', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const answer = await testApp.call('GET', '/v2/private/user', { as: 'reader' });
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(answer.body).toMatchObject({ type: '/problems/database-unavailable', code: 301 });
  });

  test('that will not pass answers 500, with neither SQL nor values in answer or log', async () => {
    const testApp = await createTestApp();
    await testApp.db.$client.execute(
      "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    const answer = await testApp.call('POST', '/v2/private/user/profile', { as: canary, body: { firstName: canary } });
    expect(answer.status).toBe(500);
    const written = answer.text + testApp.logLines.join('\n');
    expect(written).not.toContain(canary);
    expect(written).not.toMatch(/insert|select|json_patch|no such column/i);
    expect(testApp.logLines.join('\n')).toContain('SQLITE_CONSTRAINT');
  });

  test('in what it holds, a text that is not JSON, is impossible', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'holder', body: {} });
    const broken = testApp.db.$client.execute({ sql: `UPDATE users SET profile = '{' WHERE id = 'holder'`, args: [] });
    await expect(broken).rejects.toMatchObject({ code: 'SQLITE_CONSTRAINT' });
    expect(await testApp.db.select().from(users).where(eq(users.id, 'holder'))).toMatchObject([{ profile: null }]);
  });
});

describe('the catalogue of problems', () => {
  test('gives every kind a number of its own, and what waits a Retry-After', () => {
    const codes = Object.values(problemKinds).map(({ code }) => code);
    expect(new Set(codes).size).toBe(codes.length);
    for (const kind of Object.values(problemKinds)) {
      if ([409, 429, 503, 504].includes(kind.status)) expect(kind).toHaveProperty('retryAfterSeconds');
    }
  });
});
