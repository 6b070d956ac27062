import type { Client, InArgs, InStatement } from '@libsql/client';
import { beforeDeadline } from './deadline';
import { DatabaseError } from './errors';
import { databaseId, gateCodes, schemaFit } from './schema-fit';
import { toStatement } from './statement';
import { wrapClient } from './wrap-client';

export interface GateSettings {
  /** The longest that a statement may take, the look at the schema before it included. */
  readonly timeoutMs: number;
  /** How long a schema that somebody else migrates may go unseen. */
  readonly checkedEveryMs?: number;
  /** The primary of which it must be a replica. */
  readonly replicaOf?: Client;
  /** Called with the code of the error once nothing is let through any more, and without one when it is again. */
  readonly onChange?: (code?: string) => void;
}

/** How long the look at a replica waits to learn which database its primary has. */
const primaryPatienceMs = 250;

/**
 * A client that sends nothing until the schema has been found fit for this build: of one that is too old or too new,
 * statements could fail in any way, and worse, succeed. Once found it is looked at again every few seconds, beside the
 * statements where there are many, and before the first of them after a pause.
 *
 * Its statements throw DatabaseError `SCHEMA_TOO_OLD`, `SCHEMA_TOO_NEW` or `REPLICA_OF_ANOTHER` meanwhile, which is
 * unavailability: it ends with a migration, or another build.
 */
export function gateBySchema(client: Client, settings: GateSettings): Client {
  const { timeoutMs, checkedEveryMs = 5_000, replicaOf, onChange } = settings;
  let isFit = false;
  let lastCode: string | undefined;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;
  let primaryId: string | undefined;

  const learnPrimaryId = async (primary: Client): Promise<string | undefined> => {
    if (primaryId !== undefined) return primaryId;
    const id = await databaseId(primary).catch(() => undefined);
    primaryId ??= id;
    return primaryId;
  };
  // At once, so that no statement waits for it once the primary is away.
  if (replicaOf !== undefined) void learnPrimaryId(replicaOf);

  const findFault = async (): Promise<string | undefined> => {
    const found = await schemaFit(client);
    const unfit = gateCodes.find(({ fit }) => fit === found);
    if (unfit !== undefined || replicaOf === undefined) return unfit?.code;
    const id = await beforeDeadline(learnPrimaryId(replicaOf), primaryPatienceMs).catch(() => undefined);
    if (id === undefined) return undefined;
    return (await databaseId(client)) === id ? undefined : 'REPLICA_OF_ANOTHER';
  };
  const check = (): Promise<void> => {
    checking ??= findFault()
      .then((code) => {
        if (code !== lastCode) onChange?.(code);
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
  const through = <Result>(work: () => Promise<Result>): Promise<Result> => {
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
