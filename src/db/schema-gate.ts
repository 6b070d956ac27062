import type { Client, InArgs, InStatement } from '@libsql/client';
import { DatabaseError } from './errors';
import { schemaFit } from './schema-fit';
import { toStatement } from './statement';
import { wrapClient } from './wrap-client';

/**
 * A client that sends nothing until the schema has been found fit for this build: of one that is too old or too new,
 * statements could fail in any way, and worse, succeed. Once found it is looked at again every few seconds beside the
 * statements, none of which waits for that.
 *
 * Its statements throw DatabaseError `SCHEMA_UNFIT` meanwhile, which is unavailability: it ends with a migration.
 *
 * @param checkedEveryMs how long a schema that somebody else migrates may go unseen
 */
export function gateBySchema(client: Client, checkedEveryMs = 5_000): Client {
  let isFit = false;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;

  const check = (): Promise<void> => {
    checking ??= schemaFit(client)
      .then((fit) => {
        isFit = fit === 'fit';
        if (!isFit) throw new DatabaseError('SCHEMA_UNFIT', true);
      })
      .finally(() => {
        checkedAtMs = performance.now();
        checking = undefined;
      });
    return checking;
  };
  const through = <Result>(work: () => Promise<Result>): Promise<Result> => {
    if (!isFit) return check().then(work);
    // A database that is away says nothing about its schema.
    if (performance.now() - checkedAtMs >= checkedEveryMs) check().catch(() => undefined);
    return work();
  };

  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => through(() => client.execute(toStatement(statement, args))),
    batch: (statements, mode) => through(() => client.batch(statements, mode)),
    executeMultiple: (sql) => through(() => client.executeMultiple(sql)),
  });
}
