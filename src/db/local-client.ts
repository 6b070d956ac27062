import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import Connection from 'libsql';
import type { DatabaseObserver } from '../telemetry/observers';
import { encryptionOption } from './encryption';
import { DatabaseError, toDatabaseError } from './errors';
import { createStatementCache } from './kept-statements';
import { createLogSync, type LogSync } from './log-sync';
import { kindOf, toStatement } from './statement';
import { createWriteQueue, type Outcome, type Unit } from './write-queue';

/** A commit costs as much for this many as for one, and ten times as many would hold up the reads between. */
const maxStatementsACommit = 256;

/** Otherwise an answer that was erased could be read in the file until its place is used again. */
export const overwriteWhatIsDeleted = 'PRAGMA secure_delete = ON';

interface LocalSettings {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** The longest that a write may wait for a lock that another process holds. */
  readonly timeoutMs: number;
  /** Called once, when the disk has failed to sync: from then on nothing is written until the process is restarted. */
  readonly onSyncFailure?: (failure: DatabaseError) => void;
  readonly openLog?: (databasePath: string) => LogSync;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * A local file as the service uses it: one connection that keeps its prepared statements, and writes of many callers in
 * one transaction. In WAL mode, and nobody is told of a commit before the log is on the disk, as a writer or as a
 * reader, so an answer that was acknowledged survives a power cut.
 *
 * The driver is synchronous: a write transaction begins and ends in one turn of the event loop, and no read meets it.
 */
export function openLocalClient(settings: LocalSettings): Client {
  const { path, encryptionKey, timeoutMs, onSyncFailure, openLog = createLogSync, observers = [] } = settings;
  let current: Opened | undefined;
  let isClosed = false;
  /** After it the kernel may take for written what is not, and a later sync would say that all is well. */
  let syncFailure: DatabaseError | undefined;

  const use = (): Opened => {
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    current ??= open(path, encryptionKey, openLog);
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
      void discarded?.log.close();
    }
  };

  /** Runs at once what is no part of a transaction; waits for a lock on a timer. */
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

  /** What was committed until now is on the disk, or never known to be: then nothing is acknowledged until a restart. */
  const synced = async ({ log }: Opened): Promise<void> => {
    try {
      await log.synced();
    } catch (error) {
      if (syncFailure === undefined) {
        syncFailure = new DatabaseError('SYNC_FAILED', true, error);
        onSyncFailure?.(syncFailure);
      }
    }
    if (syncFailure !== undefined) throw syncFailure;
  };

  /** From its begin to its commit in one turn of the event loop, so that nothing else comes between. */
  const transact = (opened: Opened, units: readonly Unit[]): Outcome[] => {
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

  const settleOnceSynced = async (opened: Opened, units: readonly Unit[], outcomes: readonly Outcome[]) => {
    const failure = await synced(opened).then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    for (const [index, unit] of units.entries()) {
      unit.settle(failure ?? outcomes[index] ?? { error: new Error('A unit has no outcome') });
    }
  };

  /** Waits as long as another process writes: a BUSY of the begin leaves nothing behind. */
  const commit = async (units: readonly Unit[]): Promise<void> => {
    for (;;) {
      const due = units.filter(({ isWaiting }) => isWaiting);
      if (due.length === 0) return;
      try {
        if (syncFailure !== undefined) throw syncFailure;
        const opened = use();
        const outcomes = transact(opened, due);
        for (const unit of due) unit.heldUpBy = undefined;
        // The next transaction need not wait for the sync of this one.
        void settleOnceSynced(opened, due, outcomes);
        return;
      } catch (error) {
        const isUndone = error instanceof TransactionError;
        const failure = isUndone ? error.failure : toDatabaseError(error);
        if (failure.code === 'SQLITE_BUSY' && !isUndone) {
          for (const unit of due) unit.heldUpBy = failure;
          await shortPause();
        } else if (isUndone && due.length > 1 && isOfOneUnit(failure)) {
          for (const unit of due) await commit([unit]);
        } else {
          for (const unit of due) unit.settle({ error: failure });
        }
      }
    }
  };

  const queue = createWriteQueue({
    commit,
    timeoutMs,
    maxStatements: maxStatementsACommit,
    observers,
  });

  const execute = async (statement: InStatement): Promise<ResultSet> => {
    switch (kindOf(statement)) {
      case 'read': {
        const [result, { log }] = await direct((opened) => [opened.statements.run(statement, true), opened] as const);
        // What it read may have been committed, and could be gone after a power cut until then.
        if (log.pending !== undefined) await endOf(log.pending, timeoutMs);
        return result;
      }
      case 'write':
        return queue.addOne(statement);
      case 'other':
        return directSynced(({ statements }) => statements.run(statement, false));
    }
  };
  const directSynced = async <Result>(work: (opened: Opened) => Result): Promise<Result> => {
    if (syncFailure !== undefined) throw syncFailure;
    const [result, opened] = await direct((current) => [work(current), current] as const);
    await synced(opened);
    return result;
  };

  use();
  return {
    execute: (statement: InStatement, args?: InArgs) => execute(toStatement(statement, args)),
    batch: (batched) => queue.add(batched.map((each) => toStatement(each))),
    executeMultiple: (sql) => directSynced(({ connection }) => void connection.exec(sql)),
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
  readonly log: LogSync;
}

/** @throws DatabaseError `SQLITE_BUSY` or `SQLITE_CANTOPEN` */
function open(path: string, encryptionKey: string | undefined, openLog: (databasePath: string) => LogSync): Opened {
  let connection: Connection.Database | undefined;
  try {
    connection = new Connection(path, { timeout: 0, ...encryptionOption(encryptionKey) });
    connection.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; ${overwriteWhatIsDeleted}`);
    const statements = createStatementCache(connection);
    // The log is made by whoever reads first.
    statements.run('SELECT 1 FROM sqlite_schema LIMIT 1', false);
    return { connection, statements, log: openLog(path) };
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

/** Whether a transaction may have failed for what one unit did, so that the others are stored without it. */
function isOfOneUnit({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable || code === 'SQLITE_FULL';
}

/** Waits for the end of something, good or bad, but no longer than a time. */
async function endOf(work: Promise<unknown>, timeoutMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, timeoutMs);
  work.then(
    () => resolve(),
    () => resolve(),
  );
  await promise;
  clearTimeout(timer);
}

function shortPause(): Promise<void> {
  return Bun.sleep(5 + Math.random() * 15);
}
