import { describe, expect, test } from 'bun:test';
import { readConfig } from '../../src/config/settings';
import { announcement } from '../../src/start/listen';
import { createTestApp, listenWithDemoData, testConfig } from '../support/app';
import { lanAddress } from '../support/http';

/** The pages with demo tokens, as clients get them under a host name at an address of this machine. */
async function open(publicUrl?: string) {
  const config = { ...testConfig, publicUrl };
  const { address, demoTokens } = await listenWithDemoData({ config }, { hostname: '0.0.0.0' });
  const { port } = new URL(address);
  const load = async (host: string, { at = '127.0.0.1', path = '/', headers = {} } = {}) => {
    const response = await fetch(`http://${at}:${port}${path}`, { headers: { host, ...headers } });
    const text = await response.text();
    const tokens = Object.values(demoTokens).filter((token) => text.includes(token)).length;
    return { status: response.status, headers: response.headers, text, tokens };
  };
  return { port, load };
}
const { port, load } = await open();
const policyOf = (headers: Headers) => headers.get('content-security-policy') ?? '';

describe('demo page', () => {
  test.each([`127.0.0.1:${port}`, `localhost:${port}`, 'LOCALHOST', `app.localhost:${port}`, `[::1]:${port}`])(
    'contains the demo tokens under the loopback name %s and is not cached',
    async (host) => {
      const { status, tokens, headers } = await load(host);
      expect([status, tokens, headers.get('cache-control')]).toEqual([200, 2, 'no-store']);
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
    const headers = { origin: 'http://localhost:5173' };
    expect(await load('localhost', { headers })).toMatchObject({ status: 404, tokens: 0 });
  });

  test('exists under PUBLIC_URL for a local browser', async () => {
    const { load } = await open('https://demo.example');
    expect((await load('demo.example')).status).toBe(200);
    expect((await load('other.example')).status).toBe(404);
    expect((await load('demo.example', { headers: { 'x-forwarded-for': '127.0.0.1' } })).status).toBe(404);
  });

  test.skipIf(lanAddress === undefined)('has no tokens under a network address, nor has /swagger', async () => {
    const { port, load } = await open('http://planning.example');
    for (const host of ['planning.example', '127.0.0.1', `localhost:${port}`]) {
      for (const path of ['/', '/swagger']) {
        expect(await load(host, { path })).toMatchObject({ status: 200, tokens: 2 });
        expect(await load(host, { path, at: lanAddress ?? '' })).toMatchObject({ tokens: 0 });
      }
    }
  });

  test('returns 404 like an unknown path without demo tokens', async () => {
    const { call } = await createTestApp();
    const [{ status, body }, unknown] = [await call('GET', '/'), await call('GET', '/nowhere')];
    expect(status).toBe(404);
    expect(body).toMatchObject({ type: '/problems/route-not-found', detail: Object(unknown.body).detail });
  });

  test.each([
    ['http://localhost:3000', true, 'http://localhost:3000/'],
    ['http://0.0.0.0:3000', true, 'http://127.0.0.1:3000/'],
    ['http://[::]:3000', true, 'http://[::1]:3000/'],
    ['http://192.0.2.1:3000', true, undefined],
    ['http://localhost:3000', false, undefined],
  ])('is printed by a start at %s if the service has demo tokens (%p) and the address is a loopback one', (...row) => {
    const [address, hasTokens, page] = row;
    const stored = { tokens: { 'demo-user': 'one', 'demo-manager': 'two' }, path: 'data/demo-tokens.json' };
    const sources = { mode: 'development', folder: '/', files: [] };
    const tokens = hasTokens ? stored : undefined;
    const text = announcement(address, { config: readConfig({}), sources, tokens, demo: undefined });
    expect(text.match(/^ +page +(\S+)$/m)?.[1]).toBe(page);
  });

  test('allows only its own script and style, by hash, and no event or style attributes', async () => {
    const { text, headers } = await load('localhost');
    const policy = policyOf(headers);
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

test('the documentation allows scripts only with the nonce of the response, and denies by default', async () => {
  const nonces = new Set<string>();
  for (const host of ['localhost', 'localhost']) {
    const { text, headers } = await load(host, { path: '/swagger' });
    const policy = policyOf(headers);
    expect(policy).toStartWith("default-src 'none'; ");
    expect(policy.replace("style-src 'unsafe-inline'", '')).not.toMatch(/unsafe|\*|https?:/);
    const nonce = /'nonce-([\w+/=]{20,})'/.exec(policy)?.[1] ?? '';
    expect(text.split(`nonce="${nonce}"`).length - 1).toBe(text.match(/<script\b/g)?.length ?? 0);
    nonces.add(nonce);
  }
  expect(nonces.size).toBe(2);
});
