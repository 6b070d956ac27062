import { describe, expect, test } from 'bun:test';
import type { AppDeps } from '../../src/deps';
import { seedDemo } from '../../src/seed';
import { lazy } from '../../src/shared/async';
import { createTestApp, testToken } from '../support/app';
import { noBrowser, openInBrowser } from '../support/browser';
import { atEnd, until } from '../support/resources';

if (noBrowser !== undefined) console.warn(`Browser tests skipped: ${noBrowser}.`);

async function listen(overrides: Partial<AppDeps> = {}): Promise<string> {
  const { app, db, now } = await createTestApp(overrides);
  await seedDemo(db, now);
  app.listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(() => app.stop(true));
  return `http://127.0.0.1:${app.server?.port}`;
}

/** A page with five megabytes of script loads slowly on a busy machine. */
const hangTimeoutMs = 120_000;

/** Opens the documentation with demo tokens at one operation. */
async function openDocs() {
  const now = new Date();
  const demoTokens = {
    'demo-user': await testToken({ id: 'demo-user', now }),
    'demo-manager': await testToken({ id: 'demo-manager', roles: ['salesManager'], now }),
  };
  const address = await listen({ demoTokens, clock: () => now });
  return { address, ...(await openInBrowser(`${address}/swagger#tag/profile/POST/v2/private/user/profile`)) };
}

/** One walk over one page, shared by the tests because it is slow. Steps that break the page come last. */
const walkDocs = lazy(async () => {
  const { address, page, requests, complaints } = await openDocs();
  /** Sends the example request of an operation and returns the response and its displayed text. */
  const send = async (path: string) => {
    await page.getByRole('button', { name: new RegExp(`^Test Request.*${path}`) }).click();
    const received = page.waitForResponse((response) => new URL(response.url()).pathname === path);
    await page.getByRole('button', { name: /^Send/ }).first().click();
    const response = await received;
    const shown = page.locator('.cm-content').last();
    await shown.getByText('{').first().waitFor();
    const sent = { status: response.status(), body: await response.json(), shown: await shown.textContent() };
    await page.getByRole('button', { name: 'Close Client' }).click();
    return sent;
  };
  const overhangs: unknown[] = [];
  const measure = async () => overhangs.push(await page.evaluate('document.documentElement.scrollWidth - innerWidth'));

  await page.getByRole('button', { name: 'Test Request' }).first().waitFor({ timeout: hangTimeoutMs });
  await measure();
  const saved = await send('/v2/private/user/profile');

  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('button', { name: 'demo-manager' }).click();
  await page.evaluate(`location.hash = 'tag/sales/GET/v2/private/user/salesManager/monthly-glance'`);
  const barTop = await page.evaluate(`document.querySelector('.token').getBoundingClientRect().top`);
  const glance = await send('/v2/private/user/salesManager/monthly-glance');
  await measure();
  const complaintsOfUse = [...complaints];

  const countClicked = await page.evaluate(`(() => {
    const buttons = [...document.querySelectorAll('button')];
    const ofEachKind = new Map(buttons.map((button) => [button.className, button]));
    for (const button of ofEachKind.values()) button.click();
    return ofEachKind.size;
  })()`);
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestIdleCallback(done)))');
  // A button may remove the token; Chromium then reports each 401 response as a console error.
  const violations = () =>
    complaints.filter((text) => !text.startsWith('Failed to load resource: the server responded'));
  const ownViolations = violations();
  const hasAllStyles = await page.evaluate(
    `[...document.querySelectorAll('style')].every(({ sheet }) => sheet !== null)`,
  );

  await page.evaluate(`
    const script = document.createElement('script');
    script.textContent = 'globalThis.isIntruded = true';
    document.body.append(script);
    const picture = document.createElement('div');
    picture.innerHTML = '<img src="x" onerror="globalThis.isIntruded = true">';
    document.body.append(picture);`);
  await until(() => violations().length >= ownViolations.length + 2);
  const isIntruded = await page.evaluate('globalThis.isIntruded');
  return {
    address,
    requests,
    ownViolations,
    countClicked,
    saved,
    glance,
    overhangs,
    complaintsOfUse,
    barTop,
    hasAllStyles,
    isIntruded,
  };
});

describe.skipIf(noBrowser !== undefined)('in a real browser', () => {
  test(
    'documentation page sends requests with demo tokens, shows the responses and fits a phone',
    async () => {
      const { saved, glance, overhangs, complaintsOfUse, barTop } = await walkDocs();
      expect(saved).toMatchObject({ status: 200, body: { user: { id: 'demo-user', profile: { firstName: 'Ada' } } } });
      expect(saved.shown).toContain('"id": "demo-user"');
      expect(glance).toMatchObject({ status: 200, body: { data: { teamGlance: {}, managerReport: {} } } });
      expect(glance.shown).toContain('"teamGlance"');
      // The token bar stays visible at an operation far down the page.
      expect(barTop).toBe(0);
      expect(overhangs).toEqual([0, 0]);
      expect(complaintsOfUse).toEqual([]);
    },
    hangTimeoutMs,
  );

  test(
    'documentation page sends a typed token until a demo token is selected again',
    async () => {
      const { page } = await openDocs();
      const path = '/v2/private/user';
      const open = async () => {
        // The page opens the operation of the URL fragment.
        await page.evaluate(`location.hash = 'tag/user-object/GET/v2/private/user'`);
        const button = page.getByRole('button', { name: new RegExp(`^Test Request.*${path}\\)?$`) });
        await button.click({ timeout: hangTimeoutMs });
      };
      const close = () => page.getByRole('button', { name: 'Close Client' }).click();
      const senderOf = async () => {
        await open();
        const sent = page.waitForRequest((request) => new URL(request.url()).pathname === path);
        await page.getByRole('button', { name: /^Send/ }).first().click();
        const token = (await (await sent).headerValue('authorization'))?.replace('Bearer ', '') ?? '';
        await close();
        return token.includes('.')
          ? JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()).sub
          : token;
      };
      await page.setViewportSize({ width: 1280, height: 900 });
      // The responses do not matter here.
      await page.route(`**${path}`, (route) => route.fulfill({ json: {} }));

      await open();
      await page.getByRole('dialog').getByLabel('Bearer Token').fill('typed-by-hand');
      await close();
      expect(await senderOf()).toBe('typed-by-hand');
      await page.getByRole('button', { name: 'demo-user' }).click();
      expect(await senderOf()).toBe('demo-user');
    },
    hangTimeoutMs,
  );

  test(
    'documentation page violates no CSP on clicks, contacts no other host and blocks injected scripts',
    async () => {
      const { address, requests, ownViolations, countClicked, hasAllStyles, isIntruded } = await walkDocs();
      expect(countClicked).toBeGreaterThan(20);
      expect(ownViolations).toEqual([]);
      expect(requests.filter((url) => !url.startsWith(`${address}/`) && !url.startsWith('data:'))).toEqual([]);
      expect(hasAllStyles).toBe(true);
      expect(isIntruded).toBeUndefined();
    },
    hangTimeoutMs,
  );

  test(
    'problem pages violate no CSP, load their styles, link to each other and fit a phone',
    async () => {
      const address = await listen();
      const { page, complaints } = await openInBrowser(`${address}/problems/rate-limited`);
      expect(await page.title()).toBe('Too many requests');
      expect(await page.evaluate('getComputedStyle(document.body).maxWidth')).toBe('640px');
      for (const width of [1280, 390]) {
        await page.setViewportSize({ width, height: 844 });
        for (const path of ['/problems', '/problems/idempotency-key-reused', '/problems/invalid-input']) {
          await page.goto(`${address}${path}`);
          expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0);
        }
      }
      await page.getByRole('link', { name: 'All problems' }).click();
      await page.getByRole('link', { name: 'carrier-declined' }).click();
      expect(await page.title()).toBe('Application declined');
      expect(complaints).toEqual([]);
    },
    hangTimeoutMs,
  );
});

test('documentation CSP denies by default and allows scripts only with the nonce of the response', async () => {
  const { call } = await createTestApp();
  const policies = [await call('GET', '/swagger'), await call('GET', '/swagger')].map((response) => ({
    policy: response.headers.get('content-security-policy') ?? '',
    text: response.text,
  }));
  for (const { policy, text } of policies) {
    expect(policy).toStartWith("default-src 'none'; ");
    expect(policy.replace("style-src 'unsafe-inline'", '')).not.toMatch(/unsafe|\*|https?:/);
    const nonce = /'nonce-([\w+/=]{20,})'/.exec(policy)?.[1] ?? '';
    expect(text.split(`nonce="${nonce}"`).length - 1).toBe(text.match(/<script\b/g)?.length ?? 0);
  }
  expect(policies[0]?.policy).not.toBe(policies[1]?.policy);
});
