import { describe, expect, test } from 'bun:test';
import { createTestApp, testConfig, testToken } from '../support/app';
import { createRawClient } from '../support/http';
import { atEnd } from '../support/resources';

const now = new Date('2026-03-10T12:00:00Z');
const demoTokens = {
  'demo-user': await testToken({ id: 'demo-user', now }),
  'demo-manager': await testToken({ id: 'demo-manager', roles: ['salesManager'], now }),
};

async function listen(publicUrl?: string) {
  const { app } = await createTestApp({ config: { ...testConfig, publicUrl }, demoTokens });
  app.listen({ port: 0, hostname: '127.0.0.1' });
  const port = app.server?.port ?? 0;
  const client = createRawClient(port);
  atEnd(() => client.close());
  atEnd(() => app.stop(true));
  const load = async (host: string, headers: (readonly [string, string])[] = []) => {
    const response = await client.send({ method: 'GET', target: '/', headers: [['Host', host], ...headers] });
    const { status, text = '' } = response ?? {};
    const tokens = Object.values(demoTokens).filter((token) => text.includes(token)).length;
    return { status, text, tokens, policy: response?.headers.get('content-security-policy') ?? '', ...response };
  };
  return { port, load };
}

describe('demo page', async () => {
  const { port, load } = await listen();

  test.each([`127.0.0.1:${port}`, `localhost:${port}`, 'LOCALHOST', `app.localhost:${port}`, `[::1]:${port}`])(
    'contains the demo tokens under the loopback name %s and is not cached',
    async (host) => {
      const { status, tokens, headers } = await load(host);
      expect([status, tokens, headers?.get('cache-control')]).toEqual([200, 2, 'no-store']);
    },
  );

  const otherHosts = ['evil.example', `evil.example:${port}`, '127.0.0.1.evil.example', 'localhost.evil.example'];
  test.each([...otherHosts, '10.0.0.1', '127.0.0.1@evil.example', 'evil-localhost', '0.0.0.0'])(
    'does not exist under the name %s',
    async (host) => {
      const { status, tokens } = await load(host);
      expect([status === 404 || status === 400, tokens]).toEqual([true, 0]);
    },
  );

  test('does not exist for another origin', async () => {
    expect(await load('localhost', [['Origin', 'http://localhost:5173']])).toMatchObject({ status: 404, tokens: 0 });
  });

  test('exists under PUBLIC_URL for a local browser', async () => {
    const { load } = await listen('https://demo.example');
    expect((await load('demo.example')).status).toBe(200);
    expect((await load('other.example')).status).toBe(404);
    expect((await load('demo.example', [['X-Forwarded-For', '127.0.0.1']])).status).toBe(404);
  });

  test('returns 404 like an unknown path without demo tokens', async () => {
    const { call } = await createTestApp();
    const [{ status, body }, unknown] = [await call('GET', '/'), await call('GET', '/nowhere')];
    expect(status).toBe(404);
    expect(body).toMatchObject({ type: '/problems/route-not-found', detail: Object(unknown.body).detail });
  });

  test('allows only its own script and style, by hash, and no event or style attributes', async () => {
    const { text, policy } = await load('localhost');
    expect(policy).toStartWith("default-src 'none'; script-src 'sha256-");
    expect(policy).not.toMatch(/unsafe|\*|http/);
    const inline = [...text.matchAll(/<(script|style)(?: type="module")?>(.*?)<\/\1>/gs)];
    expect(inline.map(([, element]) => element).sort()).toEqual(['script', 'style']);
    for (const [, element, content = ''] of inline) {
      const hash = new Bun.CryptoHasher('sha256').update(content).digest('base64');
      expect(policy).toContain(`${element}-src 'sha256-${hash}';`);
    }
    const elements = text.replaceAll(/<(script|style)\b.*?<\/\1>/gs, '');
    expect(elements).not.toMatch(/<script|<style|<link|\son\w+=|style=|https?:/);
  });
});
