import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import { chromium, type Page } from 'playwright-core';
import * as v from 'valibot';
import { demoAnswers } from '../../src/demo/page';
import { AppError } from '../../src/errors';
import { PreviewBody } from '../../src/modules/matching/routes';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { lazy } from '../../src/shared/async';
import { journeyOutcome, makeOlder } from '../client/journey';
import { listenWithDemoData, startSandbox, testConfig } from '../support/app';
import { builtClient, bundleForBrowser, examplesFolder } from '../support/artifacts';
import { atEnd, freePort, temporaryFolder, until } from '../support/resources';

const program = Bun.which('chromium') ?? Bun.which('chromium-browser') ?? Bun.which('google-chrome');
if (program === null) console.warn('The tests in a browser are skipped: no Chromium is installed.');

/** A page with five megabytes of script loads slowly on a busy machine. */
const hangTimeoutMs = 120_000;
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };
const appearances = [
  { viewport: phone, colorScheme: 'dark' },
  { viewport: desktop, colorScheme: 'light' },
] as const;
const [dark, light] = appearances;

const context = lazy(async () => {
  const quiet = ['--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];
  const args = ['--no-sandbox', '--disable-quic', ...quiet];
  const browser = await chromium.launch({ executablePath: program ?? '', args });
  atEnd(() => browser.close());
  return browser.newContext();
});

/** Opens an address in a new page that records its requests and complaints. Closes the page before it, which takes time. */
async function openPage(address: string, appearance: (typeof appearances)[number] = light) {
  const pages = await context();
  for (const page of pages.pages()) await page.close();
  await pages.clearCookies();
  const page = await pages.newPage();
  await show(page, appearance);
  page.setDefaultTimeout(hangTimeoutMs);
  const requests: string[] = [];
  /** Console errors and warnings, exceptions, and CSP violations. */
  const complaints: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  await page.goto(address);
  const ofOtherHosts = () =>
    requests.filter((url) => !url.startsWith(`${new URL(address).origin}/`) && !url.startsWith('data:'));
  return { page, requests, ofOtherHosts, complaints };
}

async function show(page: Page, { viewport, colorScheme }: (typeof appearances)[number]): Promise<void> {
  await page.setViewportSize(viewport);
  await page.emulateMedia({ colorScheme });
}

const axe = lazy(() => Bun.file(fileURLToPath(import.meta.resolve('axe-core'))).text());

/** The violations that axe finds in a part of a page: for each element, the rule and the element's HTML. */
async function findViolations(page: Page, part = 'html'): Promise<(readonly [rule: string, html: string])[]> {
  if ((await page.evaluate('typeof axe')) === 'undefined') {
    // The CSP of the pages blocks scripts that the page itself would load.
    const session = await page.context().newCDPSession(page);
    await session.send('Runtime.evaluate', { expression: await axe() });
  }
  // An element has too little contrast while it fades in.
  await page.waitForFunction(() => {
    const isEndless = ({ effect }: Animation) => effect?.getComputedTiming().endTime === Number.POSITIVE_INFINITY;
    const running = document.getAnimations().filter((each) => each.playState === 'running' && !isEndless(each));
    for (const animation of running) animation.finish();
    return running.length === 0;
  });
  const { violations }: AxeResults = await page.evaluate(`axe.run('${part}', { resultTypes: ['violations'] })`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => [id, html] as const));
}

const overhang = (page: Page) => page.evaluate('document.documentElement.scrollWidth - innerWidth');
const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name }).first().click();

/** The scripts of a page on another origin, by path. */
const scripts = new Map<string, string>();
/** Requests of that page to its own host for other paths, with their cookies. */
const ownHostRequests: [path: string, cookie: string | null][] = [];
const other = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch({ url, headers }) {
    const { pathname } = new URL(url);
    const script = scripts.get(pathname);
    if (script !== undefined) return new Response(script, { headers: { 'content-type': 'text/javascript' } });
    if (pathname === '/')
      return new Response('<!doctype html><link rel=icon href=data:,>', { headers: { 'content-type': 'text/html' } });
    ownHostRequests.push([pathname, headers.get('cookie')]);
    return pathname.startsWith('/moved') ? Response.redirect('/elsewhere') : Response.json({});
  },
});
atEnd(() => other.stop(true));

// Each journey causes carrier failures, so the circuit breaker must not open.
const carrier = (await startSandbox()).carrier({ attempts: 1, breakerFailures: 1000 });
const config = { ...testConfig, corsOrigins: [other.url.origin] };
const { address, call, tokenOf } = await listenWithDemoData({ carrier, config });
const { firstName, lastName, dateOfBirth, gender, state, email } = demoAnswers.profile;
for (const [path, body] of [
  ['/user/profile', demoAnswers.profile],
  ['/ltc/lifetimeCare', demoAnswers.ltc],
  ['/engine/matches', {}],
  ['/ltc/totalCoverage', { firstName, lastName, dateOfBirth, gender, state, email }],
] as const) {
  expect((await call('POST', `/v2/private${path}`, { as: 'demo-user', body })).status).toBe(200);
}

describe.skipIf(program === null)('documentation page', () => {
  const save = '/v2/private/user/profile';
  const glance = '/v2/private/user/salesManager/monthly-glance';
  const inDialog = (page: Page, name: string | RegExp) =>
    page.locator('[role=dialog]').getByRole('button', { name }).first().click();
  const openRequest = (page: Page, path: string) =>
    page.locator(`[id$="${path}"] button`, { hasText: 'Test Request' }).first().click();

  /** Sends the example request of an operation and returns the response and its displayed text; the dialog stays open. */
  async function send(page: Page, path: string) {
    await openRequest(page, path);
    const received = page.waitForResponse((response) => new URL(response.url()).pathname === path);
    await inDialog(page, /^Send/);
    const response = await received;
    const shown = page.locator('.cm-content').last();
    await shown.getByText('{').first().waitFor();
    return { status: response.status(), body: await response.json(), shown: await shown.textContent() };
  }

  /** Finds violations with every part of a response open, in the dialog of a request and in the search. */
  async function walkViolations(page: Page) {
    for (const status of ['200', '422', '503'])
      await page.locator(`button[id$="POST${save}.responses.${status}"]`).click({ position: { x: 8, y: 8 } });
    await page.getByRole('link', { name: 'How to fix it' }).first().waitFor();
    const found = await findViolations(page);
    const overhangs = [await overhang(page)];
    const saved = await send(page, save);
    found.push(...(await findViolations(page)));
    await show(page, dark);
    found.push(...(await findViolations(page, '[role=dialog]')));
    await inDialog(page, 'Close Client');
    found.push(...(await findViolations(page)));
    overhangs.push(await overhang(page));
    await page.keyboard.press('Control+k');
    const search = page.getByRole('combobox', { name: 'Enter search query' });
    await search.waitFor();
    found.push(...(await findViolations(page, '[role=dialog]')));
    await show(page, light);
    found.push(...(await findViolations(page, '[role=dialog]')));
    await page.keyboard.press('Escape');
    await search.waitFor({ state: 'hidden' });
    return { found, saved, overhangs };
  }

  /** The token of the next request. */
  async function typeToken(page: Page, path: string, typed: string) {
    // The response does not matter here.
    await page.route(`**${path}`, (route) => route.fulfill({ json: {} }));
    await page.evaluate(`location.hash = 'tag/user-object/GET${path}'`);
    await openRequest(page, path);
    await page.locator('[role=dialog]').getByLabel('Bearer Token').fill(typed);
    const sent = page.waitForRequest((request) => new URL(request.url()).pathname === path);
    await inDialog(page, /^Send/);
    const token = await (await sent).headerValue('authorization');
    await inDialog(page, 'Close Client');
    return token;
  }

  /** One walk over one page, shared by the tests because it is slow. Steps that break the page come last. */
  const walk = lazy(async () => {
    const { page, ofOtherHosts, complaints } = await openPage(`${address}/swagger#tag/profile/POST${save}`);
    const { found, saved, overhangs } = await walkViolations(page);
    const typed = await typeToken(page, '/v2/private/user', 'typed-by-hand');

    await show(page, dark);
    await page.locator('.token button', { hasText: 'demo-manager' }).click();
    await page.evaluate(`location.hash = 'tag/sales/GET${glance}'`);
    const glanced = await send(page, glance);
    await inDialog(page, 'Close Client');
    const barTop = await page.evaluate(`document.querySelector('.token').getBoundingClientRect().top`);
    overhangs.push(await overhang(page));
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
    const clicks = { countClicked, ownViolations, ofOtherHosts: ofOtherHosts(), hasAllStyles, isIntruded };
    return { found, saved, overhangs, typed, barTop, glanced, complaintsOfUse, clicks };
  });

  test('sends requests with demo tokens or a typed one, shows the responses and fits a phone', async () => {
    const { saved, glanced, overhangs, complaintsOfUse, barTop, typed } = await walk();
    expect(saved).toMatchObject({ status: 200, body: { user: { id: 'demo-user', profile: { firstName: 'Ada' } } } });
    expect(saved.shown).toContain('"id": "demo-user"');
    expect(typed).toBe('Bearer typed-by-hand');
    // The role shows that the selected demo token replaces the typed one.
    expect(glanced).toMatchObject({ status: 200, body: { data: { teamGlance: {}, managerReport: {} } } });
    expect(glanced.shown).toContain('"teamGlance"');
    // The token bar stays visible at an operation far down the page.
    expect(barTop).toBe(0);
    expect(overhangs).toEqual([0, 0, 0]);
    expect(complaintsOfUse).toEqual([]);
  }, 120_000);

  test('violates no CSP on clicks, contacts no other host and blocks injected scripts', async () => {
    const { countClicked, ...others } = (await walk()).clicks;
    expect(countClicked).toBeGreaterThan(20);
    expect(others).toEqual({ ownViolations: [], ofOtherHosts: [], hasAllStyles: true, isIntruded: undefined });
  }, 120_000);

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
    ['landmark-no-duplicate-main', /^<main /],
    ['landmark-unique', /^<section aria-label="Notifications|^<div [^>]*response-card/],
    // The search field has the role `combobox` without `aria-expanded` until there is a result.
    ['aria-required-attr', /^<input [^>]*aria-label="Enter search query"/],
  ] as const;

  test('has the known accessibility violations of Scalar and no other, light and dark, on a desktop and a phone', async () => {
    const { found } = await walk();
    const isKnown = ([rule, html]: (typeof found)[number], [knownRule, element]: (typeof known)[number]) =>
      rule === knownRule && element.test(html);
    expect(found.filter((violation) => !known.some((each) => isKnown(violation, each)))).toEqual([]);
    expect(known.filter((each) => !found.some((violation) => isKnown(violation, each)))).toEqual([]);
  }, 120_000);
});

test.skipIf(program === null)('problem pages link to each other, fit the window and violate no rule', async () => {
  const { page, complaints } = await openPage(`${address}/problems/rate-limited`);
  expect(await page.title()).toBe('Too many requests');
  for (const path of ['', '/invalid-input', '/idempotency-key-reused']) {
    await page.goto(`${address}/problems${path}`);
    for (const appearance of appearances) {
      await show(page, appearance);
      expect([path, await overhang(page), await findViolations(page)]).toEqual([path, 0, []]);
      expect(await page.evaluate('getComputedStyle(document.body).maxWidth')).toBe('640px');
    }
  }
  await page.getByRole('link', { name: 'All problems' }).click();
  await page.getByRole('link', { name: 'carrier-declined' }).click();
  expect(await page.title()).toBe('Application declined');
  expect(complaints).toEqual([]);
});

describe.skipIf(program === null)('demo page', () => {
  const filled = (page: Page) => page.waitForSelector('html[data-state=filled]');
  const textsOf = (page: Page, selector: string) => page.locator(selector).allTextContents();
  const textsWithin = (page: Page, outer: string, inner: string) =>
    page
      .locator(outer)
      .evaluateAll(
        (all, inner) =>
          all.map((each) => [...each.querySelectorAll(inner)].map(({ textContent }) => textContent ?? '')),
        inner,
      );
  const toNumber = (text: string) => Number(text.replace('−', '-'));
  const selectMonth = (page: Page, month: string) => page.getByLabel('Month', { exact: true }).selectOption(month);

  /** Expects the period, the chart and the table of a month to equal the monthly glance. */
  async function expectGlance(page: Page, month: string): Promise<void> {
    const { body } = await call('GET', `/v2/private/user/salesManager/monthly-glance?month=${month}`, {
      as: 'demo-manager',
      roles: ['salesManager'],
    });
    const { managerReport, counselorsReport, teamGlance, period } = v.parse(MonthlyGlanceBody, body).data;
    await page.locator('.chart .total').first().waitFor();
    const periodText = `${month} in UTC: from ${period.from} until before ${period.until}.`;
    expect(await page.locator('.period').textContent()).toBe(periodText);
    const people = [managerReport.glance, ...counselorsReport.map(({ glance }) => glance)];
    const totals = people.map((person) => Object.values(person).reduce((sum, count) => sum + count, 0));
    expect(await textsOf(page, '.chart .total')).toEqual(totals.map(String));
    const counts = people.flatMap((person) => Object.values(person).filter((count) => count > 0));
    expect(await page.locator('.chart rect').count()).toBe(counts.length);
    expect((await textsOf(page, '.chart .count')).map(Number).sort()).toEqual(counts.sort());
    const [, ...ofCounselors] = totals;
    for (const [index, { name }] of counselorsReport.entries())
      await page.getByRole('img', { name: `${name.first} ${name.last} ${ofCounselors[index]}` }).waitFor();
    const columns = ['cemetryPlans', 'qoutes', 'qoutesAndContract', 'applications', 'monthlyPlan', 'semiAnnualPlan'];
    const row = (name: string, glance: object, earnings: number) => {
      const counts = new Map(Object.entries(glance));
      const cells = columns.map((column) => String(counts.get(column) ?? '–'));
      return [name, ...cells, earnings.toLocaleString('en-US', { minimumFractionDigits: 2 })];
    };
    expect(await textsWithin(page, 'tbody tr', 'th, td')).toEqual([
      row('Team', teamGlance.glance, teamGlance.totalMonthlyEarnings),
      row('The manager', managerReport.glance, managerReport.totalEarnings),
      ...counselorsReport.map((each) =>
        row(`${each.name.first} ${each.name.last}`, each.glance, each.totalMonthlyEarnings),
      ),
    ]);
  }

  /** Expects the products, their scores and the points of their rules to equal the preview. */
  async function expectMatches(page: Page): Promise<void> {
    const { body } = await call('POST', '/v2/private/engine/preview', { as: 'demo-user', body: {} });
    const { bestMatch, remainingMatches } = v.parse(PreviewBody, body).data.matches;
    const all = [...(bestMatch === null ? [] : [bestMatch]), ...remainingMatches];
    expect(await textsOf(page, '.matches h3')).toEqual(all.map(({ productName }) => productName));
    expect((await textsOf(page, '.matches .score')).map(toNumber)).toEqual(all.map(({ score }) => score));
    const shown = await textsWithin(page, '.matches > li', '.points');
    for (const [index, { explanation, score }] of all.entries()) {
      const points = shown[index]?.map(toNumber) ?? [];
      const met = explanation?.rules.filter(({ outcome }) => outcome === 'met') ?? [];
      const penalty = explanation?.penalty === 0 ? [] : [explanation?.penalty ?? 0];
      expect(points).toEqual([...met.map(({ points }) => points), ...penalty]);
      expect(points.reduce((sum, count) => sum + count, 0)).toBeCloseTo(score, 2);
    }
  }

  test('shows the data of the API accessibly and contacts no other host', async () => {
    const { page, ofOtherHosts, complaints } = await openPage(`${address}/`);
    await filled(page);
    await expectGlance(page, '2026-02');

    const isLate = Promise.withResolvers<void>();
    await page.route('**/monthly-glance?month=2025-09', async (route) => {
      await isLate.promise;
      await route.continue().catch(() => undefined);
    });
    const isAborted = page.waitForEvent('requestfailed', (request) => request.url().endsWith('month=2025-09'));
    await selectMonth(page, '2025-09');
    await selectMonth(page, '2025-05');
    await page.getByText('The same in numbers, May 2025').waitFor();
    await isAborted;
    isLate.resolve();
    await expectGlance(page, '2025-05');

    await expectMatches(page);
    const { body } = await call('GET', '/v2/private/user', { as: 'demo-user' });
    const { appNumber } = Object(body).user.purchase.partner;
    expect(await page.locator('#matched').textContent()).toContain(`Application ${appNumber} at the carrier`);

    await press(page, 'Copy the manager’s token');
    await page.getByText(/The token of demo-manager is (copied|selected)/).waitFor();
    for (const appearance of appearances) {
      await show(page, appearance);
      expect(await overhang(page)).toBeLessThanOrEqual(0);
      expect(await findViolations(page)).toEqual([]);
    }
    const table = page.locator('.scrolling').first();
    expect(await table.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)).toBe(0);
    expect(complaints).toEqual([]);
    expect(ofOtherHosts()).toEqual([]);
  });

  test('previews example answers without saving and shows errors of the API', async () => {
    const { address, db, call } = await listenWithDemoData();
    await db.$client.execute('DELETE FROM activities');
    const { page, complaints } = await openPage(`${address}/`);
    await filled(page);
    await page.getByText('these answers are tried and not saved').waitFor();
    expect(await page.locator('.matches > li').count()).toBe(14);
    await page.getByText('Nothing was sold in this month.').waitFor();
    expect(complaints).toEqual([]);
    expect((await call('GET', '/v2/private/user', { as: 'demo-user' })).status).toBe(404);

    await db.$client.execute('ALTER TABLE activities RENAME TO away');
    await selectMonth(page, '2025-10');
    await page.getByRole('alert').getByText('Database unavailable').waitFor();
  });
});

describe.skipIf(program === null)('example page', () => {
  test('signs in, shows validation errors at their fields, saves, matches and shows other errors', async () => {
    const pagePort = await freePort();
    const origin = `http://127.0.0.1:${pagePort}`;
    const config = { ...testConfig, corsOrigins: [origin] };
    const service = await listenWithDemoData({ config });
    const server = Bun.spawn([process.execPath, 'test/examples/serve-page.ts'], {
      cwd: await examplesFolder(),
      env: { PATH: process.env.PATH, PORT: String(pagePort), BASE: service.address },
      stdout: 'pipe',
    });
    atEnd(() => server.kill());
    const { value } = await server.stdout.pipeThrough(new TextDecoderStream()).getReader().read();
    expect(value).toBe(`${origin} calls ${service.address}\n`);

    const { page, requests, complaints } = await openPage(origin, dark);
    const field = (label: string) => page.getByLabel(label, { exact: true });
    const notice = page.getByRole('alert');
    const stored = () => service.call('GET', '/v2/private/user', { as: 'on-a-page' });

    await field('Token').fill('unknown');
    await press(page, 'Sign in');
    await notice.getByText('The token is not valid').waitFor();
    expect(await notice.getByRole('link').getAttribute('href')).toBe(`${service.address}/problems/unauthenticated`);
    expect(await field('First name').isVisible()).toBe(false);

    await field('Token').fill(await tokenOf('on-a-page'));
    await press(page, 'Sign in');
    await field('First name').fill('Ada');
    expect(await field('Token').isVisible()).toBe(false);
    expect(await notice.textContent()).toBe('');
    await field('State').fill('VA');
    await field('Height in cm').fill('20');
    await press(page, 'Save');
    const fieldError = page.getByText('This must be at least 50.');
    await fieldError.waitFor();
    expect(await field('Height in cm').getAttribute('aria-describedby')).toBe(await fieldError.getAttribute('id'));
    expect(await field('Height in cm').evaluate((input) => input === document.activeElement)).toBe(true);
    expect((await stored()).status).toBe(404);

    await field('Height in cm').fill('165');
    await press(page, 'Save');
    await page.getByText('Saved', { exact: true }).waitFor();
    expect(await page.locator('[aria-invalid]').count()).toBe(0);
    const profile = { firstName: 'Ada', state: 'VA', heightCm: 165 };
    expect((await stored()).body).toMatchObject({ user: { profile } });

    await service.call('POST', '/v2/private/user/profile', { as: 'on-a-page', body: { firstName: 'Augusta' } });
    await field('Last name').fill('Byron');
    await press(page, 'Save');
    await notice.getByText('The record was changed elsewhere').waitFor();
    expect(await field('First name').inputValue()).toBe('Augusta');
    expect((await stored()).text).not.toContain('Byron');

    await press(page, 'Match products');
    await page.locator('#matches li li').first().waitFor({ state: 'attached' });
    const { bestMatch, remainingMatches } = Object((await stored()).body).user.insurance.matches;
    const products: { productName: string; score: number }[] = [bestMatch, ...remainingMatches];
    const lines = products.map(({ productName, score }) => `${productName}: ${score}`);
    expect(await page.locator('#matches summary').allTextContents()).toEqual(lines);
    expect(await page.locator('#record').textContent()).toContain(bestMatch.productName);
    await page.locator('#matches summary').first().click();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(phone.width);

    await service.app.stop(true);
    await press(page, 'Save');
    await notice.getByText('The service does not respond').waitFor();
    const verifyToken = () => Promise.reject(new AppError('unauthenticated'));
    await listenWithDemoData({ config, verifyToken }, { port: Number(new URL(service.address).port) });
    await press(page, 'Save');
    await notice.getByText('Sign in again').waitFor();
    expect(await field('Token').isVisible()).toBe(true);
    expect(await page.content()).not.toMatch(/Augusta|Hybrid Life/);
    expect(await field('First name').inputValue()).toBe('');

    const origins = requests.filter((url) => !url.startsWith('data:')).map((url) => new URL(url).origin);
    expect([...new Set(origins)].sort()).toEqual([origin, service.address].sort());
    // Chromium reports each error response, which this test causes on purpose.
    expect(complaints.filter((complaint) => !complaint.startsWith('Failed to load resource'))).toEqual([]);
  });
});

describe.skipIf(program === null)('client in Chromium, on a page of another host', async () => {
  scripts.set('/client.js', await Bun.file(join(await builtClient(), 'client.js')).text());
  scripts.set('/journey.js', await bundleForBrowser(join(import.meta.dirname, '../client/journey.ts'), 'esm'));
  const goJourney = async (page: Page, id: string) =>
    page.evaluate(
      async ({ address, token }) => {
        const load = (path: string) => import(path);
        return (await load('/journey.js')).journey(await load('/client.js'), address, token);
      },
      { address, token: await tokenOf(id) },
    );

  test('completes the journey without newer browser features', async () => {
    const { page } = await openPage(other.url.origin);
    await page.evaluate(makeOlder);
    expect(await goJourney(page, 'in-older-chromium')).toEqual(journeyOutcome);
  });

  test('completes the journey alone and with the instrumentation of Sentry, which traces its requests', async () => {
    const entry = join(temporaryFolder(), 'sentry.ts');
    const sentry = Bun.resolveSync('@sentry/browser', import.meta.dirname);
    await Bun.write(
      entry,
      `import { browserTracingIntegration, createTransport, init } from '${sentry}';
       init({
         dsn: 'http://key@127.0.0.1:1/1',
         integrations: [browserTracingIntegration()],
         tracesSampleRate: 1,
         tracePropagationTargets: ['${address}'],
         transport: (options) => createTransport(options, async () => ({ statusCode: 200 })),
       });`,
    );
    scripts.set('/sentry.js', await bundleForBrowser(entry, 'esm'));
    const { page } = await openPage(other.url.origin);
    const traced = new Set<string>();
    page.on('request', (request) => {
      const { 'sentry-trace': trace, baggage } = request.headers();
      if (trace !== undefined && baggage !== undefined) traced.add(new URL(request.url()).pathname);
    });
    expect(await goJourney(page, 'in-chromium')).toEqual(journeyOutcome);
    expect(traced.size).toBe(0);
    await page.evaluate(`import('/sentry.js')`);
    expect(await goJourney(page, 'beside-sentry')).toEqual(journeyOutcome);
    expect(traced).toContain('/v2/private/user/profile');
  });

  test('sends no cookie and follows no redirect on its own host', async () => {
    const { page } = await openPage(other.url.origin);
    const results = await page.evaluate(async () => {
      // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API does not exist on plain http pages
      document.cookie = 'session=kept';
      await fetch('/here/by-fetch');
      const { createClient } = await import(String('/client.js'));
      const read = (baseUrl: string) => createClient({ baseUrl, token: 'token', attempts: 1 }).getUser();
      return [(await read('/here')).error?.slug, (await read('/moved')).error?.slug];
    });
    expect(results).toEqual([undefined, 'network-failure']);
    expect(ownHostRequests).toEqual([
      ['/here/by-fetch', 'session=kept'],
      ['/here/v2/private/user', null],
      ['/moved/v2/private/user', null],
    ]);
  });
});
