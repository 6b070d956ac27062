import { describe, expect, test } from 'bun:test';
import { createTestApp, testConfig } from '../support/app';
import { noBrowser, openInBrowser } from '../support/browser';
import { atEnd } from '../support/cleanup';
import { until } from '../support/until';

if (noBrowser !== undefined) console.warn(`The pages were not opened in a browser: ${noBrowser}.`);

async function listen(publicUrl?: string): Promise<string> {
  const { app } = await createTestApp({ config: { ...testConfig, publicUrl } });
  app.listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(() => app.stop(true));
  return `http://127.0.0.1:${app.server?.port}`;
}

/** A page of five megabytes of script takes its time where others load the machine. */
const patienceMs = 120_000;

describe.skipIf(noBrowser !== undefined)('in a real browser', () => {
  test(
    'the documentation obeys its policy, asks no other host, shows every endpoint, and runs nothing that is brought in',
    async () => {
      const address = await listen('http://127.0.0.1:9');
      const { page, requests, complaints } = await openInBrowser(`${address}/swagger`);
      await page.getByText('/v2/private/user/profile').first().waitFor({ state: 'attached', timeout: patienceMs });
      await page.evaluate(`for (const button of document.querySelectorAll('button')) button.click()`);
      await Bun.sleep(1000);
      expect(complaints).toEqual([]);
      expect(requests.filter((url) => !url.startsWith(`${address}/`) && !url.startsWith('data:'))).toEqual([]);
      expect(await page.evaluate(`[...document.querySelectorAll('style')].every(({ sheet }) => sheet !== null)`)).toBe(
        true,
      );

      await page.evaluate(`
        const script = document.createElement('script');
        script.textContent = 'globalThis.isIntruded = true';
        document.body.append(script);
        const picture = document.createElement('div');
        picture.innerHTML = '<img src="x" onerror="globalThis.isIntruded = true">';
        document.body.append(picture);`);
      await until(() => complaints.length >= 2);
      expect(await page.evaluate('globalThis.isIntruded')).toBeUndefined();
    },
    patienceMs,
  );

  test(
    'a page about a problem obeys its policy, and has its looks',
    async () => {
      const address = await listen();
      const { page, complaints } = await openInBrowser(`${address}/problems/rate-limited`);
      expect(await page.title()).toBe('Too many requests');
      expect(await page.evaluate('getComputedStyle(document.body).maxWidth')).toBe('640px');
      expect(complaints).toEqual([]);
    },
    patienceMs,
  );
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
