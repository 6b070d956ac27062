import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Config } from '../config';
import { openDatabase, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { syncedMark } from '../db/replica-messages';
import { databaseId, schemaFit, unfitDetail } from '../db/schema-fit';
import type { Finding } from './print';

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
  if (existsSync(syncedMark(place))) return { check, result: 'ok', detail: `${place} has been whole` };
  return existsSync(place) && !existsSync(`${place}-client_wal_index`)
    ? { check, result: 'failed', detail: `${place} is no replica: move it away, or set another path` }
    : { check, result: 'ok', detail: `${place} is made when the service starts` };
}

/** The service makes what is missing below it. */
function nearestFolder(path: string): string {
  if (!existsSync(path)) return nearestFolder(dirname(path));
  return statSync(path).isDirectory() ? path : `${path}/`;
}
