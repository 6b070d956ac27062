import { describe, expect, test } from 'bun:test';
import { cpSync, mkdirSync, rmSync, symlinkSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { callerOf, type TestResponse, testSecret, testToken } from '../support/app';
import { builtClient } from '../support/artifacts';
import { noBrowser, openInBrowser } from '../support/browser';
import { startService } from '../support/processes';
import { atEnd, freePort, runProgram, runToEnd, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const noCurl = Bun.which('curl') === null ? 'no curl is installed' : undefined;
const noNode = Bun.which('node') === null ? 'no Node.js is installed' : undefined;
for (const reason of [noCurl, noNode, noBrowser])
  if (reason !== undefined) console.warn(`Some examples were skipped: ${reason}`);

/** This package with the built client, before the first start of the service. */
const folder = temporaryFolder();
cpSync(join(root, 'package.json'), join(folder, 'package.json'));
cpSync(import.meta.dirname, join(folder, 'test/examples'), { recursive: true });
mkdirSync(join(folder, 'dist'));
symlinkSync(await builtClient(), join(folder, 'dist/client'));
/** The same package without the built client. */
const unbuilt = temporaryFolder();
cpSync(folder, unbuilt, { recursive: true });
rmSync(join(unbuilt, 'dist'), { recursive: true });

const service = await startService({ environment: { AUTH_SECRET: testSecret } });
const call = callerOf(service.address);
const tokenOf = (id: string) => testToken({ id, now: new Date() });

const StoredUser = v.object({
  user: v.looseObject({
    updatedAt: v.string(),
    insurance: v.object({
      matches: v.object({
        bestMatch: v.object({ productName: v.string(), score: v.number() }),
        remainingMatches: v.array(v.object({ productName: v.string(), score: v.number() })),
      }),
    }),
    purchase: v.object({ partner: v.optional(v.object({ appNumber: v.number() })) }),
  }),
});
const storedUser = ({ body }: TestResponse) => v.parse(StoredUser, body).user;

function start(program: readonly string[], environment: Record<string, string>, cwd = folder) {
  const env = { PATH: process.env.PATH, BASE: service.address, ...environment };
  return Bun.spawn([...program], { cwd, env, stdout: 'pipe', stderr: 'pipe' });
}

const journeys = [
  { name: 'by curl', program: ['sh', 'test/examples/journey.sh'], missing: noCurl },
  { name: 'in Node.js', program: ['node', 'test/examples/journey.mjs'], missing: noNode },
  { name: 'in Bun', program: [process.execPath, 'test/examples/journey.mjs'], missing: undefined },
].filter(({ missing }) => missing === undefined);

describe.each(journeys)('journey $name', ({ name, program }) => {
  const run = (environment: Record<string, string>, cwd?: string) => runToEnd(start(program, environment, cwd));

  test('prints the data that the service stores', async () => {
    const { exitCode, stdout, stderr } = await run({ TOKEN: await tokenOf(name) });
    expect([exitCode, stderr]).toEqual([0, '']);
    const steps = stdout.split('\n== ').slice(1);
    const printed = new Map(steps.map((step) => [step.slice(0, step.indexOf('\n')), step.slice(step.indexOf('\n'))]));
    expect([...printed.keys()].map((title) => title.replace(/ \(if.*/i, ''))).toEqual([
      'Save the profile',
      'An invalid field is rejected, and nothing is stored',
      'Save the long-term-care step, unless the record has changed since',
      'Save the life-insurance deep dive',
      'Save the lifetime-care deep dive',
      'Match products with reasons',
      'Start an application at the carrier, once for repeated requests',
      'List the applications',
      'Read it all back',
      'Read it again only if it has changed',
    ]);
    const held = storedUser(await call('GET', '/v2/private/user', { as: name }));
    const { insurance, purchase } = held;
    const textOf = (title: string) => printed.get(title) ?? '';
    expect(textOf('An invalid field is rejected, and nothing is stored')).toMatch(/\/heightCm[\s\S]*min_value/);
    const matches = textOf('Match products with reasons');
    const { bestMatch, remainingMatches } = insurance.matches;
    expect(remainingMatches.length).toBeGreaterThan(5);
    for (const match of [bestMatch, ...remainingMatches]) expect(matches).toContain(match.productName);
    const application = textOf('Start an application at the carrier, once for repeated requests');
    expect(application).toContain(`${purchase.partner?.appNumber}`);
    const applications = await call('GET', '/v2/private/user/applications', { as: name });
    for (const [title, value] of [
      ['List the applications', v.parse(ApplicationsBody, applications.body).data.applications],
      ['Read it all back', held],
    ] as const) {
      const lines = textOf(title)
        .replaceAll(/^ +|,$/gm, '')
        .replaceAll('": ', '":');
      for (const [, member = ''] of JSON.stringify(value).matchAll(/("\w+":(?:"[^"]*"|[\d.]+|true|false|null))/g)) {
        expect(lines.split('\n')).toContain(member);
      }
    }
    expect(steps.at(-1)).toMatch(/304|"isNotModified": true/);
  });

  test('fails with a message on a 401, without a service and without a token', async () => {
    const [refused, offline, withoutToken] = await Promise.all([
      run({ TOKEN: 'unknown' }),
      run({ TOKEN: 'unknown', BASE: 'http://127.0.0.1:1' }),
      run({}),
    ]);
    expect([refused.exitCode, offline.exitCode, withoutToken.exitCode]).toEqual([1, 1, 1]);
    expect(refused.stderr).toMatch(/token is not (valid|a signed JWT)/);
    expect(offline.stderr).toContain('npm start');
    expect(withoutToken.stderr).toMatch(/^\nSet TOKEN, or start the service/);
    if (!program[1]?.endsWith('.sh')) {
      const { exitCode, stderr } = await run({ TOKEN: 'unknown' }, unbuilt);
      expect([exitCode, stderr]).toEqual([1, '\nThe client is not built: npm run build:client\n']);
    } else {
      expect(refused.stderr).toContain(`See ${service.address}/problems/unauthenticated`);
    }
  });
});

test.each(journeys)('journey $name uses the token of the latest start in its folder', async ({ program }) => {
  const demo = `demo-${new URL(service.address).port}-tokens.json`;
  const named = { 'demo-tokens.json': await tokenOf('own'), [demo]: await tokenOf('of-a-demo') };
  mkdirSync(join(folder, 'data'), { recursive: true });
  const write = async (name: string, atSeconds: number) => {
    const path = join(folder, 'data', name);
    await Bun.write(path, JSON.stringify({ 'demo-user': named[name] }, null, 2));
    utimesSync(path, atSeconds, atSeconds);
  };
  const idShown = async () => /"id": ?"(own|of-a-demo)"/.exec((await runToEnd(start(program, {}))).stdout)?.[1];
  await write('demo-1-tokens.json', 3000);
  await write('demo-tokens.json', 1000);
  const shown = [await idShown()];
  await write(demo, 2000);
  shown.push(await idShown());
  await write('demo-tokens.json', 2500);
  shown.push(await idShown());
  rmSync(join(folder, 'data'), { recursive: true });
  expect(shown).toEqual(['own', 'of-a-demo', 'own']);
});

test('examples compile against the types of the client', async () => {
  const beside = join(folder, 'beside');
  cpSync(await builtClient(), beside, { recursive: true });
  cpSync(join(folder, 'test/examples/page.js'), join(beside, 'page.js'));
  const compilerOptions = {
    ...{
      allowJs: true,
      checkJs: true,
      strict: true,
      skipLibCheck: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
    },
    ...{ module: 'nodenext', target: 'es2023', lib: ['es2023', 'dom', 'dom.iterable'], types: ['bun'] },
    typeRoots: [join(root, 'node_modules/@types')],
  };
  const files = ['test/examples/journey.mjs', 'beside/page.js'];
  await Bun.write(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
  await runProgram(folder, [process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '-p', folder]);
});

test('page server fails with a message when the client is not built', async () => {
  const { exitCode, stderr } = await runToEnd(start([process.execPath, 'test/examples/serve-page.ts'], {}, unbuilt));
  expect([exitCode, stderr]).toEqual([1, 'The client is not built: npm run build:client\n']);
});

describe.skipIf(noBrowser !== undefined)('example page', async () => {
  const pagePort = await freePort();
  const pageOrigin = `http://127.0.0.1:${pagePort}`;
  // A separate service, because the test kills and restarts it.
  const service = await startService({ environment: { AUTH_SECRET: testSecret, CORS_ORIGINS: pageOrigin } });
  const call = callerOf(service.address);
  const server = start([process.execPath, 'test/examples/serve-page.ts'], {
    PORT: String(pagePort),
    BASE: service.address,
  });
  atEnd(() => server.kill());
  const { value } = await server.stdout.pipeThrough(new TextDecoderStream()).getReader().read();

  test('signs in, shows validation errors at their fields, saves, matches and shows other errors', async () => {
    expect(value).toBe(`${pageOrigin} calls ${service.address}\n`);
    const { page, requests, complaints } = await openInBrowser(pageOrigin);
    await page.setViewportSize({ width: 390, height: 844 });
    const field = (label: string) => page.getByLabel(label, { exact: true });
    const press = (name: string) => page.getByRole('button', { name }).click();
    const notice = page.getByRole('alert');
    const profile = async (): Promise<TestResponse> => call('GET', '/v2/private/user', { as: 'on-a-page' });

    await field('Token').fill('unknown');
    await press('Sign in');
    await notice.getByText('The token is not valid').waitFor();
    expect(await notice.getByRole('link').getAttribute('href')).toBe(`${service.address}/problems/unauthenticated`);
    expect(await field('First name').isVisible()).toBe(false);

    await field('Token').fill(await tokenOf('on-a-page'));
    await press('Sign in');
    await field('First name').fill('Ada');
    expect(await field('Token').isVisible()).toBe(false);
    expect(await notice.textContent()).toBe('');
    await field('State').fill('VA');
    await field('Height in cm').fill('20');
    await press('Save');
    const fieldError = page.getByText('This must be at least 50.');
    await fieldError.waitFor();
    expect(await field('Height in cm').getAttribute('aria-describedby')).toBe(await fieldError.getAttribute('id'));
    expect(await field('Height in cm').evaluate((input) => input === document.activeElement)).toBe(true);
    expect((await profile()).status).toBe(404);

    await field('Height in cm').fill('165');
    await press('Save');
    await page.getByText('Saved', { exact: true }).waitFor();
    expect(await page.locator('[aria-invalid]').count()).toBe(0);
    expect((await profile()).body).toMatchObject({
      user: { profile: { firstName: 'Ada', state: 'VA', heightCm: 165 } },
    });

    await call('POST', '/v2/private/user/profile', { as: 'on-a-page', body: { firstName: 'Augusta' } });
    await field('Last name').fill('Byron');
    await press('Save');
    await notice.getByText('The record was changed elsewhere').waitFor();
    expect(await field('First name').inputValue()).toBe('Augusta');
    expect((await profile()).text).not.toContain('Byron');

    await press('Match products');
    await page.locator('#matches li li').first().waitFor({ state: 'attached' });
    const { bestMatch, remainingMatches } = storedUser(await profile()).insurance.matches;
    const lines = [bestMatch, ...remainingMatches].map(({ productName, score }) => `${productName}: ${score}`);
    expect(await page.locator('#matches summary').allTextContents()).toEqual(lines);
    expect(await page.locator('#record').textContent()).toContain(bestMatch.productName);
    await page.locator('#matches summary').first().click();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);

    service.process.kill('SIGKILL');
    await service.process.exited;
    await press('Save');
    await notice.getByText('The service does not respond').waitFor();
    await startService({
      environment: {
        AUTH_SECRET: `another than ${testSecret}`,
        CORS_ORIGINS: pageOrigin,
        PORT: new URL(service.address).port,
      },
    });
    await press('Save');
    await notice.getByText('Sign in again').waitFor();
    expect(await field('Token').isVisible()).toBe(true);
    expect(await page.content()).not.toMatch(/Augusta|Hybrid Life/);
    expect(await page.getByLabel('First name', { exact: true }).inputValue()).toBe('');

    const hosts = requests.map((url) => new URL(url)).filter(({ protocol }) => protocol !== 'data:');
    expect([...new Set(hosts.map(({ origin }) => origin))].sort()).toEqual([pageOrigin, service.address].sort());
    // Chromium reports each error response, which this test causes on purpose.
    expect(complaints.filter((complaint) => !complaint.startsWith('Failed to load resource'))).toEqual([]);
  }, 60_000);
});
