import type { InStatement, ResultSet } from '@libsql/client';
import { nextTurn } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { DatabaseError } from './errors';

/** What became of a unit: the results of its statements, or why it was not stored. */
export type Outcome = { readonly results: ResultSet[] } | { readonly error: unknown };

/** Statements that are stored together or not at all, and the caller who waits for them until a deadline. */
export class Unit {
  readonly statements: readonly InStatement[];
  readonly results: Promise<ResultSet[]>;
  /** What to tell the caller if it is still so at the deadline. */
  heldUpBy: DatabaseError | undefined;
  /** Called when its transaction begins. */
  onBegin: (() => void)[] = [];
  readonly #settle: (outcome: Outcome) => void;
  readonly #onSettled: () => void;
  readonly #timer: Timer;
  #isWaiting = true;

  constructor(statements: readonly InStatement[], timeoutMs: number, onSettled: () => void) {
    const { promise, resolve, reject } = Promise.withResolvers<ResultSet[]>();
    this.statements = statements;
    this.results = promise;
    this.#onSettled = onSettled;
    this.#settle = (outcome) => ('error' in outcome ? reject(outcome.error) : resolve(outcome.results));
    this.#timer = setTimeout(
      () => this.settle({ error: this.heldUpBy ?? new DatabaseError('DEADLINE_EXCEEDED', true) }),
      timeoutMs,
    );
  }

  /** False once the caller has been told an outcome: what has not begun by then is not begun any more. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** Tells the caller; whoever comes second is not heard. */
  settle(outcome: Outcome): void {
    if (!this.#isWaiting) return;
    this.#isWaiting = false;
    this.#onSettled();
    clearTimeout(this.#timer);
    this.#settle(outcome);
  }
}

/** Most units that may wait. At the slowest disk or server they take a few seconds; more would be late in any case. */
const maxWaitingUnits = 10_000;

interface QueueSettings {
  /** What a group must wait for. All that arrives meanwhile is in the same group. */
  readonly ready?: () => Promise<unknown> | undefined;
  /**
   * Stores the units in one transaction, each for itself: one that fails takes no other with it. Settles each, at once
   * or later, and returns when the next may come.
   */
  readonly commit: (units: readonly Unit[]) => Promise<void>;
  /** The longest that a caller waits, from the moment that the unit is added. */
  readonly timeoutMs: number;
  /** Most statements of one transaction; a unit with more has one of its own. */
  readonly maxStatements: number;
  /** Most units that may wait, for their turn or for their outcome; past it they are refused at once. */
  readonly maxWaiting?: number;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * Stores what many callers write at the same time in one transaction, in the order in which they came: a commit costs
 * the same for one as for all of them. A caller that is alone waits for no other.
 */
export function createWriteQueue({
  ready,
  commit,
  timeoutMs,
  maxStatements,
  maxWaiting = maxWaitingUnits,
  observers = [],
}: QueueSettings) {
  const queued: Unit[] = [];
  let isRunning = false;
  let waiting = 0;
  const onSettled = () => {
    waiting -= 1;
    for (const observer of observers) observer.waitingChanged(waiting);
  };
  const tellBegin = (group: readonly Unit[]) => {
    if (observers.length === 0 || group.length === 0) return;
    const statements = group.reduce((sum, unit) => sum + unit.statements.length, 0);
    for (const observer of observers) observer.groupBegun(group.length, statements);
    for (const unit of group) for (const begin of unit.onBegin) begin();
  };

  const takeGroup = (): Unit[] => {
    let statements = 0;
    const end = queued.findIndex((unit, index) => {
      statements += unit.statements.length;
      return index > 0 && statements > maxStatements;
    });
    return queued.splice(0, end === -1 ? queued.length : end).filter(({ isWaiting }) => isWaiting);
  };

  const run = async () => {
    while (queued.length > 0) {
      // A failure is that of the commit, which waits for the same.
      await ready?.()?.catch(() => undefined);
      const group = takeGroup();
      tellBegin(group);
      try {
        await commit(group);
      } catch (error) {
        for (const unit of group) unit.settle({ error });
      }
      // Lets the requests that have arrived meanwhile get as far as the next group.
      // A microtask would run before the waiting requests are read, and group nothing.
      await nextTurn();
    }
    isRunning = false;
  };

  const add = (statements: readonly InStatement[]): Promise<ResultSet[]> => {
    if (waiting >= maxWaiting) return Promise.reject(new DatabaseError('QUEUE_FULL', true));
    waiting += 1;
    const unit = new Unit(statements, timeoutMs, onSettled);
    queued.push(unit);
    if (observers.length > 0) {
      unit.onBegin = observers.map((observer) => observer.unitAdded());
      for (const observer of observers) observer.waitingChanged(waiting);
    }
    if (!isRunning) {
      isRunning = true;
      setImmediate(run);
    }
    return unit.results;
  };

  return {
    /**
     * Stores the statements, all or none, and gives their results.
     *
     * @throws DatabaseError of this unit alone, `QUEUE_FULL` when too many wait already
     */
    add,

    /** The same for one statement. */
    async addOne(statement: InStatement): Promise<ResultSet> {
      const [result] = await add([statement]);
      if (result === undefined) throw new Error('A statement has no result');
      return result;
    },
  };
}
