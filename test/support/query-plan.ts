import { type Database, toDatabase } from '../../src/db/client';
import type { SqlStatement } from '../../src/db/sql-client';

/** The query plan of the first query or change that `work` sends, one line for each step. */
export async function explainFirst({ $client }: Database, work: (watched: Database) => Promise<unknown>) {
  const sent: SqlStatement[] = [];
  const watched = toDatabase({
    ...$client,
    read(sql, args) {
      sent.push({ sql, args });
      return $client.read(sql, args);
    },
    write(statements) {
      sent.push(...statements);
      return $client.write(statements);
    },
  });
  await work(watched);
  const [statement] = sent;
  if (statement === undefined) throw new Error('Nothing was sent');
  const { rows } = await $client.exec(`EXPLAIN QUERY PLAN ${statement.sql}`, statement.args);
  return rows.map(({ detail }) => String(detail));
}
