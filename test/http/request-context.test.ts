import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { createLog } from '../../src/log';
import { createTestApp } from '../support/app';

const Line = v.strictObject({
  level: v.literal('info'),
  time: v.pipe(v.string(), v.isoTimestamp()),
  requestId: v.string(),
  method: v.string(),
  route: v.string(),
  status: v.number(),
  durationMs: v.number(),
  msg: v.literal('request'),
});

describe('X-Request-Id', () => {
  test.each(['GET /v2/private/user', 'GET /health/live', 'GET /nowhere', 'DELETE /health/live', 'GET /swagger'])(
    'returns unchanged, or generated when missing, from %s',
    async (line) => {
      const testApp = await createTestApp();
      const [method = '', path = ''] = line.split(' ');
      const sent = await testApp.call(method, path, { headers: { 'x-request-id': 'my-Request_id-1' } });
      expect(sent.headers.get('x-request-id')).toBe('my-Request_id-1');
      const made = await testApp.call(method, path);
      expect(made.headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
    },
  );

  test.each(['short', 'a'.repeat(65), 'has space in it', 'ünïcödé-id', '../../etc/passwd', '{"a":1}-----'])(
    'changes to a generated id when invalid: %s',
    async (id) => {
      const testApp = await createTestApp();
      const response = await testApp.call('GET', '/health/live', { headers: { 'x-request-id': encodeURI(id) } });
      expect(response.headers.get('x-request-id')).not.toBe(encodeURI(id));
      expect(testApp.logLines.join('')).not.toContain(encodeURI(id));
    },
  );
});

describe('request log', () => {
  test('has one line for each request with only the known fields and the final status', async () => {
    const testApp = await createTestApp();
    const save = { as: 'plain-user', body: { firstName: 'Ada' } };
    await testApp.call('POST', '/v2/private/user/profile', save);
    await testApp.call('POST', '/v2/private/user/profile/', { ...save, body: { firstName: 5 } });
    await testApp.call('POST', '/v2/private/user/profile', { body: {} });
    await testApp.call('GET', '/v2/private/cemetery/all?page=2', { as: 'plain-user' });
    await testApp.call('GET', '/v2/private/secret-person@example.com');
    const etag = (await testApp.call('GET', '/v2/private/user', { as: 'plain-user' })).headers.get('etag') ?? '';
    await testApp.call('GET', '/v2/private/user', { as: 'plain-user', headers: { 'if-none-match': etag } });
    await Bun.sleep(0);
    const lines = testApp.logLines
      .filter((line) => !line.includes('"debug"'))
      .map((line) => v.parse(Line, JSON.parse(line)));
    expect(lines.map(({ method, route, status }) => `${method} ${route} ${status}`)).toEqual([
      'POST /v2/private/user/profile 200',
      'POST /v2/private/user/profile 422',
      'POST /v2/private/user/profile 401',
      'GET /v2/private/cemetery/all 200',
      'GET none 404',
      'GET /v2/private/user 200',
      'GET /v2/private/user 304',
    ]);
  });

  test('has no personal data at any level', async () => {
    const testApp = await createTestApp();
    const canaries = ['Canaryname', 'canary@example.com', '1951-07-19', 'canary-subject', 'canary-title'];
    await testApp.call('POST', '/v2/private/user/profile', {
      as: 'canary-subject',
      body: { firstName: 'Canaryname', email: 'canary@example.com', dateOfBirth: '1951-07-19' },
    });
    await testApp.call('POST', '/v2/private/deepDives/lifeInsurance', {
      as: 'canary-subject',
      body: { customSelections: [{ title: 'canary-title' }] },
    });
    await testApp.call('POST', '/v2/private/user/profile', {
      as: 'canary-subject',
      body: { firstName: ['Canaryname'], Canaryname: 1 },
    });
    await testApp.call('GET', '/v2/private/canary-title?email=canary@example.com', { as: 'canary-subject' });
    testApp.db.$client.close();
    await testApp.call('GET', '/v2/private/user', { as: 'canary-subject' });
    await Bun.sleep(0);
    const written = testApp.logLines.join('\n');
    expect(testApp.logLines.length).toBeGreaterThan(5);
    for (const canary of canaries) expect(written).not.toContain(canary);
  });

  test('does not fail a request when a write fails', async () => {
    const log = createLog('debug', {
      write() {
        throw new Error('disk full');
      },
    });
    const testApp = await createTestApp({ log });
    expect((await testApp.call('GET', '/health/live')).status).toBe(200);
    expect((await testApp.call('GET', '/health/live')).status).toBe(200);
  });
});
