import type { ResultSet } from '@libsql/client';
import { nextTurn } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { DatabaseError } from './errors';
import type { SqlStatement } from './sql-client';

/** The results of the statements of a write batch, or the reason why none was stored. */
export type Outcome = { readonly results: ResultSet[] } | { readonly error: unknown };

/** Statements of one caller that are stored together or not at all. */
export class WriteBatch {
  readonly statements: readonly SqlStatement[];
  readonly deadlineMs: number;
  /** Why the batch waits; the caller gets it at the deadline in place of `DEADLINE_EXCEEDED`. */
  blockedBy: DatabaseError | undefined;
  /** Called when the transaction begins. */
  readonly onStart: readonly (() => void)[];
  readonly #onOutcome: (batch: WriteBatch, outcome: Outcome) => void;
  #isPending = true;

  constructor(
    statements: readonly SqlStatement[],
    deadlineMs: number,
    onStart: readonly (() => void)[],
    onOutcome: (batch: WriteBatch, outcome: Outcome) => void,
  ) {
    this.statements = statements;
    this.deadlineMs = deadlineMs;
    this.onStart = onStart;
    this.#onOutcome = onOutcome;
  }

  /** False once the caller has an outcome. A batch that is not pending must not be started. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** Gives the caller the outcome; later calls are ignored. */
  settle(outcome: Outcome): void {
    if (!this.#isPending) return;
    this.#isPending = false;
    this.#onOutcome(this, outcome);
  }
}

/** The slowest supported disk or server stores this many batches in a few seconds, which is the deadline. */
const maxPendingBatches = 10_000;

/** A transaction of this many batches takes hardly longer for each of them than a larger one. */
const fullGroup = 32;
/** About the time of a sync. */
const maxGatherMs = 1;

interface QueueSettings {
  /** Resolves when a group may start. Batches that arrive meanwhile join the group. */
  readonly ready?: () => Promise<unknown> | undefined;
  /**
   * Stores the batches in one transaction; a batch that fails does not affect the others. Settles each batch, and
   * returns when the next group may start, which may be before all are settled.
   */
  readonly commit: (batches: readonly WriteBatch[]) => Promise<void>;
  /** The longest time that a caller waits after `add`. */
  readonly timeoutMs: number;
  /** The most statements of one transaction; a batch with more gets a transaction of its own. */
  readonly maxStatements: number;
  /** The most batches without an outcome; `add` rejects further ones at once. */
  readonly maxPending?: number;
  /** The longest time that a group waits while each turn of the event loop brings more batches. */
  readonly gatherMs?: number;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * Group commit: stores concurrent writes in one transaction, in the order of arrival, since a commit and its sync cost the
 * same for one batch as for many. A lone write waits for two turns of the event loop, which take some microseconds.
 */
export function createWriteQueue({
  ready,
  commit,
  timeoutMs,
  maxStatements,
  maxPending = maxPendingBatches,
  gatherMs = maxGatherMs,
  observers = [],
}: QueueSettings) {
  const queued: WriteBatch[] = [];
  let isRunning = false;
  /** In the order of their deadlines. */
  const pending = new Set<WriteBatch>();
  let timer: Timer | undefined;
  const pendingChanged = () => {
    for (const observer of observers) observer.pendingChanged(pending.size);
  };
  /** One timer for all batches, since they have the same time limit. */
  const rejectLate = () => {
    const nowMs = performance.now();
    timer = undefined;
    for (const batch of pending) {
      if (batch.deadlineMs > nowMs) {
        timer = setTimeout(rejectLate, batch.deadlineMs - nowMs);
        return;
      }
      batch.settle({ error: batch.blockedBy ?? new DatabaseError('DEADLINE_EXCEEDED', true) });
    }
  };
  const reportStart = (group: readonly WriteBatch[]) => {
    if (observers.length === 0 || group.length === 0) return;
    const statements = group.reduce((sum, batch) => sum + batch.statements.length, 0);
    for (const observer of observers) observer.groupStarted(group.length, statements);
    for (const batch of group) for (const onStart of batch.onStart) onStart();
  };

  const takeGroup = (): WriteBatch[] => {
    let statements = 0;
    const end = queued.findIndex((batch, index) => {
      statements += batch.statements.length;
      return index > 0 && statements > maxStatements;
    });
    return queued.splice(0, end === -1 ? queued.length : end).filter(({ isPending }) => isPending);
  };

  /** Waits for the end of the turn, and then until a turn brings no more batches. */
  const gather = async () => {
    await nextTurn();
    const endsAtMs = performance.now() + gatherMs;
    for (let before = 0; queued.length > before && queued.length < fullGroup && performance.now() < endsAtMs; ) {
      before = queued.length;
      await nextTurn();
    }
  };

  const run = async () => {
    while (queued.length > 0) {
      await gather();
      try {
        await ready?.();
      } catch {
        // `commit` waits for the same, and reports the failure.
      }
      const group = takeGroup();
      reportStart(group);
      try {
        await commit(group);
      } catch (error) {
        for (const batch of group) batch.settle({ error });
      }
    }
    isRunning = false;
  };

  return {
    /**
     * Stores the statements, all or none.
     *
     * @throws DatabaseError of this batch alone; `QUEUE_FULL` when too many are pending
     */
    add(statements: readonly SqlStatement[]): Promise<ResultSet[]> {
      if (pending.size >= maxPending) return Promise.reject(new DatabaseError('QUEUE_FULL', true));
      return new Promise((resolve, reject) => {
        const onStart = observers.map((observer) => observer.batchQueued());
        const batch = new WriteBatch(statements, performance.now() + timeoutMs, onStart, (settled, outcome) => {
          pending.delete(settled);
          pendingChanged();
          if (pending.size === 0) {
            clearTimeout(timer);
            timer = undefined;
          }
          if ('error' in outcome) reject(outcome.error);
          else resolve(outcome.results);
        });
        queued.push(batch);
        pending.add(batch);
        pendingChanged();
        timer ??= setTimeout(rejectLate, timeoutMs);
        if (isRunning) return;
        isRunning = true;
        void run();
      });
    },
  };
}
