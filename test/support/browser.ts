import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { atEnd } from './cleanup';

const program = Bun.which('chromium') ?? Bun.which('chromium-browser') ?? Bun.which('google-chrome');

/** Why there is no browser to test with; undefined where there is one. */
export const noBrowser = program === null ? 'no Chromium is installed' : undefined;

/** Without what a browser asks of its maker by itself. Playwright gives some of these as well, by its version. */
const quietly = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];

let browser: Promise<Browser> | undefined;

/** A real Chromium without a window, one for all tests of a file. */
export function startBrowser(): Promise<Browser> {
  if (browser === undefined) {
    const started = chromium.launch({ executablePath: program ?? '', args: ['--no-sandbox', ...quietly] });
    browser = started;
    atEnd(async () => {
      browser = undefined;
      await (await started).close();
    });
  }
  return browser;
}

/** Opens an address in a page of its own, which notes the addresses that it asks for and all that goes wrong on it. */
export async function openInBrowser(address: string) {
  const page = await (await startBrowser()).newPage();
  const requests: string[] = [];
  /** Console errors and warnings, exceptions, and violations of the page’s policy. */
  const complaints: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  await page.goto(address);
  return { page, requests, complaints };
}

const axe = fileURLToPath(import.meta.resolve('axe-core'));

/** What axe finds on a page, an entry for each element: the rule and the element's HTML. */
export async function findViolations(page: Page, within = 'html'): Promise<(readonly [string, string])[]> {
  // The policies of the pages keep out a script that the page itself would load.
  const session = await page.context().newCDPSession(page);
  await session.send('Runtime.evaluate', { expression: await Bun.file(axe).text() });
  // An element that is still fading in has too little contrast.
  await page.waitForFunction(() =>
    document.getAnimations().every(({ playState, effect }) => {
      const isEndless = effect?.getComputedTiming().endTime === Number.POSITIVE_INFINITY;
      return playState !== 'running' || isEndless;
    }),
  );
  const { violations }: AxeResults = await page.evaluate(
    `axe.run(${JSON.stringify(within)}, { resultTypes: ['violations'] })`,
  );
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => [id, html] as const));
}
