/** Floods the log and prints the memory growth in MB to standard error. */
import { createLog } from '../../src/log';

const log = createLog('info');
const line = { requestId: crypto.randomUUID(), method: 'GET', route: '/v2/private/user', status: 200, durationMs: 1 };
const write = async (lines: number) => {
  for (let count = 0; count < lines; count += 1) {
    log.request(line);
    if (count % 1000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
};
await write(20_000);
Bun.gc(true);
const before = process.memoryUsage.rss();
await write(500_000);
Bun.gc(true);
process.stderr.write(String(Math.round((process.memoryUsage.rss() - before) / 1e6)), () =>
  process.kill(process.pid, 'SIGKILL'),
);
