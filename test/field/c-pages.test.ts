import { describe, expect, test } from 'bun:test';
import type { Page } from 'playwright-core';
import { createTestApp, testToken } from '../support/app';
import { findViolations, noBrowser, startBrowser } from '../support/browser';
import { atEnd } from '../support/resources';

/** The page loads five megabytes of script, slowly on a busy machine. */
const timeoutMs = 120_000;
const path = '/v2/private/user/profile';
const appearances = [
  { viewport: { width: 1280, height: 900 }, colorScheme: 'light' },
  { viewport: { width: 390, height: 844 }, colorScheme: 'dark' },
] as const;

/** Violations in the markup of Scalar 1.76.0 that no option changes: the axe rule and the element. */
const known = [
  // Rows of cookies, headers and query parameters: an editable cell with the role `combobox` lacks `aria-expanded`.
  ['aria-required-attr', /^<div [^>]*class="code-input-lite__editor"[^>]*role="combobox"/],
  // The button beside a default header has the role `none`, a label and the focus.
  ['aria-allowed-role', /^<button aria-label="More Information"[^>]* role="none"/],
  ['aria-prohibited-attr', /^<button aria-label="More Information"[^>]* role="none"/],
  ['presentation-role-conflict', /^<button aria-label="More Information"[^>]* role="none"/],
  // The editors of CodeMirror with the bodies of the request and of the response have no name.
  ['aria-input-field-name', /^<div [^>]*class="cm-content"/],
  // The editor of the response is not editable, so its scrolling part cannot get the focus.
  ['scrollable-region-focusable', /^<div [^>]*class="cm-scroller"/],
  // The button that copies the response references a missing element.
  ['aria-valid-attr-value', /^<button [^>]*group\/copy-button/],
  // The dialog adds a second `main` and a second list of notifications; two visible operations have response cards of one name.
  ['landmark-no-duplicate-main', /^<main [^>]*class="references-rendered"/],
  ['landmark-unique', /^<section aria-label="Notifications|^<div [^>]*response-card/],
  // The search field has the role `combobox` without `aria-expanded` until there is a result.
  ['aria-required-attr', /^<input [^>]*aria-label="Enter search query"/],
] as const;
const seen = new Set<number>();

/** The violations that are not known. */
async function newViolations(page: Page) {
  return (await findViolations(page)).filter(([rule, html]) => {
    const index = known.findIndex(([knownRule, element]) => knownRule === rule && element.test(html));
    seen.add(index);
    return index === -1;
  });
}

describe.skipIf(noBrowser !== undefined)(
  `the pages in Chromium${noBrowser === undefined ? '' : ` (${noBrowser})`}`,
  async () => {
    const now = new Date();
    const demoTokens = {
      'demo-user': await testToken({ id: 'demo-user', now }),
      'demo-manager': await testToken({ id: 'demo-manager', roles: ['salesManager'], now }),
    };
    const { app } = await createTestApp({ demoTokens, clock: () => now });
    app.listen({ port: 0, hostname: '127.0.0.1' });
    atEnd(() => app.stop(true));
    const address = `http://127.0.0.1:${app.server?.port}`;

    test.each(appearances)(
      'C13 /swagger shows only the known violations of Scalar with its dialogs open, $colorScheme, $viewport.width px',
      async (appearance) => {
        const page = await (await startBrowser()).newPage(appearance);
        await page.goto(`${address}/swagger#tag/profile/POST${path}`);
        const open = page.getByRole('button', { name: new RegExp(`^Test Request.*${path}`) });
        await open.waitFor({ timeout: timeoutMs });
        // Opens every part of a response, including the links to problem pages.
        for (const status of ['200', '422', '503'])
          await page.locator(`button[id$="POST${path}.responses.${status}"]`).click({ position: { x: 8, y: 8 } });
        await page.getByRole('link', { name: 'How to fix it' }).first().waitFor();
        expect(await newViolations(page)).toEqual([]);

        await open.click();
        await page.getByRole('button', { name: /^Send/ }).first().click();
        await page.locator('.cm-content').last().getByText('"demo-user"').waitFor();
        expect(await newViolations(page)).toEqual([]);
        await page.getByRole('button', { name: 'Close Client' }).click();

        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Enter search query' }).waitFor();
        expect(await newViolations(page)).toEqual([]);
      },
      timeoutMs,
    );

    test('C13 /swagger still shows every known violation of Scalar', () => {
      expect(known.flatMap(([rule], index) => (seen.has(index) ? [] : [rule]))).toEqual([]);
    });

    test.each(appearances)(
      'C13 the problem pages have no violation, $colorScheme, $viewport.width px',
      async (appearance) => {
        const page = await (await startBrowser()).newPage(appearance);
        for (const each of ['/problems', '/problems/invalid-input', '/problems/carrier-declined']) {
          await page.goto(`${address}${each}`);
          expect([each, await findViolations(page)]).toEqual([each, []]);
        }
      },
      timeoutMs,
    );
  },
);
