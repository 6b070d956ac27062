import { type Client, type InArgs, type InStatement, LibsqlBatchError, type ResultSet } from '@libsql/client';
import { causeChain } from '../errors';
import type { DatabaseObserver } from '../telemetry/observers';
import { type DatabaseError, toDatabaseError } from './errors';
import { kindOf, toStatement } from './statement';
import { wrapClient } from './wrap-client';
import { createWriteQueue, type Unit } from './write-queue';

/** A server refuses an answer of more than 10 MB, and a record has at most a tenth of a MB as a rule. */
const maxStatementsABatch = 64;

/**
 * A client of a libSQL server that sends the writes of many callers in one batch, one after the other: a server takes
 * as long for one as for all of them.
 */
export function groupWrites(
  client: Client,
  { timeoutMs, observers = [] }: { timeoutMs: number; observers?: readonly DatabaseObserver[] },
): Client {
  const queue = createWriteQueue({
    observers,
    commit: (units) => commitBatch(client, units),
    timeoutMs,
    maxStatements: maxStatementsABatch,
  });
  return wrapClient(client, {
    execute: async (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return kindOf(whole) === 'write' ? queue.addOne(whole) : client.execute(whole);
    },
    batch: (statements, mode) =>
      mode === 'read' ? client.batch(statements, mode) : queue.add(statements.map((each) => toStatement(each))),
  });
}

/**
 * A unit that the server refuses is taken out, and the others are sent again: a refused batch has stored nothing. After
 * a timeout or a broken connection it is not known what was stored, so nobody's is sent again.
 */
async function commitBatch(client: Client, units: readonly Unit[]): Promise<void> {
  for (;;) {
    const due = units.filter(({ isWaiting }) => isWaiting);
    if (due.length === 0) return;
    try {
      const results = await client.batch(
        due.flatMap(({ statements }) => statements),
        'write',
      );
      for (const [unit, own] of share(due, results)) unit.settle({ results: own });
    } catch (error) {
      const failure = toDatabaseError(error);
      const refused = isRefusal(failure) ? refusedOf(due, error) : due;
      for (const unit of refused) unit.settle({ error: failure });
      // Where the server does not say which it is, one of them alone will.
      if (refused.length === 0) for (const unit of due) await commitBatch(client, [unit]);
    }
  }
}

/** Whether a server has said that it stored nothing. Of any other failure, such as an answer that cannot be read, it may have. */
function isRefusal({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable && /^(?:SQLITE_|SQL_|HTTP_4|RESPONSE_TOO_LARGE$)/.test(code);
}

/** The results of a batch, each unit's own. */
function share(units: readonly Unit[], results: readonly ResultSet[]): [Unit, ResultSet[]][] {
  let next = 0;
  return units.map((unit) => {
    const first = next;
    next += unit.statements.length;
    return [unit, results.slice(first, next)];
  });
}

/** The unit whose statement a server has refused: the only one there is, or the one it names; else none. */
function refusedOf(units: readonly Unit[], error: unknown): readonly Unit[] {
  if (units.length === 1) return units;
  const named = [...causeChain(error)].find((cause) => cause instanceof LibsqlBatchError);
  if (named === undefined) return [];
  let next = 0;
  return units.filter(({ statements }) => {
    const first = next;
    next += statements.length;
    return named.statementIndex >= first && named.statementIndex < next;
  });
}
