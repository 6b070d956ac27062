import { readdirSync, readlinkSync, type Stats, statSync } from 'node:fs';
import type { Config } from '../config/settings';
import { absenceOf, closeDatabase, type Database, localPath, openDatabase, placeOf } from '../db/client';
import { driverVersion } from '../db/connection';
import { DatabaseFileError, keyRemedy, realPathOf } from '../db/database-file';
import { findDatabaseError, toDatabaseError } from '../db/errors';
import { remedyFor, reportSchema, type SchemaFinding } from '../db/migrate';
import { databaseClock } from '../db/queries';
import { incompatibilityMessage, incompatibilityOf, schemaState } from '../db/schema-check';
import { createWriteProbe, describeWriteFault } from '../db/sql-client';
import { findDemoData } from '../modules/demo-data/store';
import { createCatalogStore } from '../modules/matching/catalog-store';
import { commandName } from '../shared/build';
import { describeDemoRows } from './admin';
import { retentionWarnings } from './audit';
import type { Context } from './context';
import { counted } from './output';

/** A WAL of this size shows that a long read has blocked checkpoints. */
const largeLogBytes = 256 * 1024 * 1024;
/** `--deep` checks no further table after this time. */
const deepLimitMs = 600_000;
const maxClockSkewMs = 2_000;

export interface Finding {
  readonly check:
    | 'settings'
    | 'database'
    | 'open file'
    | 'service'
    | 'log'
    | 'sqlite'
    | 'pages'
    | 'replica'
    | 'schema'
    | 'demo data'
    | 'writes'
    | 'catalogue'
    | 'audit trail'
    | 'clock'
    | 'token keys'
    | 'token'
    | 'proxy'
    | 'carrier';
  readonly result: 'ok' | 'warning' | 'failed';
  readonly detail: string;
}

export async function databaseFindings(context: Context, config: Config, isDeep: boolean): Promise<Finding[]> {
  const { url } = config.database;
  const path = localPath(url);
  const openFiles = path === undefined ? [] : openFileFindings(path);
  // Opening the database can empty the log.
  const log = path === undefined ? [] : [logFinding(path)];
  const findings: Finding[] = [];
  let db: Database | undefined;
  try {
    const absence = absenceOf(url);
    if (absence !== undefined) {
      const remedy = config.isProduction ? `\`${commandName} migrate\` creates it` : 'the first start creates it';
      const detail = `${absence} If the path is right, ${remedy}.`;
      return [{ check: 'database', result: 'failed', detail }, ...openFiles];
    }
    db = await openDatabase({ ...config.database, isOwn: true });
    findings.push(...(await connectionFindings(db, config)), ...(await schemaFindings(db, config)), ...log);
  } catch (error) {
    findings.push({ check: 'database', result: 'failed', detail: unusableDetail(error, placeOf(url)) });
  }
  if (isDeep && db !== undefined) findings.push(await pagesFinding(context, db));
  if (db !== undefined) await closeDatabase(db);
  return [...findings, ...openFiles];
}

async function connectionFindings(db: Database, { database }: Config): Promise<Finding[]> {
  const startedAtMs = performance.now();
  const databaseMs = await databaseClock(db);
  const tookMs = performance.now() - startedAtMs;
  const encryption = database.encryptionKey === undefined ? '; it is not encrypted' : '; it is encrypted';
  const detail = `${placeOf(database.url)} responds in ${tookMs.toFixed(1)} ms`;
  return [
    { check: 'database', result: 'ok', detail: `${detail}${localPath(database.url) === undefined ? '' : encryption}` },
    clockFinding('the database', databaseMs, tookMs),
    await sqliteFinding(db),
  ];
}

function unusableDetail(error: unknown, place: string): string {
  const code = findDatabaseError(error)?.code;
  if (code === undefined) throw error;
  const state = incompatibilityOf(error);
  if (state !== undefined) return incompatibilityMessage(state, place);
  if (error instanceof DatabaseFileError) return error.advice;
  return `${place} cannot be used (${code})${keyRemedy(code).replace(/^ /, '. ')}`;
}

/** Compares the clock of this machine, which decides about the expiry of tokens and the age of applications. */
export function clockFinding(other: string, otherMs: number, toleranceMs: number): Finding {
  const skewMs = Math.abs(Date.now() - otherMs);
  const isClose = skewMs <= maxClockSkewMs + toleranceMs;
  const detail = isClose
    ? `agrees with ${other}`
    : `differs from ${other} by ${(skewMs / 1000).toFixed(0)} s: correct one of them`;
  return { check: 'clock', result: isClose ? 'ok' : 'failed', detail };
}

async function schemaFindings(db: Database, config: Config): Promise<Finding[]> {
  const check = 'schema';
  const place = placeOf(config.database.url);
  const state = await schemaState(db.$client);
  if (state !== 'compatible' && state !== 'too-old' && state !== 'too-new') {
    return [{ check, result: 'failed', detail: incompatibilityMessage(state, place) }];
  }
  const { blocking, warnings, objects } = await reportSchema(db);
  const toFinding = (result: 'failed' | 'warning', finding: SchemaFinding): Finding => {
    const remedy = result === 'failed' || finding.isRepairable ? `. ${remedyFor([finding])}` : '';
    return { check, result, detail: `${finding.detail}${remedy}` };
  };
  const differences = [
    ...blocking.map((finding) => toFinding('failed', finding)),
    ...warnings.map((finding) => toFinding('warning', finding)),
  ];
  if (state !== 'compatible')
    return [{ check, result: 'failed', detail: incompatibilityMessage(state, place) }, ...differences];
  const writes = writesFinding(await createWriteProbe(db.$client)(), place);
  if (blocking.length > 0) return [...differences, writes];
  const catalog = await createCatalogStore(db).findLatestVersion();
  const detail = `compatible with this build; ${objects} objects are as the migrations create them`;
  return [
    ...(differences.length > 0 ? differences : [{ check, result: 'ok', detail } as const]),
    ...(await demoFindings(db, config)),
    writes,
    catalog === undefined
      ? { check: 'catalogue', result: 'failed', detail: `none: run \`${commandName} seed\`` }
      : { check: 'catalogue', result: 'ok', detail: `version ${catalog.id} is current` },
    ...(await retentionWarnings(db, config.auditRetentionDays)).map(
      (detail) => ({ check: 'audit trail', result: 'warning', detail }) as const,
    ),
  ];
}

function writesFinding(code: string | undefined, place: string): Finding {
  const check = 'writes';
  if (code === undefined) return { check, result: 'ok', detail: 'a test row was written' };
  const fault = describeWriteFault(code);
  const detail =
    fault === undefined
      ? `writes fail (${code})${keyRemedy(code).replace(/^ /, '. ')}`
      : `${place}: ${fault.reason} (${code}). ${fault.remedy}`;
  return { check, result: 'failed', detail };
}

/** Reports demo data in production, and in a database that is not marked for development. */
async function demoFindings(db: Database, { isProduction }: Config): Promise<Finding[]> {
  const check = 'demo data';
  const { isMarked, ...found } = await findDemoData(db);
  const rows = describeDemoRows({ isMarked, ...found });
  if (isMarked && !isProduction) return [];
  if (rows !== undefined || isMarked) {
    const subject = isMarked ? 'the database is marked for development, and has' : 'the database has';
    const detail = `${subject} ${rows ?? 'no demo data'}: run \`${commandName} demo remove\``;
    return [{ check, result: isProduction ? 'failed' : 'warning', detail }];
  }
  if (found.referredStaff.length === 0) return [];
  return [{ check, result: 'warning', detail: `demo staff is still in use: ${found.referredStaff.join(', ')}` }];
}

/**
 * Finds the processes that have the database file, its log or its index open, and those that still have a removed or
 * replaced one open. Only Linux shows it.
 */
function openFileFindings(path: string): Finding[] {
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
  const name = realPathOf(path);
  const files = ['', '-wal', '-shm'].map((suffix) => {
    const stats = statSync(`${name}${suffix}`, { throwIfNoEntry: false });
    return { name: `${name}${suffix}`, id: stats && idOf(stats) };
  });
  return list('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .flatMap((pid) => {
      const open = list(`/proc/${pid}/fd`).flatMap((descriptor) => openFile(`/proc/${pid}/fd/${descriptor}`));
      const ids = new Set(open.map(({ id }) => id));
      // The file or its log: a process keeps the index of a database that it has closed; see openWalIndex.
      const isUser = files
        .slice(0, 2)
        .some(({ name, id }) => open.some((each) => each.name === name || each.id === id));
      if (!isUser) return [];
      const replaced = files.find((file) => open.some((each) => each.name === file.name && each.id !== file.id));
      const held = files.filter(({ id }) => id !== undefined && ids.has(id));
      if (replaced === undefined && held.length === 0) return [];
      // SQLite has all three open, or only the file.
      const hasLog = held.some((file) => file !== files[0]);
      const missing = hasLog ? files.find((file) => !held.includes(file)) : undefined;
      return [{ pid, stale: (replaced ?? missing)?.name }];
    });
}

/** The file of a descriptor by its name and inode; empty for a socket, and for a process that has ended. */
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

/** Empty for a folder that does not exist or is not readable. */
function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function logFinding(path: string): Finding {
  const bytes = statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  const detail = `${(bytes / 1_000_000).toFixed(1)} MB`;
  return bytes > largeLogBytes
    ? { check: 'log', result: 'warning', detail: `${detail}: a long read or a stopped process blocks checkpoints` }
    : { check: 'log', result: 'ok', detail };
}

async function sqliteFinding({ $client }: Database): Promise<Finding> {
  const { rows } = await $client.execute('SELECT sqlite_version() AS version');
  const server = $client.protocol === 'file' ? '' : `; ${String(rows[0]?.version)} in the server`;
  return { check: 'sqlite', result: 'ok', detail: `${driverVersion()} in the driver${server}` };
}

/** Checks every page of the database, table by table. */
async function pagesFinding({ stderr }: Context, { $client }: Database): Promise<Finding> {
  const check = 'pages';
  if ($client.protocol !== 'file') {
    return { check, result: 'warning', detail: 'not checked: the host of a libSQL server checks them' };
  }
  const show = (text: string) => {
    if (stderr.isTTY) stderr.write(`\r\x1b[K${text}`);
  };
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
      show(`Checking table ${index + 1} of ${tables.length}: ${table}`);
      if (!(await isSound($client, table))) corrupt.push(table);
    }
    return corrupt.length === 0
      ? { check, result: 'ok', detail: `no errors in ${counted(tables.length, 'table')}` }
      : { check, result: 'failed', detail: `corrupt tables: ${corrupt.join(', ')}. Restore a backup` };
  } catch (error) {
    return { check, result: 'failed', detail: `corrupt (${toDatabaseError(error).code}): restore a backup` };
  } finally {
    show('');
  }
}

/** Only counts the messages of SQLite: they may quote bytes that are not UTF-8, on which the driver aborts. */
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
