import { jitteredPause, nextTurn } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { type Checkpointer, createCheckpointer } from './checkpointer';
import {
  closeConnection,
  type FileConnection,
  openConnection,
  type QueryResult,
  removeWal,
  runBatch,
  runMigration,
  runQueries,
  userVersionOf,
} from './connection';
import { abandon, DatabaseFileError, openAdvice, withKeyFault } from './database-file';
import { beforeDeadline, DatabaseError, isPossiblyOfOneBatch, RolledBackError, toDatabaseError } from './errors';
import { createLossDetector, type LossWatch, watchFiles } from './file-watch';
import type { SqlClient, SqlStatement } from './sql-client';
import { createWalSync, openWalIndex, type WalSync } from './wal';
import { createWriteQueue, type Outcome, type WriteBatch } from './write-queue';

/** A commit costs as much for this many statements as for one; a larger transaction would delay reads. */
const maxStatementsPerCommit = 256;
/** How long `checkpoint` waits for readers of other processes. */
const maxCheckpointWaitMs = 2_000;

interface FileSettings extends LossWatch {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** Rejects a database of another program. */
  readonly isOwn?: boolean | undefined;
  /** The longest time that a write may wait for a lock of another process. */
  readonly timeoutMs: number;
  readonly openWal?: (databasePath: string) => WalSync;
  readonly observers?: readonly DatabaseObserver[];
  /** How often the files are checked, and a due checkpoint is started, while there are no writes. */
  readonly checkIntervalMs?: number;
}

/**
 * Opens a database file in WAL mode: one connection with a prepared-statement cache, and group commit. A commit is
 * acknowledged only after the WAL is synced and the files are still those that were opened, so an acknowledged write
 * survives a power cut. A read of this client waits for that sync too; another process may read a commit before it.
 *
 * The driver is synchronous: a transaction begins and ends in one turn of the event loop, and no read runs within a write
 * transaction. The reads of one turn run together at its end. Syncs and checkpoints run on other threads.
 *
 * @throws DatabaseError with the code of a key fault where the key does not open the file
 */
export async function openFileClient(settings: FileSettings): Promise<SqlClient> {
  const { path, encryptionKey, isOwn, timeoutMs, onLoss, openWal = createWalSync } = settings;
  const { observers = [], checkIntervalMs = 2_000 } = settings;
  const loss = createLossDetector({
    ...settings,
    // The WAL is beside the file itself, not beside a link to it.
    rescue: () => checkpointer.rescue(wal.path.slice(0, -'-wal'.length)),
    fault: () => files?.fault(),
  });
  let current: FileConnection | undefined;
  let files: ReturnType<typeof watchFiles> | undefined;
  let isClosed = false;
  let isCheckpointed = false;

  /** @throws DatabaseError when the database is lost */
  const verify = (): void => {
    const fault = files?.fault();
    if (fault !== undefined) loss.lose(new DatabaseError(fault, true));
    loss.check();
  };
  const use = (): FileConnection => {
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

  /** Runs work outside of a transaction, and again while another connection holds a lock. */
  const direct = async <Result>(
    work: (opened: FileConnection) => Result,
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
  const wal = openWal(path);
  const index = openWalIndex(path);

  /** Resolves when all commits until now are on the disk. After a failed sync the kernel may drop them. */
  const synced = async (): Promise<void> => {
    await wal.synced().catch((error: unknown) => loss.lose(new DatabaseError('SYNC_FAILED', true, error)));
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
  const transact = (opened: FileConnection, batches: readonly WriteBatch[]): Outcome[] => {
    const { connection } = opened;
    connection.exec('BEGIN IMMEDIATE');
    try {
      const outcomes = batches.map((batch) => runBatch(opened, batch));
      connection.exec('COMMIT');
      return outcomes;
    } catch (error) {
      discard();
      // Only a lock that blocks the begin is waited for.
      throw new RolledBackError(toDatabaseError(error));
    }
  };

  const settleWhenSynced = async (batches: readonly WriteBatch[], outcomes: readonly Outcome[]) => {
    const failure = await synced().catch((error: unknown) => ({ error }));
    if (failure === undefined) loss.succeeded('write');
    for (const [index, batch] of batches.entries()) {
      batch.settle(failure ?? outcomes[index] ?? { error: new Error('A batch has no outcome') });
    }
    checkpointer.startIfDue();
  };

  /** Retries while another connection writes: a begin that fails with SQLITE_BUSY has no effect. */
  const commit = async (batches: readonly WriteBatch[]): Promise<void> => {
    for (;;) {
      const due = batches.filter(({ isPending }) => isPending);
      if (due.length === 0) return;
      try {
        if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
        loss.check();
        const pending = checkpointer.beforeWrite();
        if (pending !== undefined) {
          await pending;
          continue;
        }
        // A commit would extend a truncated WAL.
        verify();
        const outcomes = transact(use(), due);
        for (const batch of due) batch.blockedBy = undefined;
        // The next transaction need not wait for the sync of this one.
        void settleWhenSynced(due, outcomes);
        return;
      } catch (error) {
        const isRolledBack = error instanceof RolledBackError;
        const failure = isRolledBack ? error.failure : toDatabaseError(error);
        if (failure.code === 'SQLITE_BUSY' && !isRolledBack) {
          for (const batch of due) batch.blockedBy = failure;
          await jitteredPause(5, 20);
        } else if (isRolledBack && due.length > 1 && isPossiblyOfOneBatch(failure)) {
          for (const batch of due) await commit([batch]);
        } else {
          loss.failed('write', failure);
          for (const batch of due) batch.settle({ error: failure });
        }
      }
    }
  };

  const queue = createWriteQueue({
    ready: checkpointer.beforeWrite,
    commit,
    timeoutMs,
    maxStatements: maxStatementsPerCommit,
    observers,
  });

  const directSynced = async <Result>(work: (opened: FileConnection) => Result): Promise<Result> => {
    loss.check();
    const result = await direct(work, checkpointer.beforeWrite);
    await synced();
    checkpointer.startIfDue();
    return result;
  };

  try {
    await checkpointer.open();
    files = watchFiles(path, wal, index);
  } catch (error) {
    checkpointer.close(false);
    discard();
    void wal.close();
    const { code } = toDatabaseError(error);
    if (code === 'SQLITE_READONLY') throw new DatabaseFileError(code, openAdvice(path, code), error);
    throw error;
  }
  // The first syncs of a connection sync the folder too, so the service makes them before the first request. They may
  // fail on a locked or full database.
  const first = onLoss === undefined ? checkpointer.beforeWrite : checkpointer.checkpointOnce;
  await Promise.try(first).catch(() => undefined);
  const checking = setInterval(() => {
    try {
      verify();
      checkpointer.startIfDue();
    } catch {
      // `onLoss` reports it.
    }
  }, checkIntervalMs);
  checking.unref();

  let queries: SqlStatement[] = [];
  let resultsOfTurn: Promise<readonly QueryResult[]> | undefined;
  const runDueQueries = async () => {
    const due = queries;
    queries = [];
    resultsOfTurn = undefined;
    const results = await direct((opened) => runQueries(opened, due));
    // The results may include a commit that a power cut could still undo.
    if (wal.pending !== undefined)
      await beforeDeadline(
        wal.pending.catch(() => undefined),
        timeoutMs,
      );
    return results;
  };

  return {
    async read(sql, args) {
      const index = queries.push({ sql, args }) - 1;
      resultsOfTurn ??= nextTurn().then(runDueQueries);
      const result = (await resultsOfTurn)[index] ?? new DatabaseError('UNKNOWN', false);
      if (!(result instanceof DatabaseError)) return result;
      loss.failed('read', result);
      throw result;
    },
    write: queue.add,
    exec: (sql, args) => directSynced(({ statements }) => statements.run({ sql, args }, false)),
    migrate: (migration) => directSynced((opened) => runMigration(opened, migration)),
    async checkpoint() {
      if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
      try {
        verify();
        isCheckpointed = true;
        await checkpointer.checkpointAll(Math.min(timeoutMs, maxCheckpointWaitMs));
      } catch (error) {
        // The files of a lost database are gone when the process ends.
        await loss.rescued?.catch(() => undefined);
        throw error;
      }
    },
    close() {
      if (isClosed) return;
      isClosed = true;
      clearInterval(checking);
      const isLost = loss.isLost || files?.fault() !== undefined;
      checkpointer.close(isLost);
      if (isCheckpointed && !isLost && current !== undefined) removeWal(current);
      // A close could write to a database that is lost.
      if (!isLost) discard();
      else if (current !== undefined) abandon(current);
      void wal.close();
    },
  };
}
