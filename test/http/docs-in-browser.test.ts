import { describe, expect, test } from 'bun:test';
import { createTestApp, testConfig } from '../support/app';
import { noChromium, openInChromium } from '../support/chromium';
import { atEnd } from '../support/cleanup';
import { until } from '../support/until';

if (noChromium !== undefined) console.warn(`The pages were not opened in a browser: ${noChromium}.`);

async function listen(publicUrl?: string): Promise<string> {
  const { app } = await createTestApp({ config: { ...testConfig, publicUrl } });
  app.listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(() => app.stop(true));
  return `http://127.0.0.1:${app.server?.port}`;
}

describe.skipIf(noChromium !== undefined)('in a real browser', () => {
  test('the documentation obeys its policy, asks no other host, and shows every endpoint', async () => {
    const address = await listen('http://127.0.0.1:9');
    const page = await openInChromium(`${address}/swagger`);
    const shows = (text: string) => page.evaluate(`document.body.innerText.includes(${JSON.stringify(text)})`);
    await until(async () => (await shows('/v2/private/user/profile')) === true);
    await page.evaluate(`for (const button of document.querySelectorAll('button')) button.click()`);
    await Bun.sleep(1000);
    expect(page.complaints).toEqual([]);
    expect(page.requests.filter((url) => !url.startsWith(`${address}/`) && !url.startsWith('data:'))).toEqual([]);
    expect(await page.evaluate(`getComputedStyle(document.querySelector('.scalar-app')).display`)).not.toBe('inline');
  });

  test('a page about a problem obeys its policy, and has its looks', async () => {
    const address = await listen();
    const page = await openInChromium(`${address}/problems/rate-limited`);
    await until(async () => (await page.evaluate('document.title')) === 'Too many requests');
    expect(await page.evaluate('getComputedStyle(document.body).maxWidth')).toBe('640px');
    expect(page.complaints).toEqual([]);
  });

  test('a script that somebody brings into the documentation does not run', async () => {
    const address = await listen();
    const page = await openInChromium(`${address}/swagger`);
    await until(async () => (await page.evaluate(`document.querySelector('.scalar-app') !== null`)) === true);
    await page.evaluate(`
      const script = document.createElement('script');
      script.textContent = 'globalThis.isIntruded = true';
      document.body.append(script);
      const link = document.createElement('div');
      link.innerHTML = '<img src="x" onerror="globalThis.isIntruded = true">';
      document.body.append(link);
      try { eval('globalThis.isIntruded = true'); } catch {}`);
    await until(() => page.complaints.length >= 2);
    expect(await page.evaluate('globalThis.isIntruded')).toBeUndefined();
  });
});

test('the policy of the documentation allows nothing in general, and is made anew for each answer', async () => {
  const { call } = await createTestApp();
  const policies = [await call('GET', '/swagger'), await call('GET', '/swagger')].map((answer) => ({
    policy: answer.headers.get('content-security-policy') ?? '',
    text: answer.text,
  }));
  for (const { policy, text } of policies) {
    expect(policy).toStartWith("default-src 'none'; ");
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
    const nonce = /'nonce-([\w+/=]{20,})'/.exec(policy)?.[1] ?? '';
    expect(text.split(`nonce="${nonce}"`).length - 1).toBe(text.match(/<(?:script|style)\b/g)?.length ?? 0);
  }
  expect(policies[0]?.policy).not.toBe(policies[1]?.policy);
});
