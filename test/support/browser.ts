import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { atEnd } from './resources';

const program = Bun.which('chromium') ?? Bun.which('chromium-browser') ?? Bun.which('google-chrome');

/** The reason why browser tests are skipped; undefined when a browser is installed. */
export const noBrowser = program === null ? 'no Chromium is installed' : undefined;

/** Disables background requests of the browser; Playwright sets some of these, depending on its version. */
const quietFlags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];

let browser: Promise<Browser> | undefined;

/** A headless Chromium, shared by all tests of a file. */
export function startBrowser(): Promise<Browser> {
  if (browser === undefined) {
    const started = chromium.launch({ executablePath: program ?? '', args: ['--no-sandbox', ...quietFlags] });
    browser = started;
    atEnd(async () => {
      browser = undefined;
      await (await started).close();
    });
  }
  return browser;
}

/** Opens an address in a new page that records its requests and complaints. */
export async function openInBrowser(address: string) {
  const page = await (await startBrowser()).newPage();
  const requests: string[] = [];
  /** Console errors and warnings, exceptions, and CSP violations. */
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

/** The violations that axe finds: for each element, the rule and the element's HTML. */
export async function findViolations(page: Page, within = 'html'): Promise<(readonly [string, string])[]> {
  // The CSP of the pages blocks scripts that the page itself would load.
  const session = await page.context().newCDPSession(page);
  await session.send('Runtime.evaluate', { expression: await Bun.file(axe).text() });
  // An element has too little contrast while it fades in.
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
