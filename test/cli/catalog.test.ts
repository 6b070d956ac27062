import { describe, expect, test } from 'bun:test';
import { createCommandLine } from '../support/command';
import { amount } from '../support/resources';

const rule = { id: 'r', when: { fact: 'age', atLeast: 5 }, points: 1.5, list: 'highlights', text: 'T', reason: 'R' };
const product = (id: number) => ({
  id,
  productName: `Product ${id}`,
  productWrapper: 'W',
  productIcon: '/icons/hybrid.svg',
  disqualifiers: [],
  rules: [rule],
});
const catalog = (count: number) =>
  JSON.stringify({ conditions: [], products: Array.from({ length: count }, (_, id) => product(id)) });

describe('planning import products', () => {
  test('activates a file as a new version once, and seed keeps it', async () => {
    const { planning, write } = await createCommandLine();
    await planning('seed');
    const file = await write('catalog.json', catalog(2));
    const first = await planning('import', 'products', file);
    expect(first).toMatchObject({
      exitCode: 0,
      stdout: 'Version 2 of the catalogue is current, with 2 products.\n',
      stderr: '',
    });
    expect((await planning('import', 'products', file)).stdout).toBe(
      'Version 2 of the catalogue is the same already.\n',
    );
    await planning('seed');
    const shown = await planning('catalog', 'show', '--json');
    expect(JSON.parse(shown.stdout).products).toHaveLength(2);
  });

  test('accepts the output of catalog show unchanged', async () => {
    const { planning, write } = await createCommandLine();
    const shown = await planning('catalog', 'show', '--json');
    await planning('import', 'products', await write('copy.json', shown.stdout));
    expect((await planning('catalog', 'diff', '1', '2')).stdout).toBe('The versions are the same.\n');
    expect((await planning('catalog', 'show', '2', '--json')).stdout).toBe(shown.stdout);
  });

  test('reports validation errors and stores nothing', async () => {
    const { planning, write } = await createCommandLine();
    const bad = JSON.stringify({
      conditions: [],
      products: [product(1), { ...product(2), rules: [{ ...rule, points: 1.005 }] }, product(1)],
    });
    const result = await planning('import', 'products', await write('bad.json', bad));
    expect(result).toMatchObject({ exitCode: 1, stdout: '' });
    expect(result.stderr).toBe(
      'product 2, rule r, points must have at most two decimals\n1 error in bad.json; nothing was stored.\n',
    );
    for (const [name, content, message] of [
      ['broken.json', '{', 'not well-formed JSON'],
      ['latin1.json', Buffer.from('"caf\u00e9"', 'latin1'), 'not UTF-8'],
    ] as const) {
      const refused = await planning('import', 'products', await write(name, content));
      expect(refused).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(message) });
    }
    expect((await planning('catalog', 'show', '2')).stderr).toBe(
      'There is no version 2 of the catalogue. Existing versions: 1.\n',
    );
  });

  test('accepts thousands of products in one file', async () => {
    const { planning, write } = await createCommandLine();
    const count = amount({ long: 10_000, short: 3_000 });
    const result = await planning('import', 'products', await write('large.json', catalog(count)), '--json');
    expect(JSON.parse(result.stdout)).toEqual({ version: 2, products: count, isNew: true });
    expect(JSON.parse((await planning('catalog', 'show', '--json')).stdout).products).toHaveLength(count);
  }, 30_000);
});

describe('planning catalog', () => {
  test('explains the matches of a person in a file', async () => {
    const { planning, write } = await createCommandLine();
    const person = {
      profile: { dateOfBirth: '1940-01-01' },
      ltc: { lifetimeCare: { insuranceCover: ['payingFuneral'] } },
    };
    const file = await write('person.json', JSON.stringify(person));
    const { stdout, exitCode } = await planning('catalog', 'try', '--user', file, '--on', '2026-03-10');
    expect(exitCode).toBe(0);
    expect(stdout).toStartWith('Version 1, on 2026-03-10. Best match: ');
    expect(stdout).toMatch(/disqualified +-\d+\.\d\d +age80Plus/);
    expect(stdout).toMatch(/Pays for your funeral.* 24\.00 +funeral/);
    const wrapped = await write(
      'wrapped.json',
      JSON.stringify({ user: { ...person, id: 'x', insurance: {}, purchase: {} } }),
    );
    expect((await planning('catalog', 'try', '--user', wrapped, '--on', '2026-03-10')).stdout).toBe(stdout);
    const json = await planning('catalog', 'try', '--user', file, '--on', '2026-03-10', '--json');
    expect(JSON.parse(json.stdout)).toHaveProperty('bestMatch.explanation.rules');
  });

  test('reports an unknown field of the person', async () => {
    const { planning, write } = await createCommandLine();
    const file = await write('person.json', JSON.stringify({ profile: { birthDate: '1940-01-01' } }));
    expect(await planning('catalog', 'try', '--user', file)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('profile.birthDate is not a known field'),
    });
  });

  test.each([
    [['catalog', 'diff', '1'], 'missing required argument'],
    [['catalog', 'try', '--user', 'none.json'], 'not a readable file'],
    [['catalog', 'try', '--user', 'none.json', '--on', '2026-02-30'], 'YYYY-MM-DD'],
  ])('%p exits with 1 and a message', async (args, message) => {
    const { planning } = await createCommandLine();
    expect(await planning(...args)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(message) });
  });

  test('prints the JSON Schema without a database', async () => {
    const { planning } = await createCommandLine({ DATABASE_URL: 'http://127.0.0.1:1' });
    const { stdout } = await planning('catalog', 'schema');
    expect(JSON.parse(stdout)).toHaveProperty('$defs.Comparison');
  });
});
