/** A workload for `bun test --coverage`: starts the service with all options, then sends COUNT requests of one KIND. */
import { expect, test } from 'bun:test';
import * as v from 'valibot';
import { freePort, temporaryFolder } from './resources';

const { KIND, COUNT } = v.parse(
  v.object({ KIND: v.picklist(['save', 'glance']), COUNT: v.pipe(v.string(), v.toNumber()) }),
  process.env,
);
const Tokens = v.object({ 'demo-user': v.string(), 'demo-manager': v.string() });

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
  const tokens = v.parse(Tokens, await Bun.file('data/demo-tokens.json').json());
  const send = async (index: number) => {
    const response =
      KIND === 'save'
        ? await fetch(`http://127.0.0.1:${port}/v2/private/ltc/lifetimeCare`, {
            method: 'POST',
            headers: { authorization: `Bearer ${tokens['demo-user']}`, 'content-type': 'application/json', origin },
            body: JSON.stringify({ careCosts: index }),
          })
        : await fetch(`http://127.0.0.1:${port}/v2/private/user/salesManager/monthly-glance?month=March`, {
            headers: { authorization: `Bearer ${tokens['demo-manager']}`, origin },
          });
    expect([response.status, await response.text()]).toMatchObject([200, expect.any(String)]);
  };
  // The first requests load modules and fill caches.
  for (let index = 0; index < COUNT + 20; index += 1) await send(index);
}, 60_000);
