import { readdirSync } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { withTimeout } from '../shared/async';
import { buildIdentity } from '../shared/build';

/** A network file system may not respond. */
const fileTimeoutMs = 500;

const loopProbeMs = 100;
const loopSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Resources of the process, read at each scrape, and the delay of its event loop. */
export function registerProcessMetrics(registry: Registry): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => number | undefined) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        const value = read();
        if (value === undefined) this.remove();
        else this.set(value);
      },
    });
  gauge('process_resident_memory_bytes', 'Resident memory', () => process.memoryUsage.rss());
  gauge('process_heap_bytes', 'Memory of the JavaScript heap in use', () => process.memoryUsage().heapUsed);
  gauge('process_open_fds', 'Open file descriptors', openDescriptors);
  const startedAtSeconds = Math.round(Date.now() / 1000 - process.uptime());
  gauge('process_start_time_seconds', 'When the process was started, in seconds since 1970', () => startedAtSeconds);
  let countedSeconds = 0;
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'Processor time that the process has used',
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      const seconds = (user + system) / 1e6;
      this.inc(Math.max(0, seconds - countedSeconds));
      countedSeconds = seconds;
    },
  });
  new Gauge({
    name: 'planning_build_info',
    help: 'Always 1; the running build',
    labelNames: ['version', 'commit', 'bun'],
    registers,
  }).set({ ...buildIdentity, bun: Bun.version }, 1);
  watchEventLoop(registers);
}

/** The size of a local database and the space on its disk. */
export function registerDatabaseFiles(registry: Registry, path: string): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => Promise<number>) =>
    new Gauge({
      name,
      help,
      registers,
      async collect() {
        const value = await withTimeout(read(), fileTimeoutMs, () => undefined).catch(() => undefined);
        if (value === undefined) this.remove();
        else this.set(value);
      },
    });
  const space = async () => {
    const { bavail, blocks, bsize } = await statfs(dirname(path));
    return { free: bavail * bsize, all: blocks * bsize };
  };
  const sizeOf = async (file: string) => (await stat(file)).size;
  gauge('planning_database_disk_free_bytes', 'Free disk space for the database file', () =>
    space().then(({ free }) => free),
  );
  gauge('planning_database_disk_size_bytes', 'Size of the disk of the database file', () =>
    space().then(({ all }) => all),
  );
  gauge('planning_database_size_bytes', 'Size of the database file', () => sizeOf(path));
  gauge('planning_database_log_size_bytes', 'Size of the write-ahead log, absent without one', () =>
    sizeOf(`${path}-wal`),
  );
}

/** A histogram, because percentiles cannot be aggregated over scrapes and instances. */
function watchEventLoop(registers: Registry[]): void {
  const delay = new Histogram({
    name: 'event_loop_delay_seconds',
    help: `Delay of a timer with an interval of ${loopProbeMs} ms`,
    buckets: loopSeconds,
    registers,
  });
  let dueAtMs = performance.now() + loopProbeMs;
  const probe = () => {
    const nowMs = performance.now();
    delay.observe(Math.max(0, nowMs - dueAtMs) / 1000);
    dueAtMs = nowMs + loopProbeMs;
    setTimeout(probe, loopProbeMs).unref();
  };
  setTimeout(probe, loopProbeMs).unref();
}

/** Undefined without /proc. */
function openDescriptors(): number | undefined {
  try {
    // Reading the folder opens one more.
    return readdirSync('/proc/self/fd').length - 1;
  } catch {
    return undefined;
  }
}
