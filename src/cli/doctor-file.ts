import { readdirSync, readlinkSync, type Stats, statSync } from 'node:fs';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import type { Database } from '../db/client';
import { driverVersion } from '../db/connection';
import { nameOfFile } from '../db/database-file';
import { toDatabaseError } from '../db/errors';
import { addressOf } from '../start/listen';
import type { Finding } from './output';
import { counted } from './output';

/** A log of this size shows that a reader has blocked checkpoints for long. */
const largeLogBytes = 256 * 1024 * 1024;
/** `--deep` begins no further table after this time. */
const deepLimitMs = 600_000;

/**
 * Whether running processes have the database file, its log and its index open, or ones that were removed or replaced. Only
 * Linux shows it.
 */
export function openFileFindings(path: string): Finding[] {
  const check = 'open file';
  const holders = holdersOf(path);
  const stale = holders.flatMap(({ pid, stale }) => (stale === undefined ? [] : { pid, stale }));
  if (stale.length > 0) {
    const pids = stale.map(({ pid }) => pid).join(', ');
    const files = [...new Set(stale.map(({ stale }) => stale))].join(', ');
    const detail =
      `process ${pids} has a file open that was removed or replaced (${files}): read its log for a rescued copy before you ` +
      'stop it';
    return [{ check, result: 'failed', detail }];
  }
  if (holders.length === 0) return [];
  return [{ check, result: 'ok', detail: `process ${holders.map(({ pid }) => pid).join(', ')} has it open` }];
}

/** Compares the descriptors of each process with the three files by inode: a link in /proc shows a moved file's new name. */
function holdersOf(path: string): { readonly pid: string; readonly stale: string | undefined }[] {
  const name = nameOfFile(path);
  const files = ['', '-wal', '-shm'].map((suffix) => {
    const stats = statSync(`${name}${suffix}`, { throwIfNoEntry: false });
    return { name: `${name}${suffix}`, id: stats && idOf(stats) };
  });
  return list('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .flatMap((pid) => {
      const open = list(`/proc/${pid}/fd`).flatMap((descriptor) => openFile(`/proc/${pid}/fd/${descriptor}`));
      const ids = new Set(open.map(({ id }) => id));
      // A process keeps the index of a database that it has closed; see openWalIndex.
      const isUser = files
        .slice(0, 2)
        .some(({ name, id }) => open.some((each) => each.name === name || each.id === id));
      if (!isUser) return [];
      const replaced = files.find((file) => open.some((each) => each.name === file.name && each.id !== file.id));
      const held = files.filter(({ id }) => id !== undefined && ids.has(id));
      if (replaced === undefined && held.length === 0) return [];
      // SQLite has all three open, or the file alone.
      const hasLog = held.some((file) => file !== files[0]);
      const missing = hasLog ? files.find((file) => !held.includes(file)) : undefined;
      return [{ pid, stale: (replaced ?? missing)?.name }];
    });
}

/** A descriptor's file by its name and inode; nothing for a socket or a process that has ended. */
function openFile(descriptor: string): { readonly name: string; readonly id: string }[] {
  try {
    const target = readlinkSync(descriptor);
    if (!target.startsWith('/')) return [];
    return [{ name: target.replace(/ \(deleted\)$/, ''), id: idOf(statSync(descriptor)) }];
  } catch {
    return [];
  }
}

function idOf({ dev, ino }: Stats): string {
  return `${dev}:${ino}`;
}

/** Whether the service that listens at the address of the settings is ready, and whether it saves. */
export async function runningServiceFinding({ host, port }: Pick<Config, 'host' | 'port'>): Promise<Finding> {
  const check = 'service';
  const local = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  const address = addressOf(local, port);
  try {
    const answer = await fetch(`${address}/health/ready`, { redirect: 'manual', signal: AbortSignal.timeout(5_000) });
    const body = v.safeParse(Readiness, await answer.json().catch(() => undefined));
    if (!body.success) return { check, result: 'warning', detail: `${address} is another program` };
    const { status, writes, reason, detail } = body.output;
    if (answer.status !== 200) return { check, result: 'failed', detail: `${address} is not ready: ${detail}` };
    if (writes === 'available') return { check, result: 'ok', detail: `the one that runs at ${address} is ${status}` };
    return { check, result: 'failed', detail: `${address} cannot save (${reason})` };
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') {
      return { check, result: 'failed', detail: `${address} has not answered in 5 s` };
    }
    return { check, result: 'ok', detail: `none runs at ${address}` };
  }
}

const Readiness = v.object({
  status: v.union([v.literal('ready'), v.number()]),
  writes: v.optional(v.string()),
  reason: v.optional(v.string()),
  detail: v.optional(v.string()),
});

/** Nothing where there is no such folder, or it may not be read. */
function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** The size of the log that lies beside a file. It must be asked before this process opens the database. */
export function logFinding(path: string): Finding {
  const bytes = statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  const detail = `${(bytes / 1_000_000).toFixed(1)} MB`;
  return bytes > largeLogBytes
    ? { check: 'log', result: 'warning', detail: `${detail}: a long read or a stopped process blocks checkpoints` }
    : { check: 'log', result: 'ok', detail };
}

export async function sqliteFinding({ $client }: Database): Promise<Finding> {
  const { rows } = await $client.execute('SELECT sqlite_version() AS version');
  const server = $client.protocol === 'file' ? '' : `; ${String(rows[0]?.version)} in the server`;
  return { check: 'sqlite', result: 'ok', detail: `${driverVersion()} in the driver${server}` };
}

/** Checks all pages of the database, one table after the other. */
export async function pagesFinding({ $client }: Database): Promise<Finding> {
  const check = 'pages';
  if ($client.protocol !== 'file') {
    return { check, result: 'warning', detail: 'of a libSQL server are checked on its host' };
  }
  const startedAtMs = performance.now();
  try {
    const { rows } = await $client.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0");
    const tables = rows.map(({ name }) => String(name));
    const corrupt: string[] = [];
    for (const [index, table] of tables.entries()) {
      if (performance.now() - startedAtMs > deepLimitMs) {
        const detail = `${index} of ${tables.length} tables checked in ten minutes; check a backup for the rest`;
        return { check, result: corrupt.length > 0 ? 'failed' : 'warning', detail };
      }
      if (process.stderr.isTTY)
        process.stderr.write(`\r\x1b[KChecking table ${index + 1} of ${tables.length}: ${table}`);
      if (!(await isSound($client, table))) corrupt.push(table);
    }
    return corrupt.length === 0
      ? { check, result: 'ok', detail: `of ${counted(tables.length, 'table')} are sound` }
      : { check, result: 'failed', detail: `of ${corrupt.join(', ')} are corrupt: restore a backup` };
  } catch (error) {
    return { check, result: 'failed', detail: `are corrupt (${toDatabaseError(error).code}): restore a backup` };
  } finally {
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  }
}

/** The messages of SQLite are only counted: they may quote bytes that are not UTF-8, over which the driver aborts. */
async function isSound(client: Database['$client'], table: string): Promise<boolean> {
  try {
    const sql = "SELECT count(*) AS faults FROM pragma_integrity_check(?) WHERE integrity_check <> 'ok'";
    const { rows } = await client.execute({ sql, args: [table] });
    return rows[0]?.faults === 0;
  } catch (error) {
    if (toDatabaseError(error).code === 'SQLITE_CORRUPT') return false;
    throw error;
  }
}
