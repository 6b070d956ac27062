import type { InStatement } from '@libsql/client';
import { drizzle } from 'drizzle-orm/libsql';
import type { Database } from '../../src/db/client';

/** The query plan of the first statement that `work` sends, one line for each step. */
export async function explainFirst({ $client }: Database, work: (watched: Database) => Promise<unknown>) {
  const sent: InStatement[] = [];
  const execute = (statement: InStatement) => {
    sent.push(statement);
    return $client.execute(statement);
  };
  await work(drizzle({ client: { ...$client, execute, closed: false, protocol: 'file' } }));
  const [statement] = sent;
  if (typeof statement !== 'object') throw new Error('No statement was sent');
  const { rows } = await $client.execute({ ...statement, sql: `EXPLAIN QUERY PLAN ${statement.sql}` });
  return rows.map(({ detail }) => String(detail));
}
