import { Command } from 'commander';
import { readDevelopmentSecret } from '../auth/signing';
import { settingSources } from '../config/env-files';
import { type Config, readConfig } from '../config/settings';
import { absenceOf, type Database, localPath, openDatabase, placeOf } from '../db/client';
import { DatabaseFileError } from '../db/database-file';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError } from '../db/errors';
import { remedyFor, reportSchema, type SchemaFinding } from '../db/migrate';
import { schemaFit, unfitMessage, unfitOf } from '../db/schema-gate';
import { databaseClock } from '../db/statements';
import { createWriteProbe, describeWriteFault } from '../db/write-health';
import { OperatorError } from '../errors';
import { findDemoData } from '../modules/demo-data/store';
import { createCatalogStore } from '../modules/matching/store';
import { commandName } from '../shared/build';
import { describeZone } from '../shared/calendar';
import { proxyHostFor } from '../start/services';
import { describeDemoRows } from './admin';
import { retentionFindings } from './audit';
import { logFinding, openFileFindings, pagesFinding, runningServiceFinding, sqliteFinding } from './doctor-file';
import { replicaFindings, tokenFinding, tokenKeysFinding } from './doctor-parts';
import type { Finding } from './output';
import { counted, printResult, toTable } from './output';

const maxClockSkewMs = 2_000;

export function doctorCommand(): Command {
  return new Command('doctor')
    .description(
      'Look whether the service could run here: settings, database, replica, schema, clock, token keys, carrier',
    )
    .option('--deep', 'also check every page of the database file; takes about a minute a gigabyte', false)
    .option('--token-file <path>', 'also check the token in this file and its roles')
    .option('--json', 'print the findings as JSON', false)
    .addHelpText('after', '\nIt changes no data. The exit code is 1 if anything has failed.')
    .action(async (options: { tokenFile?: string; deep: boolean; json: boolean }) => {
      const config = readConfig(process.env, readDevelopmentSecret());
      const findings = [
        ...settingsFindings(config),
        ...proxyFindings(config, process.env),
        ...(await databaseFindings(config, options.deep)),
        await runningServiceFinding(config),
        ...(await replicaFindings(config)),
        await tokenKeysFinding(config),
        ...(options.tokenFile === undefined ? [] : [await tokenFinding(config, options.tokenFile)]),
        ...(await carrierFindings(config)),
      ];
      const rows = findings.map(({ check, result, detail }) => [result, check, detail]);
      printResult(options, { findings }, toTable(['result', 'check', 'detail'], rows));
      const failed = findings.filter(({ result }) => result === 'failed').length;
      if (failed > 0) throw new OperatorError(`${counted(failed, 'check')} failed.`);
    });
}

function settingsFindings({ isProduction, warnings, reportTimeZone }: Config): Finding[] {
  const mode = isProduction ? 'production' : 'development, with defaults that production refuses';
  const sources = settingSources();
  const from =
    sources === undefined ? '' : `; from the environment${sources.files.map((file) => ` and ${file}`).join('')}`;
  return [
    {
      check: 'settings',
      result: isProduction ? 'ok' : 'warning',
      detail: `${mode}${from}; months and ages in ${describeZone(reportTimeZone, new Date())}`,
    },
    ...warnings.map(({ key, rule }): Finding => ({ check: 'settings', result: 'warning', detail: `${key} ${rule}` })),
  ];
}

/** Lists the addresses that are called through a proxy. WebSockets and the sync of a replica's file use none. */
function proxyFindings(config: Config, environment: Readonly<Record<string, string | undefined>>): Finding[] {
  const { database, replica, auth, carrier, tracing } = config;
  const addresses = [
    database.url,
    replica?.kind === 'server' ? replica.url : undefined,
    auth.key.kind === 'jwks' ? auth.key.url : undefined,
    carrier.url,
    tracing?.endpoint,
  ].flatMap((address) => address?.replace(/^libsql:(?=.*[?&]tls=0)/, 'http:').replace(/^libsql:/, 'https:') ?? []);
  return addresses.flatMap((address): Finding[] => {
    const proxy = /^https?:/.test(address) ? proxyHostFor(address, environment) : undefined;
    if (proxy === undefined) return [];
    return [{ check: 'proxy', result: 'ok', detail: `${new URL(address).host} is called through ${proxy}` }];
  });
}

async function databaseFindings(config: Config, isDeep: boolean): Promise<Finding[]> {
  const path = localPath(config.database.url);
  const place = placeOf(config.database.url);
  const fileFindings = path === undefined ? [] : openFileFindings(path);
  const log = path === undefined ? [] : [logFinding(path)];
  const findings: Finding[] = [];
  let db: Database | undefined;
  try {
    const absence = absenceOf(config.database.url);
    if (absence !== undefined) {
      const remedy = config.isProduction ? `\`${commandName} migrate\` creates it` : 'the first start creates it';
      const detail = `${absence} If the path is right, ${remedy}.`;
      return [{ check: 'database', result: 'failed', detail }, ...fileFindings];
    }
    db = await openDatabase({ ...config.database, isOwn: true });
    const startedAtMs = performance.now();
    const databaseMs = await databaseClock(db);
    const tookMs = performance.now() - startedAtMs;
    const reachable = {
      check: 'database',
      result: 'ok',
      detail: `${place} answers in ${tookMs.toFixed(1)} ms${path === undefined ? '' : encryptionOf(config)}`,
    } as const;
    const clock = clockFinding('the database', databaseMs, tookMs);
    findings.push(reachable, clock, await sqliteFinding(db), ...(await schemaFindings(db, config)), ...log);
  } catch (error) {
    const code = findDatabaseError(error)?.code;
    if (code === undefined) throw error;
    const fit = unfitOf(error);
    const remedy = keyRemedy(code);
    const detail =
      fit !== undefined
        ? unfitMessage(fit, place)
        : error instanceof DatabaseFileError
          ? error.advice
          : `${place} cannot be used (${code})${remedy === '' ? '' : `.${remedy}`}`;
    findings.push({ check: 'database', result: 'failed', detail });
  }
  if (isDeep && db !== undefined) findings.push(await pagesFinding(db));
  db?.$client.close();
  return [...findings, ...fileFindings];
}

/** What was opened with a key is encrypted, and what was opened without one is not. */
function encryptionOf({ database }: Config): string {
  return database.encryptionKey === undefined ? '; it is not encrypted' : '; it is encrypted';
}

async function schemaFindings(db: Database, config: Config): Promise<Finding[]> {
  const check = 'schema';
  const fit = await schemaFit(db.$client);
  if (fit !== 'fit' && fit !== 'too-old' && fit !== 'too-new') {
    return [{ check, result: 'failed', detail: unfitMessage(fit, placeOf(config.database.url)) }];
  }
  const { blocking, warnings, objects } = await reportSchema(db);
  const toFinding = (result: 'failed' | 'warning', finding: SchemaFinding): Finding => {
    const remedy = result === 'failed' || finding.isRepairable ? `. ${remedyFor([finding])}` : '';
    return { check, result, detail: `${finding.detail}${remedy}` };
  };
  const differing = [
    ...blocking.map((finding) => toFinding('failed', finding)),
    ...warnings.map((finding) => toFinding('warning', finding)),
  ];
  if (fit !== 'fit') {
    return [{ check, result: 'failed', detail: unfitMessage(fit, placeOf(config.database.url)) }, ...differing];
  }
  const whyUnwritable = await createWriteProbe(db.$client)();
  const writes: Finding =
    whyUnwritable === undefined
      ? { check: 'writes', result: 'ok', detail: 'a row can be written' }
      : { check: 'writes', result: 'failed', detail: unwritable(whyUnwritable, placeOf(config.database.url)) };
  if (blocking.length > 0) return [...differing, writes];
  const catalog = await createCatalogStore(db).findLatestVersion();
  const whole: Finding = {
    check,
    result: 'ok',
    detail: `fits this build; ${objects} objects are as the migrations create them`,
  };
  return [
    ...(differing.length > 0 ? differing : [whole]),
    ...(await demoFindings(db, config)),
    writes,
    catalog === undefined
      ? { check: 'catalogue', result: 'failed', detail: `none: run \`${commandName} seed\`` }
      : { check: 'catalogue', result: 'ok', detail: `version ${catalog.id} is in force` },
    ...(await retentionFindings(db, config.auditRetentionDays)),
  ];
}

function unwritable(code: string, place: string): string {
  const fault = describeWriteFault(code);
  if (fault !== undefined) return `${place}: ${fault.reason} (${code}). ${fault.remedy}`;
  return `nothing can be written (${code})${keyRemedy(code).replace(/^ /, '. ')}`;
}

/** Finds demo data where it does not belong: in production, and in a database that is not marked for development. */
async function demoFindings(db: Database, { isProduction }: Config): Promise<Finding[]> {
  const check = 'demo data';
  const found = await findDemoData(db);
  const rows = describeDemoRows(found);
  if (found.isMarked && !isProduction) return [];
  if (rows !== undefined || found.isMarked) {
    const mark = found.isMarked ? 'the database is marked for development, and holds' : 'the database holds';
    const detail = `${mark} ${rows ?? 'no demo data'}: run \`${commandName} demo remove\``;
    return [{ check, result: isProduction ? 'failed' : 'warning', detail }];
  }
  if (found.referredStaff.length === 0) return [];
  return [{ check, result: 'warning', detail: `demo staff is still in use: ${found.referredStaff.join(', ')}` }];
}

/** Tokens expire, and applications grow stale, by this machine's clock. */
function clockFinding(other: string, otherMs: number, tookMs: number): Finding {
  const skewMs = Math.abs(Date.now() - otherMs);
  const isClose = skewMs <= maxClockSkewMs + tookMs;
  const detail = isClose
    ? `agrees with ${other}`
    : `differs from ${other} by ${(skewMs / 1000).toFixed(0)} s: set one of them right`;
  return { check: 'clock', result: isClose ? 'ok' : 'failed', detail };
}

async function carrierFindings({ carrier: { url, apiKey } }: Config): Promise<Finding[]> {
  const check = 'carrier';
  if (url === undefined) return [{ check, result: 'warning', detail: 'the sandbox, inside the service' }];
  const startedAtMs = performance.now();
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const answer = await ask(`${url}/applications/doctor-${crypto.randomUUID()}`, headers);
  if (typeof answer === 'string' || answer.status !== 404) {
    const isKey = typeof answer !== 'string' && (answer.status === 401 || answer.status === 403);
    const detail = isKey ? 'CARRIER_API_KEY is refused' : `CARRIER_URL ${failureOf(answer)}`;
    return [{ check, result: 'failed', detail }];
  }
  const found: Finding = { check, result: 'ok', detail: 'answers, and takes the key' };
  const date = Date.parse(answer.headers.get('date') ?? '');
  // The header has whole seconds.
  const clock = clockFinding('the carrier', date + 500, performance.now() - startedAtMs + 500);
  return Number.isNaN(date) ? [found] : [found, clock];
}

/** One GET, or what is wrong with it as a code. */
async function ask(url: string, headers: Record<string, string> = {}): Promise<Response | string> {
  try {
    const answer = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(5_000) });
    await answer.body?.cancel();
    return answer;
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') return 'no answer in 5 s';
    return error instanceof Error && 'code' in error ? String(error.code) : 'no connection';
  }
}

function failureOf(answer: Response | string): string {
  return typeof answer === 'string' ? `cannot be reached (${answer})` : `answers ${answer.status}`;
}
