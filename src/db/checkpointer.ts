import AsyncConnection from 'libsql/promise';
import { rescueDatabase } from './backup';
import { abandon, encryptionOption } from './database-file';
import { DatabaseError, isBusy, toDatabaseError } from './errors';
import type { WalIndex, WalState } from './wal';

/** A checkpoint is due at this many frames, like SQLite's automatic checkpoint. */
const dueFrames = 1000;
/** A WAL with fewer frames is checkpointed after this time. */
const maxIdleMs = 60_000;
/** The WAL is truncated to this size when it restarts; the next commits would have to extend a smaller file. */
const maxIdleWalBytes = 16 * 1024 * 1024;
/** How long a thread of the driver waits for the write lock of another process: the time of a short commit. */
const lockWaitMs = 5;
const maxBackoffMs = 5000;
/** Saves wait for a checkpoint, so the next one starts only after this many times the duration of the last one. */
const restFactor = 10;
/** The first pause of `checkpointAll` when another process blocks it. */
const firstPauseMs = 20;
const maxPauseMs = 200;

/** The settings of every connection that may write: only the checkpointer checkpoints. */
export const manualCheckpoints = `PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = ${maxIdleWalBytes}`;

/** `write` opens the connections or restarts the WAL, and a write waits for it. */
type Task = 'write' | 'checkpoint';

interface Connections {
  readonly locking: AsyncConnection;
  readonly checkpointing: AsyncConnection;
}

interface CheckpointerSettings {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** The value in the database, which a restart of the WAL writes again. */
  readonly userVersion: number;
  readonly index: WalIndex;
  /** Throws when the database is lost. */
  readonly verify: () => void;
  /** Syncs the WAL before a checkpoint, and verifies. */
  readonly prepare: () => Promise<void>;
  /** Called with each failure except SQLITE_BUSY. */
  readonly onFailure: (kind: Task, failure: DatabaseError) => void;
  /** Called after each checkpoint that was due, also when another process made it. */
  readonly onEnd: (isComplete: boolean) => void;
}

/**
 * Checkpoints a database in WAL mode on threads of the driver.
 *
 * A checkpoint runs only while this process holds the write lock on a connection of its own. No connection can commit
 * or restart the WAL at that time, which excludes the WAL-reset race of SQLite before 3.51.3: see docs/durability.md.
 * The mode is PASSIVE: the other modes continue as PASSIVE without the lock if they cannot get it.
 *
 * The next commit restarts a WAL that is completely checkpointed, and syncs its new header first. The checkpointer makes
 * that commit, so that no other connection of this process ever syncs, and makes it on the connection that checkpoints,
 * because the first sync of each connection syncs the folder as well.
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
    // NORMAL syncs in a checkpoint and in a restart only.
    await connection.exec(`PRAGMA synchronous = NORMAL; ${manualCheckpoints}; SELECT 1 FROM sqlite_schema LIMIT 1`);
    return connection;
  };
  /** Opens new connections before it closes failed ones, because SQLite removes the WAL with the last connection. */
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
  /** Commits page 1 unchanged. If no reader uses the WAL, the commit begins a new generation of it. */
  const restart = async (limitBytes: number): Promise<void> => {
    const { checkpointing } = await connect();
    await checkpointing.exec(`PRAGMA journal_size_limit = ${limitBytes}`);
    await checkpointing.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${userVersion}; COMMIT`);
  };

  /** Runs one task at a time. The next task replaces failed connections. */
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

  /** @returns whether the database file has all frames and the WAL was restarted */
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
   * Writes continue during the sync of the WAL, which makes the sync within the checkpoint short.
   *
   * @returns whether the database file has all frames and the WAL was restarted
   */
  const checkpointOnce = async (): Promise<boolean> => {
    await prepare();
    return exclusively('checkpoint', () => attempt(maxIdleWalBytes));
  };

  return {
    /**
     * Opens both connections, so that the WAL stays the same file until the process ends.
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
     * Returns the promise that a write must wait for: a running checkpoint, or the restart of a WAL that is completely
     * checkpointed. Rejects if the WAL cannot be restarted.
     */
    beforeWrite(): Promise<unknown> | undefined {
      if (running !== undefined) return running.catch(() => undefined);
      // The index of a closed database may be closed too.
      const state = isClosed ? undefined : index.read();
      if (state === undefined || !isCheckpointed(state)) return undefined;
      return exclusively('write', () => restart(maxIdleWalBytes));
    },

    checkpointOnce,

    /** Starts a checkpoint if one is due. */
    startIfDue(): void {
      if (running !== undefined || isStarting || isClosed) return;
      const waitedMs = performance.now() - lastEndMs;
      const frames = index.framesIfReadable();
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
     * Writes all frames to the database file and truncates the WAL to one frame. Waits for readers of other processes.
     *
     * @throws DatabaseError `LOG_IN_USE` if only the truncation failed, or `SQLITE_BUSY` if another process blocked the
     * checkpoint
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
     * @throws DatabaseError `CLIENT_CLOSED` if no connection has the old files open
     */
    rescue(databasePath: string): Promise<string> {
      rescuing ??= (async () => {
        await running?.catch(() => undefined);
        // A connection opened now would open other files.
        if (connections === undefined) throw new DatabaseError('CLIENT_CLOSED', true);
        return rescueDatabase(connections.checkpointing, databasePath, encryptionKey);
      })();
      return rescuing;
    },

    /** @param isLost keeps the connections open until the process ends: a close could write to the lost database */
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

/** Whether the database file has the frames that the WAL had at `first`: the WAL restarts only afterwards. */
function isInFile(first: WalState | undefined, now: WalState | undefined): boolean {
  if (first === undefined || now === undefined) return false;
  return now.salts !== first.salts || now.checkpointed >= first.frames;
}
