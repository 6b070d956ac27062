import type { Client, InArgs, InStatement } from '@libsql/client';
import { beforeDeadline } from './deadline';
import { DatabaseError, findDatabaseError, reasonOf } from './errors';
import { blockingObjects } from './schema-comparison';
import { databaseId, gateCodes, schemaState } from './schema-fit';
import { toStatement } from './statement';
import { wrapClient } from './wrap-client';

/** Whether the tables may be other ones than before; a server that was started on an empty folder knows no stream. */
function isSchemaFault(error: unknown): boolean {
  if (findDatabaseError(error)?.code === 'HTTP_404') return true;
  return /no such (?:table|column)|has no column named/.test(reasonOf(error));
}

export interface GateSettings {
  /** The longest that a statement may take, the look at the schema before it included. */
  readonly timeoutMs: number;
  /** The longest time until a change of the schema is noticed, while there are statements. */
  readonly checkedEveryMs?: number;
  /** The primary of which it must be a replica. */
  readonly replicaOf?: Client;
  /** Called with the code of the error when statements are refused from now on, and without one when they are sent again. */
  readonly onChange?: (code?: string, objects?: string[]) => void;
}

/** How long the look at a replica waits to learn which database its primary has. */
const primaryPatienceMs = 250;

/**
 * Returns a client that sends no statement until the schema is known to fit this build: on one that is too old, too new or
 * damaged, statements could fail in any way, or succeed without the audit trail. The check is repeated every few seconds,
 * beside the statements where there are many, before the first one after a pause, and after a statement that finds no
 * table or column. It compares the whole schema again when SQLite has counted a change.
 *
 * Meanwhile its statements throw DatabaseError `SCHEMA_TOO_OLD`, `SCHEMA_TOO_NEW`, `SCHEMA_DAMAGED` or
 * `REPLICA_OF_ANOTHER`. These are unavailability, which a migration, a repair or another build ends.
 */
export function gateBySchema(client: Client, settings: GateSettings): Client {
  const { timeoutMs, checkedEveryMs = 5_000, replicaOf, onChange } = settings;
  let isFit = false;
  let lastCode: string | undefined;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;
  let primaryId: string | undefined;
  let comparedVersion: number | undefined;
  let damage: string[] = [];

  const learnPrimaryId = async (primary: Client): Promise<string | undefined> => {
    if (primaryId !== undefined) return primaryId;
    const id = await databaseId(primary).catch(() => undefined);
    primaryId ??= id;
    return primaryId;
  };
  // At once, so that no statement waits for it once the primary is away.
  if (replicaOf !== undefined) void learnPrimaryId(replicaOf);

  const findFault = async (): Promise<string | undefined> => {
    const found = await schemaState(client);
    const unfit = gateCodes.find(({ fit }) => fit === found.fit);
    if (unfit !== undefined) return unfit.code;
    if (found.schemaVersion !== comparedVersion) {
      damage = await blockingObjects(client);
      comparedVersion = found.schemaVersion;
    }
    if (damage.length > 0) return 'SCHEMA_DAMAGED';
    if (replicaOf === undefined) return undefined;
    const id = await beforeDeadline(learnPrimaryId(replicaOf), primaryPatienceMs).catch(() => undefined);
    if (id === undefined) return undefined;
    return (await databaseId(client)) === id ? undefined : 'REPLICA_OF_ANOTHER';
  };
  const check = (): Promise<void> => {
    checking ??= findFault()
      .then((code) => {
        if (code !== lastCode) onChange?.(code, code === 'SCHEMA_DAMAGED' ? damage : undefined);
        lastCode = code;
        isFit = code === undefined;
        checkedAtMs = performance.now();
        if (code !== undefined) throw new DatabaseError(code, true);
      })
      .finally(() => {
        checking = undefined;
      });
    return checking;
  };
  /** A statement that finds no table or column has met a schema that changed after the last check. */
  const recheckedOnFault = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      if (!isSchemaFault(error)) throw error;
      comparedVersion = undefined;
      await check();
      throw error;
    }
  };
  const through = <Result>(statement: () => Promise<Result>): Promise<Result> => {
    const work = () => recheckedOnFault(statement);
    const unseenForMs = performance.now() - checkedAtMs;
    if (!isFit || unseenForMs > 2 * checkedEveryMs) return beforeDeadline(check().then(work), timeoutMs);
    // A database that is away says nothing about its schema.
    if (unseenForMs >= checkedEveryMs) check().catch(() => undefined);
    return work();
  };

  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => through(() => client.execute(toStatement(statement, args))),
    batch: (statements, mode) => through(() => client.batch(statements, mode)),
    executeMultiple: (sql) => through(() => client.executeMultiple(sql)),
  });
}
