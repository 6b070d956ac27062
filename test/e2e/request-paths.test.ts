import { expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { freePort, runProgram, temporaryFolder } from '../support/resources';

const page = await Bun.file(join(import.meta.dirname, '../../docs/architecture.md')).text();
const kinds = ['save', 'glance'] as const;
const count = 60;
/** This file runs itself with `--coverage` and this variable: `save`, `glance`, or `none`. */
const { WORKLOAD } = process.env;

/** Returns how often each line of `src` is executed in a workload, by file and line. */
async function executions(workload: (typeof kinds)[number] | 'none'): Promise<Map<string, number>> {
  const folder = temporaryFolder();
  const coverage = ['--coverage', '--coverage-reporter=lcov', `--coverage-dir=${folder}`, '--timeout', '60000'];
  await runProgram(join(import.meta.dirname, '../..'), [process.execPath, 'test', import.meta.path, ...coverage], {
    ...process.env,
    WORKLOAD: workload,
  });
  const lines = new Map<string, number>();
  let file: string | undefined;
  for (const line of (await Bun.file(join(folder, 'lcov.info')).text()).split('\n')) {
    if (line.startsWith('SF:')) file = /\bsrc\/.*/.exec(line)?.[0];
    const [, number, hits] = /^DA:(\d+),(\d+)/.exec(line) ?? [];
    if (file !== undefined && hits !== undefined) lines.set(`${file}:${number}`, Number(hits));
  }
  return lines;
}

if (WORKLOAD === undefined) {
  const [idle, save, glance] = await Promise.all([executions('none'), executions('save'), executions('glance')]);
  const all = { save, glance };

  test.each(kinds)(
    'docs/architecture.md lists exactly the files that a %s executes, with CORS, limits, metrics and traces on',
    (kind) => {
      // A line that each request executes; background work runs far less often.
      const executed = [...all[kind]].filter(([line, hits]) => hits - (idle.get(line) ?? 0) > count * 0.8);
      const files = [...new Set(executed.map(([line]) => line.replace(/:\d+$/, '')))].toSorted();
      const listed = [...page.matchAll(/^\| `(src\/[^`]+)` \|([ \d]*)\|([ \d]*)\|/gm)]
        .map(([, path = '', save, glance]) => ({ path, number: Number(kind === 'save' ? save : glance) }))
        .filter(({ number }) => number > 0)
        .toSorted((a, b) => a.number - b.number);
      expect(listed.map(({ path }) => path).toSorted()).toEqual(files);
      expect(listed.map(({ number }) => number)).toEqual(files.map((_, index) => index + 1));
      expect(page).toMatch(kind === 'save' ? `executes ${files.length} files` : `monthly-glance\` ${files.length},`);
    },
  );
} else {
  test('workload', async () => {
    const port = await freePort();
    process.chdir(temporaryFolder());
    const origin = 'http://127.0.0.1:5173';
    Object.assign(process.env, {
      NODE_ENV: 'development',
      PORT: String(port),
      CORS_ORIGINS: origin,
      RATE_LIMIT_PER_MINUTE: '100000',
      METRICS_TOKEN: 'workload-metrics-token-'.padEnd(40, 'x'),
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
    });
    process.argv = process.argv.slice(0, 2);
    const { runProcess } = await import('../../src/main');
    await runProcess();
    const Tokens = v.object({ 'demo-user': v.string(), 'demo-manager': v.string() });
    const tokens = v.parse(Tokens, await Bun.file('data/demo-tokens.json').json());
    const send = async (kind: (typeof kinds)[number], index: number) => {
      const [token, path] =
        kind === 'save'
          ? [tokens['demo-user'], 'ltc/lifetimeCare']
          : [tokens['demo-manager'], 'user/salesManager/monthly-glance?month=March'];
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', origin };
      const save = { method: 'POST', body: JSON.stringify({ careCosts: index }) };
      const url = `http://127.0.0.1:${port}/v2/private/${path}`;
      const response = await fetch(url, { headers, ...(kind === 'save' ? save : {}) });
      expect([response.status, await response.text()]).toMatchObject([200, expect.any(String)]);
    };
    // The first requests load modules and fill caches.
    for (const kind of kinds)
      for (let index = 0; index < 20 + (kind === WORKLOAD ? count : 0); index += 1) await send(kind, index);
  }, 60_000);
}
