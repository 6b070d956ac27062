import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import { jitteredPause } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { type Checkpointer, createCheckpointer } from './checkpointer';
import {
  closeConnection,
  isOfOneUnit,
  type LocalConnection,
  openConnection,
  removeLog,
  runMigration,
  runUnit,
  TransactionError,
  userVersionOf,
} from './connection';
import { DatabaseFileError, openAdvice } from './database-file';
import { abandon, withKeyFault } from './encryption';
import { DatabaseError, endOf, toDatabaseError } from './errors';
import { createLossDetector, type LossWatch, watchFiles } from './file-watch';
import { kindOf, toStatement } from './layers';
import { createLogSync, type LogSync, openWalIndex } from './wal';
import { createWriteQueue, type Outcome, type Unit } from './write-queue';

/** A commit costs as much for this many statements as for one; a larger transaction would delay reads. */
const maxStatementsACommit = 256;
/** How often the files are checked, and a checkpoint is started if one is due, where nothing is written. */
const checkedEveryMs = 2_000;
/** How long `sync` waits for readers of other processes. */
const maxSyncWaitMs = 2_000;

interface LocalSettings extends LossWatch {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** Refuses a database of another program. */
  readonly isOwn?: boolean | undefined;
  /** The longest that a write may wait for a lock that another process holds. */
  readonly timeoutMs: number;
  readonly openLog?: (databasePath: string) => LogSync;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * A local file in WAL mode: one connection that keeps its prepared statements, and group commit of the writes of many
 * callers. A commit is acknowledged, and shown to readers, only after the log is synced and its files are still those
 * that were opened, so that an acknowledged write survives a power cut.
 *
 * The driver is synchronous: a write transaction begins and ends in one turn of the event loop, and no read runs within
 * it. Syncs and checkpoints run on other threads.
 *
 * @throws DatabaseError with the code of a key fault where the key does not open the file
 */
export async function openLocalClient(settings: LocalSettings): Promise<Client> {
  const { path, encryptionKey, isOwn, timeoutMs, onLoss, openLog = createLogSync, observers = [] } = settings;
  const loss = createLossDetector({
    ...settings,
    // The log lies beside the file itself, not beside a link to it.
    rescue: () => checkpointer.rescue(log.path.slice(0, -'-wal'.length)),
  });
  let current: LocalConnection | undefined;
  let files: ReturnType<typeof watchFiles> | undefined;
  let isClosed = false;
  let isSynced = false;

  /** @throws DatabaseError when the database is lost */
  const verify = (): void => {
    const fault = files?.fault();
    if (fault !== undefined) loss.lose(new DatabaseError(fault, true));
    loss.check();
  };
  const use = (): LocalConnection => {
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    if (current === undefined) {
      const fault = files?.fault();
      // The driver would create a file that is missing.
      if (fault !== undefined) throw new DatabaseError(fault, true);
      current = openConnection(path, encryptionKey, isOwn);
    }
    return current;
  };
  /**
   * After SQLITE_BUSY the driver acknowledges statements that it later rolls back (libsql-client-ts#352), so the
   * connection is replaced.
   */
  const discard = () => {
    const discarded = current;
    current = undefined;
    if (discarded !== undefined) closeConnection(discarded);
  };

  /** Runs work outside of a transaction; waits for a lock on a timer. */
  const direct = async <Result>(
    work: (opened: LocalConnection) => Result,
    ready?: () => Promise<unknown> | undefined,
  ): Promise<Result> => {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      try {
        await ready?.();
        return work(use());
      } catch (error) {
        const failure = toDatabaseError(error);
        if (failure.code !== 'SQLITE_BUSY') {
          loss.failed('read', failure);
          throw failure;
        }
        discard();
        if (performance.now() >= deadlineMs) throw failure;
        await jitteredPause(5, 20);
      }
    }
  };

  const userVersion = await direct(userVersionOf).catch((error: unknown) => {
    discard();
    throw withKeyFault(toDatabaseError(error), path, encryptionKey);
  });
  const log = openLog(path);
  const index = openWalIndex(path);

  /** Resolves when all commits until now are on the disk; after a failed sync the kernel may drop them. */
  const synced = async (): Promise<void> => {
    await log.synced().catch((error: unknown) => loss.lose(new DatabaseError('SYNC_FAILED', true, error)));
    verify();
  };
  const checkpointer: Checkpointer = createCheckpointer({
    path,
    encryptionKey,
    userVersion,
    index,
    verify,
    prepare: synced,
    onFailure: loss.failed,
    onEnd(isComplete) {
      for (const observer of observers) observer.checkpointEnded(isComplete);
      if (isComplete) loss.succeeded('checkpoint');
    },
  });

  /** Begins and commits in one turn of the event loop. */
  const transact = (opened: LocalConnection, units: readonly Unit[]): Outcome[] => {
    const { connection } = opened;
    connection.exec('BEGIN IMMEDIATE');
    try {
      const outcomes = units.map((unit) => runUnit(opened, unit));
      connection.exec('COMMIT');
      return outcomes;
    } catch (error) {
      discard();
      // A lock that is met later than at the begin is not waited for.
      throw new TransactionError(toDatabaseError(error));
    }
  };

  const settleOnceSynced = async (units: readonly Unit[], outcomes: readonly Outcome[]) => {
    const failure = await synced().catch((error: unknown) => ({ error }));
    if (failure === undefined) loss.succeeded('write');
    for (const [index, unit] of units.entries()) {
      unit.settle(failure ?? outcomes[index] ?? { error: new Error('A unit has no outcome') });
    }
    checkpointer.startIfDue();
  };

  /** Waits as long as another connection writes: SQLITE_BUSY of the begin leaves nothing behind. */
  const commit = async (units: readonly Unit[]): Promise<void> => {
    for (;;) {
      const due = units.filter(({ isWaiting }) => isWaiting);
      if (due.length === 0) return;
      try {
        loss.check();
        const pending = checkpointer.beforeWrite();
        if (pending !== undefined) {
          await pending;
          continue;
        }
        // A commit would extend a truncated log again.
        verify();
        const outcomes = transact(use(), due);
        for (const unit of due) unit.heldUpBy = undefined;
        // The next transaction need not wait for the sync of this one.
        void settleOnceSynced(due, outcomes);
        return;
      } catch (error) {
        const isUndone = error instanceof TransactionError;
        const failure = isUndone ? error.failure : toDatabaseError(error);
        if (failure.code === 'SQLITE_BUSY' && !isUndone) {
          for (const unit of due) unit.heldUpBy = failure;
          await jitteredPause(5, 20);
        } else if (isUndone && due.length > 1 && isOfOneUnit(failure)) {
          for (const unit of due) await commit([unit]);
        } else {
          loss.failed('write', failure);
          for (const unit of due) unit.settle({ error: failure });
        }
      }
    }
  };

  const queue = createWriteQueue({
    ready: checkpointer.beforeWrite,
    commit,
    timeoutMs,
    maxStatements: maxStatementsACommit,
    observers,
  });

  const execute = async (statement: InStatement): Promise<ResultSet> => {
    switch (kindOf(statement)) {
      case 'read': {
        const result = await direct(({ statements }) => statements.run(statement, true));
        // It may have read a commit that a power cut could still undo.
        if (log.pending !== undefined) await endOf(log.pending, timeoutMs);
        return result;
      }
      case 'write':
        return queue.addOne(statement);
      case 'other':
        return directSynced(({ statements }) => statements.run(statement, false));
    }
  };
  const directSynced = async <Result>(work: (opened: LocalConnection) => Result): Promise<Result> => {
    loss.check();
    const result = await direct(work, checkpointer.beforeWrite);
    await synced();
    checkpointer.startIfDue();
    return result;
  };

  try {
    await checkpointer.open();
    files = watchFiles(path, log, index);
  } catch (error) {
    checkpointer.close(false);
    discard();
    void log.close();
    const { code } = toDatabaseError(error);
    if (code === 'SQLITE_READONLY') throw new DatabaseFileError(code, openAdvice(path, code), error);
    throw error;
  }
  // The first syncs of a connection sync the folder too, so a service makes them before requests wait for them. A locked
  // or full database may fail them.
  await (onLoss === undefined ? checkpointer.beforeWrite() : checkpointer.checkpointOnce())?.catch(() => undefined);
  const checking = setInterval(() => {
    try {
      verify();
      checkpointer.startIfDue();
    } catch {
      // It is reported by `onLoss`.
    }
  }, checkedEveryMs);
  checking.unref();

  return {
    execute: (statement: InStatement, args?: InArgs) => execute(toStatement(statement, args)),
    batch: (batched) => queue.add(batched.map((each) => toStatement(each))),
    executeMultiple: (sql) => directSynced(({ statements }) => statements.exec(sql)),
    migrate: (batched) => directSynced((opened) => runMigration(opened, batched)),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    /** Brings all of the log into the database file, and lets `close` remove the log. Waits for a rescue that runs. */
    async sync() {
      if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
      try {
        verify();
        isSynced = true;
        await checkpointer.checkpointAll(Math.min(timeoutMs, maxSyncWaitMs));
        return undefined;
      } catch (error) {
        // The files of a lost database end with the process.
        await loss.rescued?.catch(() => undefined);
        throw error;
      }
    },
    reconnect: discard,
    close() {
      if (isClosed) return;
      isClosed = true;
      clearInterval(checking);
      const isLost = loss.isLost || files?.fault() !== undefined;
      checkpointer.close(isLost);
      if (isSynced && !isLost && current !== undefined) removeLog(current);
      // A close could write to a database that is lost.
      if (!isLost) discard();
      else if (current !== undefined) abandon(current);
      void log.close();
    },
    get closed() {
      return isClosed;
    },
    protocol: 'file',
  };
}
