import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { createTestApp } from '../support/app';
import { connectRaw } from '../support/http';
import { atEnd, freePort, temporaryFolder, until } from '../support/resources';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const port = testApp.app.server?.port ?? 0;
atEnd(() => testApp.app.stop(true));

async function statusOf(head: string): Promise<string> {
  const { socket, received } = await connectRaw(port);
  socket.write(`${head}\r\n\r\n`);
  const response = await received;
  socket.end();
  return response.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length);
}

describe('a probe', () => {
  test.each([
    ['GET /health/ready HTTP/1.0', '200'],
    ['GET /health/live HTTP/1.0', '200'],
    ['HEAD /health/ready HTTP/1.0', '200'],
    ['HEAD /health/live/ HTTP/1.0', '200'],
    ['GET /health/ready/ HTTP/1.0', '200'],
    ['GET /health/ready?from=probe HTTP/1.0', '200'],
    ['GET /health/ready HTTP/1.0\r\nUser-Agent: probe', '200'],
    ['GET /health/ready HTTP/1.0\r\nHost:', '200'],
    ['GET /health/ready HTTP/1.1\r\nHost:', '200'],
    ['GET /health/ready HTTP/1.1\r\nHost: a b', '200'],
    ['OPTIONS / HTTP/1.0', '204'],
    ['OPTIONS / HTTP/1.1\r\nHost: x', '204'],
    ['OPTIONS /health/ready HTTP/1.0', '204'],
    ['OPTIONS /health/live HTTP/1.0', '204'],
    ['OPTIONS /health/ready HTTP/1.1\r\nHost: x', '204'],
  ])('C7 gets a response: %s', async (head, status) => expect(await statusOf(head)).toBe(status));

  test.each([
    ['GET /v2/private/user HTTP/1.0', '400'],
    ['GET / HTTP/1.0', '400'],
    ['GET /x/../health/ready HTTP/1.0', '400'],
    ['GET /x/../health/ready HTTP/1.1\r\nHost: x', '404'],
    ['POST /health/ready HTTP/1.0', '400'],
    ['OPTIONS /swagger HTTP/1.0', '400'],
    ['GET / HTTP/1.1\r\nHost: x', '404'],
    ['OPTIONS /swagger HTTP/1.1\r\nHost: x', '405'],
  ])('C7 covers no other request: %s', async (head, status) => expect(await statusOf(head)).toBe(status));

  test('C7 fails on an instance that is not ready', async () => {
    testApp.lifecycle.isDraining = true;
    const asked = [
      'GET /health/ready',
      'HEAD /health/ready',
      'OPTIONS /health/ready',
      'OPTIONS /',
      'OPTIONS /health/live',
    ];
    const statuses = await Promise.all(asked.map((start) => statusOf(`${start} HTTP/1.0`)));
    testApp.lifecycle.isDraining = false;
    expect(statuses).toEqual(['503', '503', '503', '503', '204']);
  });

  test('C7 does not cover a preflight request', async () => {
    const headers = { origin: 'https://other.example', 'access-control-request-method': 'GET' };
    expect((await testApp.call('OPTIONS', '/health/ready', { headers })).text).toContain('CORS_ORIGINS');
  });
});

const haproxy = Bun.which('haproxy');

describe.skipIf(haproxy === null)('HAProxy (skipped without its Debian package)', () => {
  test.each([
    'option httpchk',
    'option httpchk GET /health/ready',
    'option httpchk; http-check send meth HEAD uri /health/ready ver HTTP/1.1 hdr Host x',
  ])('C7 marks an instance as up with `%s`, and as down while it drains', async (check) => {
    const proxyPort = await freePort();
    const file = join(temporaryFolder(), 'haproxy.cfg');
    await Bun.write(
      file,
      `defaults
  mode http
  timeout connect 2s
  timeout client 5s
  timeout server 5s
frontend all
  bind 127.0.0.1:${proxyPort}
  default_backend service
backend service
  ${check.replace('; ', '\n  ')}
  server one 127.0.0.1:${port} check inter 50 fall 1 rise 1
`,
    );
    const child = Bun.spawn([haproxy ?? '', '-db', '-f', file], { stdout: 'ignore', stderr: 'ignore' });
    atEnd(async () => {
      child.kill();
      await child.exited;
    });
    /** Whether HAProxy considers the instance up; without one it returns 503 itself. */
    const isUp = async () => {
      const { exchange } = await connectRaw(proxyPort);
      const head = 'GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
      return (await exchange(head)).startsWith('HTTP/1.1 200 ');
    };
    const checks = () => testApp.logLines.filter((line) => line.includes('"msg":"request"')).length;
    await until(() => isUp().catch(() => false));
    // HAProxy considers a server up until its first check.
    const before = checks();
    await until(() => checks() >= before + 3);
    expect(await isUp()).toBeTrue();
    testApp.lifecycle.isDraining = true;
    await until(async () => !(await isUp()));
    testApp.lifecycle.isDraining = false;
    await until(isUp);
    child.kill();
    await child.exited;
  });
});
