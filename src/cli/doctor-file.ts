import { existsSync, readdirSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Database } from '../db/client';
import { toDatabaseError } from '../db/errors';
import { driverVersion } from '../db/local-connection';
import type { Finding } from './doctor';
import { counted } from './print';

/** A log of this size shows that a reader has blocked checkpoints for long. */
const largeLogBytes = 256 * 1024 * 1024;
/** `--deep` begins no further table after this time. */
const deepLimitMs = 600_000;

/** Whether running processes have this file open, or one that was removed or replaced. Only Linux can tell. */
export function openFileFindings(path: string): Finding[] {
  const check = 'open file';
  const holders = holdersOf(path);
  const stale = holders.filter(({ isStale }) => isStale).map(({ pid }) => pid);
  if (stale.length > 0) {
    const detail = `process ${stale.join(', ')} has a file open that was removed or replaced: stop it, put the right file in place, start it`;
    return [{ check, result: 'failed', detail }];
  }
  if (holders.length === 0) return [];
  return [{ check, result: 'ok', detail: `process ${holders.map(({ pid }) => pid).join(', ')} has it open` }];
}

function holdersOf(path: string): { readonly pid: string; readonly isStale: boolean }[] {
  const file = statSync(path, { throwIfNoEntry: false });
  const name = nameOf(path);
  const names = new Set([name, `${name} (deleted)`]);
  return list('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .flatMap((pid) => {
      const descriptors = list(`/proc/${pid}/fd`).map((descriptor) => `/proc/${pid}/fd/${descriptor}`);
      const open = descriptors.find((descriptor) => names.has(targetOf(descriptor)));
      if (open === undefined) return [];
      const opened = statSync(open, { throwIfNoEntry: false });
      return [{ pid, isStale: opened !== undefined && (opened.ino !== file?.ino || opened.dev !== file.dev) }];
    });
}

/** The path without links, also of a file that is gone. */
function nameOf(path: string): string {
  try {
    return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
  } catch {
    return path;
  }
}

/** Nothing where there is no such folder, or it may not be read. */
function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return '';
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
