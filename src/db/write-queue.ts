import type { InStatement, ResultSet } from '@libsql/client';
import { DatabaseError } from './errors';

/** Statements that are stored together or not at all. */
export interface Unit {
  readonly statements: readonly InStatement[];
  /** By `performance.now()`; past it nobody waits for the unit any more. */
  readonly deadlineMs: number;
}

/** What became of a unit: the results of its statements, or why it was not stored. */
export type Outcome = { readonly results: ResultSet[] } | { readonly error: unknown };

interface QueueSettings {
  /** Stores the units in one transaction, each for itself: one that fails takes no other with it. */
  readonly commit: (units: readonly Unit[]) => Outcome[] | Promise<Outcome[]>;
  readonly timeoutMs: number;
  /** Most statements of one transaction; a unit with more has one of its own. */
  readonly maxStatements: number;
  /** Most units that may wait; past it they are refused at once. */
  readonly maxWaiting: number;
}

/** Turns of the event loop, each of which reads the requests that have come. */
const maxGatheringTurns = 8;

interface Waiting extends Unit {
  readonly settle: (outcome: Outcome) => void;
}

/**
 * Stores what many callers write at the same time in one transaction, in the order in which they came: a commit costs
 * the same for one as for all of them. Whoever is alone waits for nobody.
 */
export function createWriteQueue({ commit, timeoutMs, maxStatements, maxWaiting }: QueueSettings) {
  const waiting: Waiting[] = [];
  let isRunning = false;

  const takeGroup = (): Waiting[] => {
    let statements = 0;
    const end = waiting.findIndex((unit, index) => {
      statements += unit.statements.length;
      return index > 0 && statements > maxStatements;
    });
    return waiting.splice(0, end === -1 ? waiting.length : end);
  };

  /** Where many write at a time, the next group is worth waiting for as long as it still grows. */
  const untilGathered = async (lastGroup: number) => {
    for (let turn = 0, seen = 0; lastGroup > 1 && turn < maxGatheringTurns && waiting.length > seen; turn += 1) {
      seen = waiting.length;
      await nextTurn();
    }
  };

  const run = async () => {
    let lastGroup = 1;
    while (waiting.length > 0) {
      await untilGathered(lastGroup);
      const group = takeGroup();
      lastGroup = group.length;
      let outcomes: readonly Outcome[];
      try {
        outcomes = await commit(group);
      } catch (error) {
        outcomes = group.map(() => ({ error }));
      }
      for (const [index, { settle }] of group.entries()) {
        settle(outcomes[index] ?? { error: new Error('A unit has no outcome') });
      }
      // Lets the requests that have arrived meanwhile get as far as the next group.
      await nextTurn();
    }
    isRunning = false;
  };

  return {
    /**
     * Stores the statements, all or none, and gives their results.
     *
     * @throws DatabaseError of this unit alone, `QUEUE_FULL` when too many wait already
     */
    add(statements: readonly InStatement[]): Promise<ResultSet[]> {
      if (waiting.length >= maxWaiting) return Promise.reject(new DatabaseError('QUEUE_FULL', true));
      const { promise, resolve, reject } = Promise.withResolvers<ResultSet[]>();
      waiting.push({
        statements,
        deadlineMs: performance.now() + timeoutMs,
        settle: (outcome) => ('error' in outcome ? reject(outcome.error) : resolve(outcome.results)),
      });
      if (!isRunning) {
        isRunning = true;
        setImmediate(run);
      }
      return promise;
    },
  };
}

/** A microtask would come before the requests that are ready to be read, and group nothing. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
