import type { Client, InArgs, InStatement } from '@libsql/client';
import { beforeDeadline } from './deadline';
import { DatabaseError } from './errors';
import { gateCodes, schemaFit } from './schema-fit';
import { toStatement } from './statement';
import { wrapClient } from './wrap-client';

interface GateSettings {
  /** The longest that a statement may take, the look at the schema before it included. */
  readonly timeoutMs: number;
  /** How long a schema that somebody else migrates may go unseen. */
  readonly checkedEveryMs?: number;
}

/**
 * A client that sends nothing until the schema has been found fit for this build: of one that is too old or too new,
 * statements could fail in any way, and worse, succeed. Once found it is looked at again every few seconds, beside the
 * statements where there are many, and before the first of them after a pause.
 *
 * Its statements throw DatabaseError `SCHEMA_TOO_OLD` or `SCHEMA_TOO_NEW` meanwhile, which is unavailability: it ends
 * with a migration, or another build.
 */
export function gateBySchema(client: Client, { timeoutMs, checkedEveryMs = 5_000 }: GateSettings): Client {
  let isFit = false;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;

  const check = (): Promise<void> => {
    checking ??= schemaFit(client)
      .then((found) => {
        const unfit = gateCodes.find(({ fit }) => fit === found);
        isFit = unfit === undefined;
        checkedAtMs = performance.now();
        if (unfit !== undefined) throw new DatabaseError(unfit.code, true);
      })
      .finally(() => {
        checking = undefined;
      });
    return checking;
  };
  const through = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const unseenForMs = performance.now() - checkedAtMs;
    if (!isFit || unseenForMs > 2 * checkedEveryMs) {
      return beforeDeadline(check().then(work), timeoutMs);
    }
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
