import { describe, expect, test } from 'bun:test';
import { mkdirSync, rmSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { UserBody } from '../../src/modules/users/model';
import { listenWithDemoData, startSandbox } from '../support/app';
import { examplesFolder } from '../support/artifacts';
import { atEnd, never, runToEnd } from '../support/resources';

const folder = await examplesFolder();
/** The same package without the built client. */
const unbuilt = await examplesFolder();
rmSync(join(unbuilt, 'dist'), { recursive: true });

const { address, call, tokenOf } = await listenWithDemoData({ carrier: (await startSandbox()).carrier() });

function run(program: readonly string[], environment: Record<string, string>, cwd = folder) {
  const env = { PATH: process.env.PATH, BASE: address, ...environment };
  return runToEnd(Bun.spawn([...program], { cwd, env, stdout: 'pipe', stderr: 'pipe' }));
}

const byCurl = ['sh', 'test/examples/journey.sh'];
const journeys = [
  { name: 'by curl', program: byCurl },
  { name: 'in Node.js', program: ['node', 'test/examples/journey.mjs'] },
  { name: 'in Bun', program: [process.execPath, 'test/examples/journey.mjs'] },
].filter(({ program }) => Bun.which(program === byCurl ? 'curl' : (program[0] ?? '')) !== null);

test.each(journeys)('journey $name prints the data that the service stores', async ({ name, program }) => {
  const { exitCode, stdout, stderr } = await run(program, { TOKEN: await tokenOf(name) });
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
  const textOf = (title: string) => printed.get(title) ?? '';
  const { user } = v.parse(UserBody, (await call('GET', '/v2/private/user', { as: name })).body);
  const { bestMatch, remainingMatches } = user.insurance.matches ?? never();
  const listed = await call('GET', '/v2/private/user/applications', { as: name });
  expect(textOf('An invalid field is rejected, and nothing is stored')).toMatch(/\/heightCm[\s\S]*min_value/);
  expect(remainingMatches.length).toBeGreaterThan(5);
  for (const { productName } of [bestMatch ?? never(), ...remainingMatches])
    expect(textOf('Match products with reasons')).toContain(productName);
  const started = textOf('Start an application at the carrier, once for repeated requests');
  expect(started).toContain(`${user.purchase.partner?.appNumber ?? never()}`);
  for (const [title, value] of [
    ['List the applications', v.parse(ApplicationsBody, listed.body).data.applications],
    ['Read it all back', user],
  ] as const) {
    const lines = textOf(title)
      .replaceAll(/^ +|,$/gm, '')
      .replaceAll('": ', '":')
      .replaceAll('\\u2019', '’')
      .split('\n');
    for (const [, member = ''] of JSON.stringify(value).matchAll(/("\w+":(?:"[^"]*"|[\d.]+|true|false|null))/g))
      expect(lines).toContain(member);
  }
  expect(steps.at(-1)).toMatch(/304|"isNotModified": true/);
});

// The same program runs in Node.js and in Bun.
describe.each(journeys.filter(({ name }) => name !== 'in Node.js'))('journey $name', ({ program }) => {
  test('fails with a message on a 401, without a service and without a token', async () => {
    const environments = [{ TOKEN: 'unknown' }, { TOKEN: 'unknown', BASE: 'http://127.0.0.1:1' }, {}];
    const ended = await Promise.all(environments.map((environment) => run(program, environment)));
    expect(ended.map(({ exitCode }) => exitCode)).toEqual([1, 1, 1]);
    const [refused, offline, withoutToken] = ended.map(({ stderr }) => stderr);
    expect(refused).toMatch(/token is not (valid|a signed JWT)/);
    if (program === byCurl) expect(refused).toContain(`See ${address}/problems/unauthenticated`);
    expect(offline).toContain('npm start');
    expect(withoutToken).toMatch(/^\nSet TOKEN, or start the service/);
  });

  test('uses the token of the latest start in its folder', async () => {
    const tokens: string[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch({ headers }) {
        tokens.push(headers.get('authorization')?.replace('Bearer ', '') ?? '');
        return new Response(null, { status: 404 });
      },
    });
    atEnd(() => server.stop(true));
    mkdirSync(join(folder, 'data'), { recursive: true });
    const write = async (name: string, token: string, atSeconds: number) => {
      const path = join(folder, 'data', name);
      await Bun.write(path, JSON.stringify({ 'demo-user': token }, null, 2));
      utimesSync(path, atSeconds, atSeconds);
    };
    const own = ['demo-tokens.json', 'own'] as const;
    const demo = [`demo-${server.port}-tokens.json`, 'of-a-demo'] as const;
    await write('demo-1-tokens.json', 'of-another-port', 3000);
    for (const [index, [name, token]] of [own, demo, own].entries()) {
      await write(name, token, 1000 + index);
      await run(program, { BASE: server.url.origin });
    }
    rmSync(join(folder, 'data'), { recursive: true });
    expect(tokens).toEqual(['own', 'of-a-demo', 'own']);
  });
});

test.each(['journey.mjs', 'serve-page.ts'])('%s fails with a message when the client is not built', async (name) => {
  const program = [process.execPath, join('test/examples', name)];
  const { exitCode, stderr } = await run(program, { TOKEN: 'unknown' }, unbuilt);
  expect([exitCode, stderr.trim()]).toEqual([1, 'The client is not built: npm run build:client']);
});
