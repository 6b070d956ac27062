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
  readonly results: Promise<ResultSet[]>;
  /** Why the batch waits; the caller gets it at the deadline in place of `DEADLINE_EXCEEDED`. */
  blockedBy: DatabaseError | undefined;
  /** Called when the transaction begins. */
  onStart: (() => void)[] = [];
  readonly #settle: (outcome: Outcome) => void;
  readonly #onSettled: () => void;
  readonly #timer: Timer;
  #isPending = true;

  constructor(statements: readonly SqlStatement[], timeoutMs: number, onSettled: () => void) {
    const { promise, resolve, reject } = Promise.withResolvers<ResultSet[]>();
    this.statements = statements;
    this.results = promise;
    this.#onSettled = onSettled;
    this.#settle = (outcome) => ('error' in outcome ? reject(outcome.error) : resolve(outcome.results));
    this.#timer = setTimeout(
      () => this.settle({ error: this.blockedBy ?? new DatabaseError('DEADLINE_EXCEEDED', true) }),
      timeoutMs,
    );
  }

  /** False once the caller has an outcome. A batch that is not pending must not be started. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** Settles the promise of the caller once; later calls are ignored. */
  settle(outcome: Outcome): void {
    if (!this.#isPending) return;
    this.#isPending = false;
    this.#onSettled();
    clearTimeout(this.#timer);
    this.#settle(outcome);
  }
}

/** The slowest supported disk or server stores this many batches in a few seconds, which is the deadline. */
const maxPendingBatches = 10_000;

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
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * Group commit: stores concurrent writes in one transaction, in the order of arrival, since a commit costs the same for
 * one batch as for many. A lone write is committed without delay.
 */
export function createWriteQueue({
  ready,
  commit,
  timeoutMs,
  maxStatements,
  maxPending = maxPendingBatches,
  observers = [],
}: QueueSettings) {
  const queued: WriteBatch[] = [];
  let isRunning = false;
  let pending = 0;
  const onSettled = () => {
    pending -= 1;
    for (const observer of observers) observer.pendingChanged(pending);
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

  const run = async () => {
    while (queued.length > 0) {
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
      // A macrotask, so that requests that have arrived meanwhile can join the next group.
      await nextTurn();
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
      if (pending >= maxPending) return Promise.reject(new DatabaseError('QUEUE_FULL', true));
      pending += 1;
      const batch = new WriteBatch(statements, timeoutMs, onSettled);
      queued.push(batch);
      if (observers.length > 0) {
        batch.onStart = observers.map((observer) => observer.batchQueued());
        for (const observer of observers) observer.pendingChanged(pending);
      }
      if (!isRunning) {
        isRunning = true;
        setImmediate(run);
      }
      return batch.results;
    },
  };
}
