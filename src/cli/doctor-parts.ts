import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { decodeJwt } from 'jose/jwt/decode';
import { type DescribedKey, fetchKeySet, KeySetError } from '../auth/key-set';
import { developmentSecret } from '../auth/signing';
import { createTokenVerifier, rolesIn } from '../auth/verifier';
import type { Config } from '../config/settings';
import { openDatabase, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { syncMarkerOf } from '../db/replica-process';
import { databaseId, schemaFit, unfitDetail } from '../db/schema-gate';
import { AppError, OperatorError } from '../errors';
import { counted, type Finding } from './output';

const shownKeys = 20;

/** Whether tokens can be checked; for a JWKS, which of its keys are usable and why the others are not. */
export async function tokenKeysFinding({ auth: { key } }: Config): Promise<Finding> {
  const check = 'token keys';
  if (key.kind === 'development') return { check, result: 'warning', detail: 'a development key, kept in data/' };
  if (key.kind === 'secret') return { check, result: 'ok', detail: 'AUTH_SECRET' };
  if (key.kind === 'public-key') return { check, result: 'ok', detail: 'AUTH_PUBLIC_KEY' };
  try {
    const { keys } = await fetchKeySet(new URL(key.url));
    const usable = keys.filter(({ fault }) => fault === undefined);
    const remarks = [...unusableKeys(keys), ...sharedIds(usable)];
    const named = usable.slice(0, shownKeys).map((each) => `${nameOf(each)} (${each.algorithms.join(', ')})`);
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
    .slice(0, shownKeys);
}

function sharedIds(keys: readonly DescribedKey[]): string[] {
  const ids = keys.flatMap(({ kid }) => kid ?? []);
  const shared = ids.filter((kid, index) => ids.indexOf(kid) < index);
  return [...new Set(shared)].map((kid) => `several keys have the kid ${quoted(kid)}`).slice(0, shownKeys);
}

function nameOf({ kid }: DescribedKey): string {
  return kid === undefined ? 'a key without kid' : quoted(kid);
}

/** In printable ASCII: the text is from the network and goes to a terminal. */
function quoted(kid: string): string {
  return `"${kid.slice(0, 64).replace(/[^\x20-\x7e]/g, '?')}"`;
}

/** Reports the check that a token fails, or its number of roles; never its values, except a role of this service. */
export async function tokenFinding({ auth: { key, ...claims } }: Config, path: string): Promise<Finding> {
  const check = 'token';
  const file = Bun.file(path);
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
    return { check, result: 'warning', detail: `passes; it has no claim ${rolesClaim}, so its caller has no role` };
  }
  const known = roles.includes(managerRole) ? `, ${managerRole} among them` : '';
  return { check, result: 'ok', detail: `passes; ${counted(roles.length, 'role')} in ${rolesClaim}${known}` };
}

/** Whether the configured replica could be read. */
export async function replicaFindings(config: Config): Promise<Finding[]> {
  switch (config.replica?.kind) {
    case 'server':
      return [await serverFinding(config, config.replica.url)];
    case 'file':
      return [fileFinding(config.replica.path)];
    default:
      return [];
  }
}

async function serverFinding({ database }: Config, url: string): Promise<Finding> {
  const check = 'replica';
  const place = placeOf(url);
  const [replica, primary] = await Promise.all([openDatabase({ ...database, url }), openDatabase(database)]);
  try {
    const fit = await schemaFit(replica.$client);
    if (fit !== 'fit') return { check, result: 'failed', detail: `${place} does not fit: ${unfitDetail[fit]}` };
    // Of a primary that is away, another finding tells.
    const primaryId = await databaseId(primary.$client).catch(() => undefined);
    return primaryId !== undefined && primaryId !== (await databaseId(replica.$client))
      ? { check, result: 'failed', detail: `${place} is a replica of another database than DATABASE_URL` }
      : { check, result: 'ok', detail: `${place} answers, and has the schema` };
  } catch (error) {
    const code = findDatabaseError(error)?.code;
    if (code === undefined) throw error;
    return { check, result: 'failed', detail: `${place} cannot be used (${code})` };
  } finally {
    for (const { $client } of [replica, primary]) $client.close();
  }
}

function fileFinding(path: string): Finding {
  const check = 'replica';
  const place = resolve(path);
  try {
    accessSync(nearestFolder(dirname(place)), constants.W_OK);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    return { check, result: 'failed', detail: `${place} is in a folder that cannot be written to (${code})` };
  }
  if (existsSync(syncMarkerOf(place))) return { check, result: 'ok', detail: `${place} has been whole` };
  return existsSync(place) && !existsSync(`${place}-client_wal_index`)
    ? { check, result: 'failed', detail: `${place} is no replica: move it away, or set another path` }
    : { check, result: 'ok', detail: `${place} is made when the service starts` };
}

/** The service makes what is missing below it. */
function nearestFolder(path: string): string {
  if (!existsSync(path)) return nearestFolder(dirname(path));
  return statSync(path).isDirectory() ? path : `${path}/`;
}
