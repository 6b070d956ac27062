import AsyncConnection from 'libsql/promise';
import { rescueDatabase } from './backup';
import { abandon, encryptionOption } from './encryption';
import { DatabaseError, isBusy, toDatabaseError } from './errors';
import type { WalIndex, WalState } from './wal';

/** A checkpoint is due when the log has this many frames, as SQLite's own automatic checkpoint is. */
const dueFrames = 1000;
/** A log that has fewer frames than are due is checkpointed after this time. */
const maxIdleMs = 60_000;
/** The size to which a log is cut once it is restarted; a smaller file would be extended again by the next commits. */
const keptLogBytes = 16 * 1024 * 1024;
/** How long a thread of the driver waits for the write lock of another process: as long as a short commit takes. */
const lockWaitMs = 5;
const maxBackoffMs = 5000;
/** A checkpoint holds up saves, so on a slow disk the next one waits for this many times as long as the last one took. */
const restFactor = 10;
/** The first pause of `checkpointAll` after another process has blocked it. */
const firstPauseMs = 20;
const maxPauseMs = 200;

/** The settings of every connection that may write: only a checkpointer checkpoints. */
export const manualCheckpoints = `PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = ${keptLogBytes}`;

/** `write` opens the connections or restarts the log, which a write of a caller waits for. */
type Task = 'write' | 'checkpoint';

interface Connections {
  readonly locking: AsyncConnection;
  readonly checkpointing: AsyncConnection;
}

interface CheckpointerSettings {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** The database's own, which a restart of the log writes again. */
  readonly userVersion: number;
  readonly index: WalIndex;
  /** Fails where nothing may be written any more. */
  readonly verify: () => void;
  /** Brings the log to the disk before a checkpoint, and verifies. */
  readonly prepare: () => Promise<void>;
  /** Called with each failure except SQLITE_BUSY. */
  readonly onFailure: (kind: Task, failure: DatabaseError) => void;
  /** Called after each checkpoint that was due, and when another process has made it. */
  readonly onEnd: (isComplete: boolean) => void;
}

/**
 * Checkpoints a database in WAL mode on threads of the driver.
 *
 * A checkpoint runs only while this process holds the write lock on a connection of its own. No connection can commit
 * or restart the log at that time, which excludes the WAL-reset race of SQLite before 3.51.3: see docs/durability.md.
 * The mode is PASSIVE: the other modes continue as PASSIVE without the lock if they cannot get it.
 *
 * A log that is wholly checkpointed is restarted by the next commit, which syncs the new header of the log before it
 * writes. That commit is made here too, so that no other connection of this process ever syncs. The connection that
 * checkpoints makes it, since the first sync of each connection syncs the folder as well.
 */
export function createCheckpointer(settings: CheckpointerSettings) {
  const { path, encryptionKey, userVersion, index, verify, prepare, onFailure, onEnd } = settings;
  let connections: Connections | undefined;
  let hasFailed = false;
  let running: Promise<unknown> | undefined;
  let rescuing: Promise<string> | undefined;
  let isStarting = false;
  let isOverdue = false;
  let isClosed = false;
  let lastEndMs = performance.now();
  let lastTookMs = 0;
  let backoffMs = 0;

  const open = async (): Promise<AsyncConnection> => {
    const connection = new AsyncConnection(path, { timeout: lockWaitMs, ...encryptionOption(encryptionKey) });
    // NORMAL syncs in a checkpoint and in a restart, and in no other commit.
    await connection.exec(`PRAGMA synchronous = NORMAL; ${manualCheckpoints}; SELECT 1 FROM sqlite_schema LIMIT 1`);
    return connection;
  };
  /** Opens new connections before it closes failed ones: SQLite removes the log with the last connection. */
  const connect = async (): Promise<Connections> => {
    if (connections !== undefined && !hasFailed) return connections;
    const failed = connections;
    const locking = await open();
    try {
      connections = { locking, checkpointing: await open() };
    } catch (error) {
      locking.close();
      throw error;
    }
    hasFailed = false;
    if (failed !== undefined) disconnect(failed);
    return connections;
  };

  const rollBack = async () => {
    for (const connection of [connections?.locking, connections?.checkpointing]) {
      await connection?.exec('ROLLBACK').catch(() => undefined);
    }
  };

  const checkpoint = async (): Promise<void> => {
    const { locking, checkpointing } = await connect();
    await locking.exec('BEGIN IMMEDIATE');
    try {
      await checkpointing.exec('PRAGMA wal_checkpoint(PASSIVE)');
    } finally {
      await locking.exec('COMMIT');
    }
  };
  /** Commits page 1 as it is; where no reader uses the log, the commit begins a new generation of it. */
  const restart = async (limitBytes: number): Promise<void> => {
    const { checkpointing } = await connect();
    await checkpointing.exec(`PRAGMA journal_size_limit = ${limitBytes}`);
    await checkpointing.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${userVersion}; COMMIT`);
  };

  /** Runs one task at a time. The next one opens a failed connection again. */
  const exclusively = <Result>(task: Task, work: () => Promise<Result>): Promise<Result> => {
    const run = async () => {
      if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
      verify();
      try {
        return await work();
      } catch (error) {
        await rollBack();
        const failure = toDatabaseError(error);
        if (failure.code !== 'SQLITE_BUSY') {
          hasFailed = true;
          onFailure(task, failure);
        }
        throw failure;
      }
    };
    const started = (running ?? Promise.resolve()).catch(() => undefined).then(run);
    const ended = started.finally(() => {
      if (running === ended) running = undefined;
    });
    running = ended;
    return ended;
  };

  const end = (isComplete: boolean): void => {
    isOverdue = !isComplete;
    onEnd(isComplete);
  };

  /** @returns whether all of the log is in the database file now, and the log is restarted */
  const attempt = async (limitBytes: number): Promise<boolean> => {
    const startedAtMs = performance.now();
    const before = index.read();
    if (before !== undefined && !isCheckpointed(before)) await checkpoint();
    const state = index.read();
    if (state === undefined || !isCheckpointed(state)) return false;
    await restart(limitBytes);
    lastTookMs = performance.now() - startedAtMs;
    return index.read()?.salts !== state.salts;
  };
  /**
   * Writes go on during the sync of the log, which makes the one within the checkpoint short.
   *
   * @returns whether all of the log is in the database file now
   */
  const checkpointOnce = async (): Promise<boolean> => {
    await prepare();
    return exclusively('checkpoint', () => attempt(keptLogBytes));
  };

  return {
    /**
     * Opens both connections, so that the log stays the same file while this process lives.
     *
     * @throws DatabaseError `SQLITE_READONLY` where the file cannot be written
     */
    open: () =>
      exclusively('write', async () => {
        const { locking } = await connect();
        try {
          await locking.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${userVersion}`);
        } catch (error) {
          ignoreBusy(error);
        } finally {
          await locking.exec('ROLLBACK').catch(() => undefined);
        }
      }),

    /**
     * What a write must wait for: a running checkpoint, or the restart of a log that is wholly checkpointed. It rejects
     * where the log cannot be restarted.
     */
    beforeWrite(): Promise<unknown> | undefined {
      if (running !== undefined) return running.catch(() => undefined);
      const state = index.read();
      if (state === undefined || !isCheckpointed(state)) return undefined;
      return exclusively('write', () => restart(keptLogBytes));
    },

    checkpointOnce,

    /** Starts a checkpoint if one is due. */
    startIfDue(): void {
      if (running !== undefined || isStarting || isClosed) return;
      const waitedMs = performance.now() - lastEndMs;
      const frames = index.read()?.frames;
      if (frames === undefined) return;
      // A restart leaves one frame.
      if (isOverdue && frames <= 1) end(true);
      const isDue = frames > dueFrames ? waitedMs >= backoffMs : frames > 1 && waitedMs >= maxIdleMs;
      if (!isDue) return;
      isStarting = true;
      checkpointOnce()
        .catch(() => false)
        .then((isComplete) => {
          isStarting = false;
          end(isComplete);
          lastEndMs = performance.now();
          backoffMs = isComplete
            ? Math.min(maxBackoffMs, restFactor * lastTookMs)
            : Math.min(maxBackoffMs, Math.max(50, 2 * backoffMs)) * (0.75 + Math.random() / 2);
        });
    },

    /**
     * Writes all of the log to the database file and cuts the log to one frame. Waits for readers of other processes.
     *
     * @throws DatabaseError `LOG_IN_USE` where only the cut has failed, or `SQLITE_BUSY` where another process kept the
     * log from the file
     */
    async checkpointAll(timeoutMs: number): Promise<void> {
      const deadlineMs = performance.now() + timeoutMs;
      const first = index.read();
      for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(maxPauseMs, 1.5 * pauseMs)) {
        await prepare();
        const isComplete = await exclusively('checkpoint', () => attempt(0)).catch((error: unknown) => {
          ignoreBusy(error);
          return false;
        });
        if (isComplete) return end(true);
        if (performance.now() >= deadlineMs) {
          throw new DatabaseError(isInFile(first, index.read()) ? 'LOG_IN_USE' : 'SQLITE_BUSY', true);
        }
        await Bun.sleep(pauseMs);
      }
    },

    /**
     * Copies all commits to `<path>.rescued-<time>` after the files of the database were removed or replaced: the open
     * connections still have the old ones. No commit may follow.
     *
     * @returns the path of the copy
     * @throws DatabaseError `CLIENT_CLOSED` where no connection has the old files open
     */
    rescue(databasePath: string): Promise<string> {
      rescuing ??= (async () => {
        await running?.catch(() => undefined);
        // A connection that was opened now would have other files.
        if (connections === undefined) throw new DatabaseError('CLIENT_CLOSED', true);
        return rescueDatabase(connections.checkpointing, databasePath, encryptionKey);
      })();
      return rescuing;
    },

    /** @param isLost keeps the connections until the process ends: a close could write to a database that is lost */
    close(isLost: boolean): void {
      isClosed = true;
      const release = () => {
        if (connections === undefined) return;
        if (isLost) abandon(connections);
        else disconnect(connections);
        connections = undefined;
      };
      if (running === undefined && rescuing === undefined) release();
      else void Promise.allSettled([running, rescuing]).finally(release);
    },
  };
}

export type Checkpointer = ReturnType<typeof createCheckpointer>;

function disconnect({ locking, checkpointing }: Connections): void {
  locking.close();
  checkpointing.close();
}

function ignoreBusy(error: unknown): void {
  if (!isBusy(error)) throw error;
}

function isCheckpointed({ frames, checkpointed }: WalState): boolean {
  return checkpointed >= frames;
}

/** Whether the frames that the log had at `first` are in the database file: a log is restarted only afterwards. */
function isInFile(first: WalState | undefined, now: WalState | undefined): boolean {
  if (first === undefined || now === undefined) return false;
  return now.salts !== first.salts || now.checkpointed >= first.frames;
}
