import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import Connection from 'libsql';
import { DatabaseError, toDatabaseError } from './errors';
import { createStatementCache } from './kept-statements';
import { kindOf } from './statement-kind';
import { createWriteQueue, type Outcome, type Unit } from './write-queue';

/** A commit costs as much for this many as for one, and ten times as many would hold up the reads between. */
const maxStatementsACommit = 256;
/** At the slowest disk they take a few seconds; more than these would be late in any case. */
const maxWaitingUnits = 10_000;

/** Otherwise an answer that was erased could be read in the file until its place is used again. */
export const overwriteWhatIsDeleted = 'PRAGMA secure_delete = ON';

interface LocalSettings {
  readonly path: string;
  /** The longest that a write may wait for a lock that another process holds. */
  readonly timeoutMs: number;
}

/**
 * A local file as the service uses it: one connection that keeps its prepared statements, and writes of many callers in
 * one transaction. In WAL mode with full sync, so an answer that was acknowledged survives a power cut.
 *
 * The driver is synchronous: a write transaction begins and ends in one turn of the event loop, and no read meets it.
 */
export function openLocalClient({ path, timeoutMs }: LocalSettings): Client {
  let current: Opened | undefined;
  let isClosed = false;

  const use = (): Opened => {
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    current ??= open(path);
    return current;
  };
  /**
   * A statement that met a lock leaves the connection in a state in which what follows is stored by appearance only, so
   * both are thrown away; whoever comes next opens another.
   */
  const discard = () => {
    const discarded = current;
    current = undefined;
    try {
      if (discarded?.connection.inTransaction) discarded.connection.exec('ROLLBACK');
    } catch {
      // Closing undoes it too, but the driver closes when it collects garbage, and holds the lock until then.
    } finally {
      discarded?.connection.close();
    }
  };

  /** Runs at once what changes nothing, or is no part of a transaction; waits for a lock on a timer. */
  const direct = async <Result>(work: (opened: Opened) => Result): Promise<Result> => {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      try {
        return work(use());
      } catch (error) {
        const failure = toDatabaseError(error);
        if (failure.code !== 'SQLITE_BUSY') throw failure;
        discard();
        if (performance.now() >= deadlineMs) throw failure;
        await shortPause();
      }
    }
  };

  /** From its begin to its commit in one turn of the event loop, so that nothing else comes between. */
  const transact = (units: readonly Unit[]): Outcome[] => {
    const opened = use();
    const { connection } = opened;
    connection.exec('BEGIN IMMEDIATE');
    try {
      const outcomes = units.map((unit) => runUnit(opened, unit));
      connection.exec('COMMIT');
      return outcomes;
    } catch (error) {
      discard();
      // Whoever waits for a lock has begun nothing: a lock that is met later is no reason to try again.
      throw new TransactionError(toDatabaseError(error));
    }
  };

  /** Waits as long as another process writes: a BUSY of the begin leaves nothing behind. */
  const commit = async (units: readonly Unit[]): Promise<Outcome[]> => {
    const outcomes = new Map<Unit, Outcome>();
    for (;;) {
      const due = units.filter((unit) => !outcomes.has(unit));
      try {
        for (const [index, outcome] of transact(due).entries()) {
          const unit = due[index];
          if (unit !== undefined) outcomes.set(unit, outcome);
        }
      } catch (error) {
        const failure = error instanceof TransactionError ? error.failure : toDatabaseError(error);
        const isLocked = failure.code === 'SQLITE_BUSY' && !(error instanceof TransactionError);
        for (const unit of due) {
          if (!isLocked || performance.now() >= unit.deadlineMs) outcomes.set(unit, { error: failure });
        }
      }
      if (outcomes.size === units.length) return units.flatMap((unit) => outcomes.get(unit) ?? []);
      await shortPause();
    }
  };

  const queue = createWriteQueue({
    commit,
    timeoutMs,
    maxStatements: maxStatementsACommit,
    maxWaiting: maxWaitingUnits,
  });

  const execute = async (statement: InStatement): Promise<ResultSet> => {
    const kind = kindOf(typeof statement === 'string' ? statement : statement.sql);
    if (kind !== 'write') return direct(({ statements }) => statements.run(statement, kind === 'read'));
    const [result] = await queue.add([statement]);
    if (result === undefined) throw new Error('A statement has no result');
    return result;
  };

  use();
  return {
    execute: (statement: InStatement, args?: InArgs) =>
      execute(typeof statement === 'string' ? toStatement(statement, args) : statement),
    batch: (batched) => queue.add(batched.map((each) => (Array.isArray(each) ? toStatement(...each) : each))),
    executeMultiple: (sql) => direct(({ connection }) => void connection.exec(sql)),
    migrate: () => Promise.reject(new Error('The service’s own connection does not migrate')),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    sync: () => Promise.reject(new Error('A local file has nothing to sync with')),
    reconnect: discard,
    close() {
      isClosed = true;
      discard();
    },
    get closed() {
      return isClosed;
    },
    protocol: 'file',
  };
}

interface Opened {
  readonly connection: Connection.Database;
  readonly statements: ReturnType<typeof createStatementCache>;
}

/** @throws DatabaseError `SQLITE_BUSY` or `SQLITE_CANTOPEN` */
function open(path: string): Opened {
  let connection: Connection.Database | undefined;
  try {
    connection = new Connection(path, { timeout: 0 });
    connection.exec(`PRAGMA journal_mode = WAL; ${overwriteWhatIsDeleted}`);
    return { connection, statements: createStatementCache(connection) };
  } catch (error) {
    connection?.close();
    const failure = toDatabaseError(error);
    // The driver names no code for a file that it cannot open.
    throw failure.code === 'SQLITE_BUSY' ? failure : new DatabaseError('SQLITE_CANTOPEN', true, error);
  }
}

/**
 * Runs a unit inside the open transaction, and undoes it alone when it fails.
 *
 * @throws what undoes the whole transaction: a full or failing disk, a lock, or a statement that has ended it
 */
function runUnit({ connection, statements }: Opened, { statements: own }: Unit): Outcome {
  // One statement is all or nothing by itself.
  const isGuarded = own.length > 1;
  try {
    if (isGuarded) connection.exec('SAVEPOINT unit');
    const results = own.map((statement) => statements.run(statement, true));
    if (isGuarded) connection.exec('RELEASE unit');
    return { results };
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.isUnavailable || !connection.inTransaction) throw failure;
    if (isGuarded) connection.exec('ROLLBACK TO unit; RELEASE unit');
    return { error: failure };
  }
}

/** A transaction that had begun and is undone. */
class TransactionError extends Error {
  override readonly name = 'TransactionError';
  readonly failure: DatabaseError;

  constructor(failure: DatabaseError) {
    super('The transaction is undone', { cause: failure });
    this.failure = failure;
  }
}

function toStatement(sql: string, args: InArgs | undefined): InStatement {
  return args === undefined ? sql : { sql, args };
}

function shortPause(): Promise<void> {
  return Bun.sleep(5 + Math.random() * 15);
}
