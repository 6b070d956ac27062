import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import * as v from 'valibot';
import { demoAnswers } from '../../src/demo/page';
import type { AppDeps } from '../../src/deps';
import { AppError } from '../../src/errors';
import { PreviewBody } from '../../src/modules/matching/routes';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { seedDemo } from '../../src/seed';
import { lazy } from '../../src/shared/async';
import { journeyOutcome, makeOlder } from '../client/journey';
import { createTestApp, startSandbox, testConfig, testSecret, testToken } from '../support/app';
import { builtClient, bundleForBrowser, examplesFolder } from '../support/artifacts';
import { lanAddress } from '../support/http';
import { type Service, startService } from '../support/processes';
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
type Appearance = (typeof appearances)[number];

const quietFlags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
];
const browser = lazy(async (): Promise<Browser> => {
  const args = ['--no-sandbox', '--disable-quic', ...quietFlags];
  const started = await chromium.launch({ executablePath: program ?? '', args });
  atEnd(() => started.close());
  return started;
});

/** Opens an address in a new page that records its requests and complaints. */
async function openPage(address: string, { viewport, colorScheme }: Partial<Appearance> = {}) {
  const options = { viewport: viewport ?? desktop, colorScheme: colorScheme ?? 'light' };
  const page = await (await browser()).newPage(options);
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

const axe = lazy(() => Bun.file(fileURLToPath(import.meta.resolve('axe-core'))).text());

/** The violations that axe finds: for each element, the rule and the element's HTML. */
async function findViolations(page: Page): Promise<(readonly [rule: string, html: string])[]> {
  // The CSP of the pages blocks scripts that the page itself would load.
  const session = await page.context().newCDPSession(page);
  await session.send('Runtime.evaluate', { expression: await axe() });
  // An element has too little contrast while it fades in.
  await page.waitForFunction(() =>
    document.getAnimations().every(({ playState, effect }) => {
      const isEndless = effect?.getComputedTiming().endTime === Number.POSITIVE_INFINITY;
      return playState !== 'running' || isEndless;
    }),
  );
  const { violations }: AxeResults = await page.evaluate(`axe.run('html', { resultTypes: ['violations'] })`);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => [id, html] as const));
}

const overhang = (page: Page) => page.evaluate('document.documentElement.scrollWidth - innerWidth');
const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name }).first().click();

const now = new Date('2026-01-15T12:00:00Z');
const tokenOf = (id: string, roles: string[] = []) => testToken({ id, roles, now });
const demoTokens = {
  'demo-user': await tokenOf('demo-user'),
  'demo-manager': await tokenOf('demo-manager', ['salesManager']),
};

/** A service in this process with demo data, at a loopback address. */
async function listen(overrides: Partial<AppDeps> = {}, port = 0) {
  const testApp = await createTestApp({ demoTokens, clock: () => now, ...overrides });
  testApp.now = now;
  await seedDemo(testApp.db, now);
  testApp.app.listen({ port, hostname: '127.0.0.1' });
  const stop = lazy(() => testApp.app.stop(true));
  atEnd(stop);
  return { ...testApp, stop, address: `http://127.0.0.1:${testApp.app.server?.port}` };
}

/** The files of a page on another origin, by path. */
const otherPage = new Map<string, string>();
/** Requests to the page's own host for other paths, with their cookies. */
const ownHostRequests: [path: string, cookie: string | null][] = [];
const other = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch(request) {
    const { pathname } = new URL(request.url);
    if (/^\/(?:here|moved|elsewhere)/.test(pathname)) {
      ownHostRequests.push([pathname, request.headers.get('cookie')]);
      return pathname.startsWith('/moved') ? Response.redirect('/elsewhere') : Response.json({});
    }
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html';
    return new Response(otherPage.get(pathname) ?? '<!doctype html>', { headers: { 'content-type': type } });
  },
});
atEnd(() => other.stop(true));

// Each journey causes carrier failures, so the circuit breaker must not open.
const carrier = (await startSandbox(() => now)).carrier({ breakerFailures: 1000 });
const { address, call } = await listen({ carrier, config: { ...testConfig, corsOrigins: [other.url.origin] } });
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
  const profile = '/v2/private/user/profile';
  const operation = (page: Page, path: string) =>
    page.getByRole('button', { name: new RegExp(`^Test Request.*${path}\\)?$`) });
  const closeDialog = (page: Page) => press(page, 'Close Client');
  const open = (appearance: Appearance) => openPage(`${address}/swagger#tag/profile/POST${profile}`, appearance);

  /** Sends the example request of an operation and returns the response and its displayed text; the dialog stays open. */
  async function send(page: Page, path: string) {
    await operation(page, path).click();
    const received = page.waitForResponse((response) => new URL(response.url()).pathname === path);
    await press(page, /^Send/);
    const response = await received;
    const shown = page.locator('.cm-content').last();
    await shown.getByText('{').first().waitFor();
    return { status: response.status(), body: await response.json(), shown: await shown.textContent() };
  }

  /** Accessibility violations with every part of a response open, in the dialog of a request and in the search. */
  async function walkViolations(page: Page) {
    await operation(page, profile).waitFor();
    for (const status of ['200', '422', '503'])
      await page.locator(`button[id$="POST${profile}.responses.${status}"]`).click({ position: { x: 8, y: 8 } });
    await page.getByRole('link', { name: 'How to fix it' }).first().waitFor();
    const found = await findViolations(page);
    const saved = await send(page, profile);
    found.push(...(await findViolations(page)));
    await closeDialog(page);
    await page.keyboard.press('Control+k');
    const search = page.getByRole('combobox', { name: 'Enter search query' });
    await search.waitFor();
    found.push(...(await findViolations(page)));
    await page.keyboard.press('Escape');
    await search.waitFor({ state: 'hidden' });
    return { found, saved };
  }

  /** The subject of the token of the next request, or the token itself if it is no JWT. */
  async function senderOf(page: Page) {
    await operation(page, '/v2/private/user').click();
    const sent = page.waitForRequest((request) => new URL(request.url()).pathname === '/v2/private/user');
    await press(page, /^Send/);
    const token = (await (await sent).headerValue('authorization'))?.replace('Bearer ', '') ?? '';
    await closeDialog(page);
    const [, payload] = token.split('.');
    return payload === undefined ? token : JSON.parse(Buffer.from(payload, 'base64url').toString()).sub;
  }

  /** One walk over one page, shared by the tests because it is slow. Steps that break the page come last. */
  const walk = lazy(async () => {
    const { page, ofOtherHosts, complaints } = await open({ viewport: desktop, colorScheme: 'light' });
    const { found, saved } = await walkViolations(page);
    const overhangs = [await overhang(page)];

    await page.evaluate(`location.hash = 'tag/user-object/GET/v2/private/user'`);
    await operation(page, '/v2/private/user').click();
    await page.getByRole('dialog').getByLabel('Bearer Token').fill('typed-by-hand');
    await closeDialog(page);
    // The responses do not matter here.
    await page.route('**/v2/private/user', (route) => route.fulfill({ json: {} }));
    const senders = [await senderOf(page)];
    await press(page, 'demo-user');
    senders.push(await senderOf(page));

    await page.setViewportSize(phone);
    await press(page, 'demo-manager');
    await page.evaluate(`location.hash = 'tag/sales/GET/v2/private/user/salesManager/monthly-glance'`);
    const barTop = await page.evaluate(`document.querySelector('.token').getBoundingClientRect().top`);
    const glance = await send(page, '/v2/private/user/salesManager/monthly-glance');
    await closeDialog(page);
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
    return { found, saved, overhangs, senders, barTop, glance, complaintsOfUse, clicks };
  });

  test(
    'sends requests with demo tokens, shows the responses and fits a phone',
    async () => {
      const { saved, glance, overhangs, complaintsOfUse, barTop } = await walk();
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
    'sends a typed token until a demo token is selected again',
    async () => expect((await walk()).senders).toEqual(['typed-by-hand', 'demo-user']),
    hangTimeoutMs,
  );

  test(
    'violates no CSP on clicks, contacts no other host and blocks injected scripts',
    async () => {
      const { countClicked, ...others } = (await walk()).clicks;
      expect(countClicked).toBeGreaterThan(20);
      expect(others).toEqual({ ownViolations: [], ofOtherHosts: [], hasAllStyles: true, isIntruded: undefined });
    },
    hangTimeoutMs,
  );

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

  test(
    'has the known accessibility violations of Scalar and no other, in light and dark, on a desktop and a phone',
    async () => {
      const { page } = await open({ viewport: phone, colorScheme: 'dark' });
      const found = [...(await walk()).found, ...(await walkViolations(page)).found];
      const isKnown = ([rule, html]: (typeof found)[number], [knownRule, element]: (typeof known)[number]) =>
        rule === knownRule && element.test(html);
      expect(found.filter((violation) => !known.some((each) => isKnown(violation, each)))).toEqual([]);
      expect(known.filter((each) => !found.some((violation) => isKnown(violation, each)))).toEqual([]);
    },
    hangTimeoutMs,
  );
});

test('documentation CSP denies by default and allows scripts only with the nonce of the response', async () => {
  const policies = await Promise.all(
    ['/swagger', '/swagger'].map(async (path) => {
      const { headers, text } = await call('GET', path);
      const policy = headers.get('content-security-policy') ?? '';
      expect(policy).toStartWith("default-src 'none'; ");
      expect(policy.replace("style-src 'unsafe-inline'", '')).not.toMatch(/unsafe|\*|https?:/);
      const nonce = /'nonce-([\w+/=]{20,})'/.exec(policy)?.[1] ?? '';
      expect(text.split(`nonce="${nonce}"`).length - 1).toBe(text.match(/<script\b/g)?.length ?? 0);
      return policy;
    }),
  );
  expect(policies[0]).not.toBe(policies[1]);
});

describe.skipIf(program === null)('problem pages', () => {
  test.each(appearances)(
    'violate no CSP and no accessibility rule, link to each other and fit the window, $colorScheme, $viewport.width px',
    async (appearance) => {
      const { page, complaints } = await openPage(`${address}/problems/rate-limited`, appearance);
      expect(await page.title()).toBe('Too many requests');
      expect(await page.evaluate('getComputedStyle(document.body).maxWidth')).toBe('640px');
      for (const path of ['', '/invalid-input', '/idempotency-key-reused']) {
        await page.goto(`${address}/problems${path}`);
        expect([path, await overhang(page), await findViolations(page)]).toEqual([path, 0, []]);
      }
      await page.getByRole('link', { name: 'All problems' }).click();
      await page.getByRole('link', { name: 'carrier-declined' }).click();
      expect(await page.title()).toBe('Application declined');
      expect(complaints).toEqual([]);
    },
    hangTimeoutMs,
  );
});

describe.skipIf(program === null)('demo page', () => {
  const filled = (page: Page) => page.waitForSelector('html[data-state=filled]');
  const textsOf = (page: Page, selector: string) => page.locator(selector).allTextContents();
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
    for (const [index, { name }] of counselorsReport.entries()) {
      const image = page.getByRole('img', { name: `${name.first} ${name.last} ${totals[index + 1]}` });
      expect(await image.count()).toBe(1);
    }
    type Glance = (typeof people)[number] & { monthlyPlan?: number; semiAnnualPlan?: number };
    const row = (name: string, glance: Glance, earnings: number) => {
      const { cemetryPlans, qoutes, qoutesAndContract, applications, monthlyPlan, semiAnnualPlan } = glance;
      const cells = [cemetryPlans, qoutes, qoutesAndContract, applications, monthlyPlan ?? '–', semiAnnualPlan ?? '–'];
      return [name, ...cells.map(String), earnings.toLocaleString('en-US', { minimumFractionDigits: 2 })];
    };
    const rows = (await page.locator('tbody tr').all()).map((each) => each.locator('th, td').allTextContents());
    expect(await Promise.all(rows)).toEqual([
      row('Team', teamGlance.glance, teamGlance.totalMonthlyEarnings),
      row('The manager', managerReport.glance, managerReport.totalEarnings),
      ...counselorsReport.map(({ name, glance, totalMonthlyEarnings }) =>
        row(`${name.first} ${name.last}`, glance, totalMonthlyEarnings),
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
    for (const [index, { explanation, score }] of all.entries()) {
      const points = (await textsOf(page, `.matches > li:nth-child(${index + 1}) .points`)).map(toNumber);
      const met = explanation?.rules.filter(({ outcome }) => outcome === 'met') ?? [];
      const penalty = explanation?.penalty === 0 ? [] : [explanation?.penalty ?? 0];
      expect(points).toEqual([...met.map(({ points }) => points), ...penalty]);
      expect(points.reduce((sum, count) => sum + count, 0)).toBeCloseTo(score, 2);
    }
  }

  test(
    'shows the data of the API accessibly and contacts no other host',
    async () => {
      const { page, ofOtherHosts, complaints } = await openPage(`${address}/`);
      await filled(page);
      await expectGlance(page, '2025-12');
      await selectMonth(page, '2025-07');
      await page.getByText('The same in numbers, July 2025').waitFor();
      await expectGlance(page, '2025-07');

      const isLate = Promise.withResolvers<void>();
      await page.route('**/monthly-glance?month=2025-03', async (route) => {
        await isLate.promise;
        await route.continue().catch(() => undefined);
      });
      const isAborted = page.waitForEvent('requestfailed', (request) => request.url().endsWith('month=2025-03'));
      await selectMonth(page, '2025-03');
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
      for (const { viewport, colorScheme } of appearances) {
        await page.setViewportSize(viewport);
        await page.emulateMedia({ colorScheme });
        expect(await overhang(page)).toBeLessThanOrEqual(0);
        expect(await findViolations(page)).toEqual([]);
      }
      const sizes = page
        .locator('.scrolling')
        .first()
        .evaluate(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth]);
      expect(new Set(await sizes).size).toBe(1);
      expect(complaints).toEqual([]);
      expect(ofOtherHosts()).toEqual([]);
    },
    hangTimeoutMs,
  );

  test(
    'previews example answers without saving and shows errors of the API',
    async () => {
      const { address, db, call } = await listen();
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
    },
    hangTimeoutMs,
  );
});

describe('demo page of a started service', () => {
  const printedPage = (service: Service) => /^ +page +(\S+)$/m.exec(service.output())?.[1];
  const statusOf = async (url: string) => (await fetch(url)).status;

  test('has a working address in the start output', async () => {
    const service = await startService({ environment: { HOST: 'localhost' } });
    expect(await statusOf(printedPage(service) ?? '')).toBe(200);
  });

  test('does not exist, nor in the start output, without demo tokens', async () => {
    const service = await startService({ environment: { AUTH_SECRET: testSecret } });
    expect([await statusOf(`${service.address}/`), printedPage(service)]).toEqual([404, undefined]);
  });

  test.skipIf(lanAddress === undefined)('does not exist under a network address, nor in the start output', async () => {
    const alone = await startService({ environment: { HOST: lanAddress ?? '' } });
    expect([await statusOf(`${alone.address}/`), printedPage(alone)]).toEqual([404, undefined]);

    const open = await startService({ environment: { HOST: '0.0.0.0', PUBLIC_URL: 'http://planning.example' } });
    const { port } = new URL(printedPage(open) ?? '');
    const token = await open.token();
    const hasToken = async (address: string, host: string) => {
      const pages = [`http://${address}:${port}/`, `http://${address}:${port}/swagger`];
      const responses = await Promise.all(pages.map((page) => fetch(page, { headers: { host } })));
      return Promise.all(responses.map(async (response) => (await response.text()).includes(token)));
    };
    for (const host of ['planning.example', '127.0.0.1', `localhost:${port}`]) {
      expect([host, await hasToken('127.0.0.1', host)]).toEqual([host, [true, true]]);
      expect([host, await hasToken(lanAddress ?? '', host)]).toEqual([host, [false, false]]);
    }
  });
});

describe.skipIf(program === null)('example page', () => {
  test(
    'signs in, shows validation errors at their fields, saves, matches and shows other errors',
    async () => {
      const pagePort = await freePort();
      const origin = `http://127.0.0.1:${pagePort}`;
      const config = { ...testConfig, corsOrigins: [origin] };
      const service = await listen({ config });
      const server = Bun.spawn([process.execPath, 'test/examples/serve-page.ts'], {
        cwd: await examplesFolder(),
        env: { PATH: process.env.PATH, PORT: String(pagePort), BASE: service.address },
        stdout: 'pipe',
      });
      atEnd(() => server.kill());
      const { value } = await server.stdout.pipeThrough(new TextDecoderStream()).getReader().read();
      expect(value).toBe(`${origin} calls ${service.address}\n`);

      const { page, requests, complaints } = await openPage(origin, { viewport: phone });
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

      await service.stop();
      await press(page, 'Save');
      await notice.getByText('The service does not respond').waitFor();
      const verifyToken = () => Promise.reject(new AppError('unauthenticated'));
      await listen({ config, verifyToken }, Number(new URL(service.address).port));
      await press(page, 'Save');
      await notice.getByText('Sign in again').waitFor();
      expect(await field('Token').isVisible()).toBe(true);
      expect(await page.content()).not.toMatch(/Augusta|Hybrid Life/);
      expect(await field('First name').inputValue()).toBe('');

      const origins = requests.filter((url) => !url.startsWith('data:')).map((url) => new URL(url).origin);
      expect([...new Set(origins)].sort()).toEqual([origin, service.address].sort());
      // Chromium reports each error response, which this test causes on purpose.
      expect(complaints.filter((complaint) => !complaint.startsWith('Failed to load resource'))).toEqual([]);
    },
    hangTimeoutMs,
  );
});

describe.skipIf(program === null)('client in Chromium, on a page of another host', async () => {
  otherPage.set('/client.js', await Bun.file(join(await builtClient(), 'client.js')).text());
  otherPage.set('/journey.js', await bundleForBrowser(join(import.meta.dirname, '../client/journey.ts'), 'esm'));
  const openOther = async (...first: (() => void)[]) => {
    const page = await (await browser()).newPage();
    for (const script of first) await page.addInitScript(script);
    await page.goto(other.url.origin);
    return page;
  };
  const goJourney = async (page: Page, id: string, script?: string) =>
    page.evaluate(
      async ({ address, token, script }) => {
        const load = (path: string) => import(path);
        if (script !== undefined) await load(script);
        return (await load('/journey.js')).journey(await load('/client.js'), address, token);
      },
      { address, token: await tokenOf(id), script },
    );

  test('completes the journey', async () => {
    expect(await goJourney(await openOther(), 'in-chromium')).toEqual(journeyOutcome);
  });

  test('completes the journey without newer browser features', async () => {
    expect(await goJourney(await openOther(makeOlder), 'in-older-chromium')).toEqual(journeyOutcome);
  });

  test('completes the journey with the instrumentation of Sentry, which traces its requests', async () => {
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
    otherPage.set('/sentry.js', await bundleForBrowser(entry, 'esm'));
    const page = await openOther();
    const traced: string[] = [];
    page.on('request', (request) => {
      const { 'sentry-trace': trace, baggage } = request.headers();
      if (trace !== undefined && baggage !== undefined) traced.push(new URL(request.url()).pathname);
    });
    expect(await goJourney(page, 'beside-sentry', '/sentry.js')).toEqual(journeyOutcome);
    expect(traced).toContain('/v2/private/user/profile');
  });

  test('sends no cookie and follows no redirect on its own host', async () => {
    const page = await openOther();
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
