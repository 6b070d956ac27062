import { type Client, type InArgs, type InStatement, LibsqlBatchError, type ResultSet } from '@libsql/client';
import { causeChain } from '../errors';
import { DatabaseError, toDatabaseError } from './errors';
import { kindOf } from './statement-kind';
import { createWriteQueue, type Outcome, type Unit } from './write-queue';

/** A server refuses an answer of more than 10 MB, and a record has at most a tenth of a MB as a rule. */
const maxStatementsABatch = 64;
const maxWaitingUnits = 10_000;

/**
 * A client of a libSQL server that sends the writes of many callers in one batch, one after the other: a server takes
 * as long for one as for all of them.
 */
export function groupWrites(client: Client, { timeoutMs }: { timeoutMs: number }): Client {
  const queue = createWriteQueue({
    commit: (units) => commitBatch(client, units),
    timeoutMs,
    maxStatements: maxStatementsABatch,
    maxWaiting: maxWaitingUnits,
  });
  return {
    execute: async (statement: InStatement, args?: InArgs) => {
      const whole = typeof statement === 'string' && args !== undefined ? { sql: statement, args } : statement;
      if (kindOf(typeof whole === 'string' ? whole : whole.sql) !== 'write') return client.execute(whole);
      const [result] = await queue.add([whole]);
      if (result === undefined) throw new Error('A statement has no result');
      return result;
    },
    batch: (statements, mode) =>
      mode === 'read' || statements.some(Array.isArray)
        ? client.batch(statements, mode)
        : queue.add(statements.flatMap((each) => (Array.isArray(each) ? [] : [each]))),
    migrate: (statements) => client.migrate(statements),
    transaction: () => client.transaction('write'),
    executeMultiple: (sql) => client.executeMultiple(sql),
    sync: () => client.sync(),
    reconnect: () => client.reconnect(),
    close: () => client.close(),
    get closed() {
      return client.closed;
    },
    protocol: client.protocol,
  };
}

/**
 * A unit that the server refuses is taken out, and the others are sent again: a refused batch has stored nothing. After
 * a timeout or a broken connection it is not known what was stored, so nobody's is sent again.
 */
async function commitBatch(client: Client, units: readonly Unit[]): Promise<Outcome[]> {
  const outcomes = new Map<Unit, Outcome>();
  for (const unit of units) {
    if (performance.now() >= unit.deadlineMs)
      outcomes.set(unit, { error: new DatabaseError('DEADLINE_EXCEEDED', true) });
  }
  for (;;) {
    const due = units.filter((unit) => !outcomes.has(unit));
    if (due.length === 0) return units.flatMap((unit) => outcomes.get(unit) ?? []);
    try {
      const results = await client.batch(
        due.flatMap(({ statements }) => statements),
        'write',
      );
      for (const [unit, own] of share(due, results)) outcomes.set(unit, { results: own });
    } catch (error) {
      const failure = toDatabaseError(error);
      const refused = isRefusal(failure) ? refusedOf(due, error) : due;
      for (const unit of refused) outcomes.set(unit, { error: failure });
      if (refused.length === 0) {
        // The server does not say which: one of them alone will.
        for (const unit of due) {
          for (const outcome of await commitBatch(client, [unit])) outcomes.set(unit, outcome);
        }
      }
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
