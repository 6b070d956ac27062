import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import * as v from 'valibot';
import { PreviewBody } from '../../src/modules/matching/routes';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { seedDemo } from '../../src/seed';
import { createTestApp, testConfig, testSecret, testToken } from '../support/app';
import { findViolations, noBrowser, openInBrowser } from '../support/browser';
import { createRawClient, lanAddress } from '../support/http';
import { type Service, startService } from '../support/processes';
import { atEnd, temporaryFolder } from '../support/resources';

if (noBrowser !== undefined) console.warn(`Browser tests of the demo page skipped: ${noBrowser}.`);

const appearances = [
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 1280, height: 900, colorScheme: 'dark' },
] as const;
const hangTimeoutMs = 120_000;

/** A service with the demo page in this process, with a fresh database and a frozen clock. */
async function listen(publicUrl?: string) {
  const now = new Date('2026-03-10T12:00:00Z');
  const demoTokens = {
    'demo-user': await testToken({ id: 'demo-user', now }),
    'demo-manager': await testToken({ id: 'demo-manager', roles: ['salesManager'], now }),
  };
  const testApp = await createTestApp({ config: { ...testConfig, publicUrl }, demoTokens });
  testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(() => testApp.app.stop(true));
  return { ...testApp, port: testApp.app.server?.port ?? 0, demoTokens };
}

const filled = (page: Page) => page.waitForSelector('html[data-state=filled]', { timeout: hangTimeoutMs });
const textsOf = (page: Page, selector: string) => page.locator(selector).allTextContents();

const toNumber = (text: string) => Number(text.replace('−', '-'));

/** Expects no overflow and no accessibility violations on a light phone and a dark desktop. */
async function expectUsable(page: Page): Promise<void> {
  for (const { colorScheme, ...size } of appearances) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme });
    expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    expect(await findViolations(page)).toEqual([]);
  }
  expect(
    await page.evaluate(
      `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.scrolling'))`,
    ),
  ).toBe(0);
}

describe.skipIf(noBrowser !== undefined)('demo page in a browser', () => {
  test(
    'shows the data of the API accessibly and contacts no other host',
    async () => {
      const cwd = temporaryFolder();
      const { address } = await startService({ args: ['--demo', '--now', '2026-01-15'], cwd });
      const tokens = await Bun.file(join(cwd, `data/demo-${new URL(address).port}-tokens.json`)).json();
      const request = async (as: string, path: string, body?: object) => {
        const headers = { authorization: `Bearer ${tokens[as]}`, 'content-type': 'application/json' };
        const sent = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
        return (await fetch(`${address}/v2/private${path}`, { headers, ...sent })).json();
      };
      const { page, requests, complaints } = await openInBrowser(`${address}/`);
      await filled(page);

      const glance = async (month: string) =>
        v.parse(MonthlyGlanceBody, await request('demo-manager', `/user/salesManager/monthly-glance?month=${month}`))
          .data;
      const expectGlance = async (month: string) => {
        await page.locator('.chart .total').first().waitFor();
        const { managerReport, counselorsReport, teamGlance, period } = await glance(month);
        expect(await page.locator('.period').textContent()).toBe(
          `${month} in UTC: from ${period.from} until before ${period.until}.`,
        );
        const people = [managerReport.glance, ...counselorsReport.map(({ glance }) => glance)];
        const totals = people.map((person) => Object.values(person).reduce((sum, count) => sum + count, 0));
        expect(await textsOf(page, '.chart .total')).toEqual(totals.map(String));
        const counts = people.flatMap((person) => Object.values(person).filter((count) => count > 0));
        expect(await page.locator('.chart rect').count()).toBe(counts.length);
        expect((await textsOf(page, '.chart .count')).map(Number).sort()).toEqual(counts.sort());
        for (const [index, { name }] of counselorsReport.entries()) {
          expect(await page.getByRole('img', { name: `${name.first} ${name.last} ${totals[index + 1]}` }).count()).toBe(
            1,
          );
        }
        const rows = await Promise.all(
          (await page.locator('tbody tr').all()).map((row) => row.locator('th, td').allTextContents()),
        );
        const row = (
          name: string,
          { cemetryPlans, qoutes, qoutesAndContract, applications, ...own }: Record<string, number>,
          earnings: number,
        ) => [
          name,
          ...[cemetryPlans, qoutes, qoutesAndContract, applications].map(String),
          ...[own.monthlyPlan, own.semiAnnualPlan].map((count) => String(count ?? '–')),
          earnings.toLocaleString('en-US', { minimumFractionDigits: 2 }),
        ];
        expect(rows).toEqual([
          row('Team', teamGlance.glance, teamGlance.totalMonthlyEarnings),
          row('The manager', managerReport.glance, managerReport.totalEarnings),
          ...counselorsReport.map(({ name, glance, totalMonthlyEarnings }) =>
            row(`${name.first} ${name.last}`, glance, totalMonthlyEarnings),
          ),
        ]);
      };
      await expectGlance('2025-12');
      await page.getByLabel('Month', { exact: true }).selectOption('2025-07');
      await page.getByText('The same in numbers, July 2025').waitFor();
      await expectGlance('2025-07');

      const isLate = Promise.withResolvers<void>();
      await page.route('**/monthly-glance?month=2025-03', async (route) => {
        await isLate.promise;
        await route.continue().catch(() => undefined);
      });
      const isAborted = page.waitForEvent('requestfailed', (request) => request.url().endsWith('month=2025-03'));
      await page.getByLabel('Month', { exact: true }).selectOption('2025-03');
      await page.getByLabel('Month', { exact: true }).selectOption('2025-05');
      await page.getByText('The same in numbers, May 2025').waitFor();
      await isAborted;
      isLate.resolve();
      await expectGlance('2025-05');

      const { matches } = v.parse(PreviewBody, await request('demo-user', '/engine/preview', {})).data;
      const all = [...(matches.bestMatch === null ? [] : [matches.bestMatch]), ...matches.remainingMatches];
      expect(await textsOf(page, '.matches h3')).toEqual(all.map(({ productName }) => productName));
      expect((await textsOf(page, '.matches .score')).map(toNumber)).toEqual(all.map(({ score }) => score));
      for (const [index, { explanation, score }] of all.entries()) {
        const points = (await textsOf(page, `.matches > li:nth-child(${index + 1}) .points`)).map(toNumber);
        const met = explanation?.rules.filter(({ outcome }) => outcome === 'met') ?? [];
        const penalty = explanation?.penalty === 0 ? [] : [explanation?.penalty ?? 0];
        expect(points).toEqual([...met.map(({ points }) => points), ...penalty]);
        expect(points.reduce((sum, count) => sum + count, 0)).toBeCloseTo(score, 2);
      }
      expect(await page.locator('#matched').textContent()).toContain('Application 100001 at the carrier');

      await page.getByRole('button', { name: 'Copy the manager’s token' }).click();
      await page.getByText(/The token of demo-manager is (copied|selected)/).waitFor();

      await expectUsable(page);
      expect(complaints).toEqual([]);
      expect(requests.filter((url) => !url.startsWith(`${address}/`))).toEqual([]);
    },
    hangTimeoutMs,
  );

  test(
    'previews example answers without saving and shows errors of the API',
    async () => {
      const { port, db, now, call } = await listen();
      await seedDemo(db, now);
      await db.$client.execute('DELETE FROM activities');
      const { page, complaints } = await openInBrowser(`http://127.0.0.1:${port}/`);
      await filled(page);
      await page.getByText('these answers are tried and not saved').waitFor();
      expect(await page.locator('.matches > li').count()).toBe(14);
      await page.getByText('Nothing was sold in this month.').waitFor();
      expect(complaints).toEqual([]);
      expect((await call('GET', '/v2/private/user', { as: 'demo-user' })).status).toBe(404);

      await db.$client.execute('ALTER TABLE activities RENAME TO away');
      await page.getByLabel('Month', { exact: true }).selectOption({ index: 3 });
      await page.getByRole('alert').getByText('Database unavailable').waitFor();
    },
    hangTimeoutMs,
  );
});

describe('demo page', () => {
  const load = async (port: number, host: string, headers: (readonly [string, string])[] = []) => {
    const client = createRawClient(port);
    const response = await client.send({ method: 'GET', target: '/', headers: [['Host', host], ...headers] });
    client.close();
    return { status: response?.status, text: response?.text ?? '', headers: response?.headers };
  };

  test('contains tokens only under loopback names and for no other origin', async () => {
    const { port, demoTokens } = await listen();
    for (const host of [
      `127.0.0.1:${port}`,
      `localhost:${port}`,
      'LOCALHOST',
      `app.localhost:${port}`,
      `[::1]:${port}`,
    ]) {
      const { status, text, headers } = await load(port, host);
      expect({ host, status }).toEqual({ host, status: 200 });
      for (const token of Object.values(demoTokens)) expect(text).toContain(token);
      expect(headers?.get('cache-control')).toBe('no-store');
      expect(headers?.get('content-security-policy')).toStartWith("default-src 'none'; script-src 'sha256-");
      expect(headers?.get('content-security-policy')).not.toMatch(/unsafe|\*|http/);
    }
    const otherHosts = [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1.evil.example',
      'localhost.evil.example',
      '10.0.0.1',
    ];
    for (const host of [...otherHosts, '127.0.0.1@evil.example', 'evil-localhost', '0.0.0.0']) {
      const { status, text } = await load(port, host);
      expect({ host, isRefused: status === 404 || status === 400 }).toEqual({ host, isRefused: true });
      for (const token of Object.values(demoTokens)) expect(text).not.toContain(token);
    }
    expect((await load(port, 'localhost', [['Origin', 'http://localhost:5173']])).status).toBe(404);
  });

  test('works under PUBLIC_URL for a local browser', async () => {
    const { port } = await listen('https://demo.example');
    expect((await load(port, 'demo.example')).status).toBe(200);
    expect((await load(port, 'other.example')).status).toBe(404);
    expect((await load(port, 'demo.example', [['X-Forwarded-For', '127.0.0.1']])).status).toBe(404);
  });

  const printedPage = (service: Service) => /^ +page +(\S+)$/m.exec(service.output())?.[1];

  test('has a working address in the start output', async () => {
    for (const host of ['0.0.0.0', 'localhost']) {
      const service = await startService({ environment: { HOST: host } });
      expect((await fetch(printedPage(service) ?? '')).status).toBe(200);
      service.process.kill('SIGKILL');
    }
  });

  test.skipIf(lanAddress === undefined)('does not exist under a network address, nor in the start output', async () => {
    const alone = await startService({ environment: { HOST: lanAddress ?? '' } });
    expect(printedPage(alone)).toBeUndefined();
    expect((await fetch(`${alone.address}/`)).status).toBe(404);
    alone.process.kill('SIGKILL');

    const open = await startService({ environment: { HOST: '0.0.0.0', PUBLIC_URL: 'http://planning.example' } });
    const { port } = new URL(printedPage(open) ?? '');
    const token = await open.token();
    const read = async (address: string, host: string) => {
      const pages = [`http://${address}:${port}/`, `http://${address}:${port}/swagger`];
      const responses = await Promise.all(pages.map((page) => fetch(page, { headers: { host } })));
      return Promise.all(responses.map(async (response) => (await response.text()).includes(token)));
    };
    for (const host of ['planning.example', '127.0.0.1', `localhost:${port}`]) {
      expect([host, await read('127.0.0.1', host)]).toEqual([host, [true, true]]);
      expect([host, await read(lanAddress ?? '', host)]).toEqual([host, [false, false]]);
    }
  });

  test('returns 404 like an unknown path without demo tokens', async () => {
    const { call } = await createTestApp();
    const unknown = await call('GET', '/nowhere');
    const { status, body } = await call('GET', '/');
    expect(status).toBe(404);
    expect(body).toMatchObject({ type: '/problems/route-not-found', detail: Object(unknown.body).detail });
    const service = await startService({ environment: { AUTH_SECRET: testSecret } });
    expect((await fetch(`${service.address}/`)).status).toBe(404);
    expect(service.output()).not.toContain('page  ');
  });

  test('allows only its own script and style, by hash, and no event or style attributes', async () => {
    const { port } = await listen();
    const { text, headers } = await load(port, 'localhost');
    const policy = headers?.get('content-security-policy') ?? '';
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
