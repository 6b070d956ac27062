import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { Command } from 'commander';
import { decodeJwt } from 'jose/jwt/decode';
import * as v from 'valibot';
import { type DescribedKey, fetchKeySet, KeySetError } from '../auth/key-set';
import { developmentSecret, readDevelopmentSecret } from '../auth/signing';
import { createTokenVerifier, rolesIn } from '../auth/verifier';
import { settingSources } from '../config/env-files';
import { type Config, readConfig } from '../config/settings';
import { openDatabase, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { syncMarkerOf } from '../db/replica-process';
import { databaseId, incompatibilityDetails, schemaState } from '../db/schema-check';
import { AppError, errorCode, OperatorError } from '../errors';
import { describeZone } from '../shared/calendar';
import { addressOf } from '../start/listen';
import { proxyHostFor } from '../start/services';
import type { Context } from './context';
import { clockFinding, databaseFindings, type Finding } from './doctor-database';
import { counted, printResult, toTable } from './output';

const timeoutMs = 5_000;
const maxShownKeys = 20;

interface DoctorOptions {
  readonly tokenFile?: string;
  readonly deep: boolean;
  readonly json: boolean;
}

export function doctorCommand(context: Context): Command {
  return new Command('doctor')
    .description(
      'Check whether the service can run here: settings, database, replica, schema, clock, token keys, carrier',
    )
    .option('--deep', 'also check every page of the database file; takes about a minute a gigabyte', false)
    .option('--token-file <path>', 'also check the token in this file and its roles')
    .option('--json', 'print the findings as JSON', false)
    .addHelpText('after', '\nThe command changes no data. The exit code is 1 if a check failed.')
    .action(async (options: DoctorOptions) => {
      const config = readConfig(context.env, readDevelopmentSecret());
      const findings = [
        ...settingsFindings(config),
        ...proxyFindings(config, context),
        ...(await databaseFindings(context, config, options.deep)),
        await serviceFinding(config),
        ...(await replicaFindings(config)),
        await tokenKeysFinding(config),
        ...(options.tokenFile === undefined ? [] : [await tokenFinding(context, config, options.tokenFile)]),
        ...(await carrierFindings(config)),
      ];
      const rows = findings.map(({ check, result, detail }) => [result, check, detail]);
      printResult(context, options, { findings }, toTable(['result', 'check', 'detail'], rows));
      const failed = findings.filter(({ result }) => result === 'failed').length;
      if (failed > 0) throw new OperatorError(`${counted(failed, 'check')} failed.`);
    });
}

function settingsFindings({ isProduction, warnings, reportTimeZone }: Config): Finding[] {
  const mode = isProduction ? 'production' : 'development, with defaults that production rejects';
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

/** Lists the hosts that are called through a proxy. WebSockets and the sync of an embedded replica use none. */
function proxyFindings(config: Config, { env }: Context): Finding[] {
  const { database, replica, auth, carrier, tracing } = config;
  const addresses = [
    database.url,
    replica?.kind === 'server' ? replica.url : undefined,
    auth.key.kind === 'jwks' ? auth.key.url : undefined,
    carrier.url,
    tracing?.endpoint,
  ].flatMap((address) => address?.replace(/^libsql:(?=.*[?&]tls=0)/, 'http:').replace(/^libsql:/, 'https:') ?? []);
  return addresses.flatMap((address): Finding[] => {
    const proxy = /^https?:/.test(address) ? proxyHostFor(address, env) : undefined;
    if (proxy === undefined) return [];
    return [{ check: 'proxy', result: 'ok', detail: `${new URL(address).host} is called through ${proxy}` }];
  });
}

const Readiness = v.object({
  status: v.union([v.literal('ready'), v.number()]),
  writes: v.optional(v.string()),
  reason: v.optional(v.string()),
  detail: v.optional(v.string()),
});

/** Checks the readiness of the service that listens at the address of the settings. */
async function serviceFinding({ host, port }: Config): Promise<Finding> {
  const check = 'service';
  const local = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  const address = addressOf(local, port);
  const response = await get(`${address}/health/ready`);
  if (response === 'TIMEOUT') {
    return { check, result: 'failed', detail: `${address} did not respond within ${timeoutMs / 1000} s` };
  }
  if (typeof response === 'string') return { check, result: 'ok', detail: `none runs at ${address}` };
  const body = v.safeParse(Readiness, await response.json().catch(() => undefined));
  if (!body.success) return { check, result: 'warning', detail: `${address} is another program` };
  const { status, writes, reason, detail } = body.output;
  if (response.status !== 200) return { check, result: 'failed', detail: `${address} is not ready: ${detail}` };
  if (writes === 'available') return { check, result: 'ok', detail: `the service at ${address} is ${status}` };
  return { check, result: 'failed', detail: `${address} cannot save (${reason})` };
}

/** The response to one GET, or the code of a failure. */
async function get(url: string, headers: Record<string, string> = {}): Promise<Response | string> {
  try {
    return await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') return 'TIMEOUT';
    return errorCode(error, 'no connection');
  }
}

async function carrierFindings({ carrier: { url, apiKey } }: Config): Promise<Finding[]> {
  const check = 'carrier';
  if (url === undefined) return [{ check, result: 'warning', detail: 'the sandbox, inside the service' }];
  const startedAtMs = performance.now();
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await get(`${url}/applications/doctor-${crypto.randomUUID()}`, headers);
  if (typeof response === 'string') {
    const reason = response === 'TIMEOUT' ? `no response within ${timeoutMs / 1000} s` : response;
    return [{ check, result: 'failed', detail: `CARRIER_URL cannot be reached (${reason})` }];
  }
  await response.body?.cancel();
  if (response.status !== 404) {
    const isKey = response.status === 401 || response.status === 403;
    const detail = isKey ? 'the carrier rejects CARRIER_API_KEY' : `CARRIER_URL responds with ${response.status}`;
    return [{ check, result: 'failed', detail }];
  }
  const found: Finding = { check, result: 'ok', detail: 'responds, and accepts the key' };
  const date = Date.parse(response.headers.get('date') ?? '');
  // The header has whole seconds.
  const clock = clockFinding('the carrier', date + 500, performance.now() - startedAtMs + 500);
  return Number.isNaN(date) ? [found] : [found, clock];
}

/** Checks the keys for tokens; for a JWKS, lists the usable keys and the faults of the others. */
async function tokenKeysFinding({ auth: { key } }: Config): Promise<Finding> {
  const check = 'token keys';
  if (key.kind === 'development') return { check, result: 'warning', detail: 'a development key, kept in data/' };
  if (key.kind === 'secret') return { check, result: 'ok', detail: 'AUTH_SECRET' };
  if (key.kind === 'public-key') return { check, result: 'ok', detail: 'AUTH_PUBLIC_KEY' };
  try {
    const { keys } = await fetchKeySet(new URL(key.url));
    const usable = keys.filter(({ fault }) => fault === undefined);
    const remarks = [...unusableKeys(keys), ...sharedIds(usable)];
    const named = usable.slice(0, maxShownKeys).map((each) => `${nameOf(each)} (${each.algorithms.join(', ')})`);
    return {
      check,
      result: remarks.length === 0 ? 'ok' : 'warning',
      detail: [`AUTH_JWKS_URL has ${counted(usable.length, 'usable key')}: ${named.join(', ')}`, ...remarks].join('; '),
    };
  } catch (error) {
    if (!(error instanceof KeySetError)) throw error;
    const detail = [`AUTH_JWKS_URL ${error.message}`, ...unusableKeys(error.keys)].join('; ');
    return { check, result: 'failed', detail };
  }
}

function unusableKeys(keys: readonly DescribedKey[]): string[] {
  return keys
    .flatMap((key) => (key.fault === undefined ? [] : [`${nameOf(key)} is not usable: ${key.fault}`]))
    .slice(0, maxShownKeys);
}

function sharedIds(keys: readonly DescribedKey[]): string[] {
  const ids = keys.flatMap(({ kid }) => kid ?? []);
  const shared = ids.filter((kid, index) => ids.indexOf(kid) < index);
  return [...new Set(shared)].map((kid) => `several keys have the kid ${quoted(kid)}`).slice(0, maxShownKeys);
}

function nameOf({ kid }: DescribedKey): string {
  return kid === undefined ? 'a key without kid' : quoted(kid);
}

/** Quotes a `kid` in printable ASCII, because it comes from the network and goes to a terminal. */
function quoted(kid: string): string {
  return `"${kid.slice(0, 64).replace(/[^\x20-\x7e]/g, '?')}"`;
}

/** Reports the check that a token fails, or its number of roles; never its values, except a role of this service. */
async function tokenFinding({ cwd }: Context, { auth: { key, ...claims } }: Config, path: string): Promise<Finding> {
  const check = 'token';
  const file = Bun.file(resolve(cwd, path));
  if (!(await file.exists())) throw new OperatorError(`There is no file ${path}.`);
  const token = (await file.text()).trim();
  const settings = key.kind === 'development' ? { kind: 'secret' as const, secret: developmentSecret() } : key;
  const now = () => new Date();
  const verify = await createTokenVerifier({ key: settings, ...claims }, now, () => performance.now());
  try {
    await verify(token);
  } catch (error) {
    if (error instanceof AppError) return { check, result: 'failed', detail: error.detail };
    throw error;
  }
  const { managerRole } = await import('../http/auth');
  const { rolesClaim } = claims;
  const roles = rolesIn(decodeJwt(token), rolesClaim);
  if (roles === undefined) {
    return { check, result: 'warning', detail: `valid, without roles: it has no claim ${rolesClaim}` };
  }
  const known = roles.includes(managerRole) ? `, including ${managerRole}` : '';
  return { check, result: 'ok', detail: `valid; ${counted(roles.length, 'role')} in ${rolesClaim}${known}` };
}

async function replicaFindings(config: Config): Promise<Finding[]> {
  switch (config.replica?.kind) {
    case 'server':
      return [await serverReplicaFinding(config, config.replica.url)];
    case 'file':
      return [fileReplicaFinding(config.replica.path)];
    default:
      return [];
  }
}

async function serverReplicaFinding({ database }: Config, url: string): Promise<Finding> {
  const check = 'replica';
  const place = placeOf(url);
  const [replica, primary] = await Promise.all([openDatabase({ ...database, url }), openDatabase(database)]);
  try {
    const state = await schemaState(replica.$client);
    if (state !== 'compatible')
      return { check, result: 'failed', detail: `${place} is incompatible: ${incompatibilityDetails[state]}` };
    // Another finding reports an unavailable primary.
    const primaryId = await databaseId(primary.$client).catch(() => undefined);
    return primaryId !== undefined && primaryId !== (await databaseId(replica.$client))
      ? { check, result: 'failed', detail: `${place} is a replica of another database than DATABASE_URL` }
      : { check, result: 'ok', detail: `${place} responds, and has the schema` };
  } catch (error) {
    const code = findDatabaseError(error)?.code;
    if (code === undefined) throw error;
    return { check, result: 'failed', detail: `${place} cannot be used (${code})` };
  } finally {
    for (const { $client } of [replica, primary]) $client.close();
  }
}

function fileReplicaFinding(path: string): Finding {
  const check = 'replica';
  const place = resolve(path);
  try {
    accessSync(nearestFolder(dirname(place)), constants.W_OK);
  } catch (error) {
    return { check, result: 'failed', detail: `${place} is in a folder that is not writable (${errorCode(error)})` };
  }
  if (existsSync(syncMarkerOf(place))) return { check, result: 'ok', detail: `${place} has been synced` };
  return existsSync(place) && !existsSync(`${place}-client_wal_index`)
    ? { check, result: 'failed', detail: `${place} is not a replica: move it away, or set another path` }
    : { check, result: 'ok', detail: `the start of the service creates ${place}` };
}

/** The nearest existing folder, in which the service creates the missing ones. */
function nearestFolder(path: string): string {
  if (!existsSync(path)) return nearestFolder(dirname(path));
  return statSync(path).isDirectory() ? path : `${path}/`;
}
