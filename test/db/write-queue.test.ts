import { describe, expect, spyOn, test } from 'bun:test';
import { LibsqlBatchError, LibsqlError, type ResultSet } from '@libsql/client';
import { DatabaseError } from '../../src/db/errors';
import { groupWrites } from '../../src/db/remote-client';
import type { SqlStatement } from '../../src/db/sql-client';
import { createWriteQueue, type WriteBatch } from '../../src/db/write-queue';
import { temporaryDatabase } from '../support/database';
import { until } from '../support/resources';

function result(text: string): ResultSet {
  const rows: ResultSet['rows'] = [];
  return { columns: [text], columnTypes: [], rows, rowsAffected: 0, lastInsertRowid: undefined, toJSON: () => text };
}

/** A queue that records its commits; a batch with the statement `bad` fails alone, and `broken` fails the commit. */
function setUp({ maxStatements = 256, gatherMs = 1, ready = (): Promise<unknown> | undefined => undefined } = {}) {
  const groups: string[][] = [];
  const queue = createWriteQueue({
    timeoutMs: 1000,
    maxStatements,
    gatherMs,
    ready,
    async commit(batches) {
      const texts = batches.map(({ statements }) => statements.map(({ sql }) => sql));
      groups.push(texts.map((each) => each.join('+')));
      if (texts.flat().includes('broken')) throw new Error('broken');
      await Bun.sleep(1);
      for (const [index, batch] of batches.entries()) {
        const own = texts[index] ?? [];
        batch.settle(own.includes('bad') ? { error: new Error('bad') } : { results: own.map(result) });
      }
    },
  });
  const add = async (...texts: string[]) =>
    (await queue.add(texts.map((sql) => ({ sql })))).map(({ columns }) => columns[0] ?? '');
  return { groups, add };
}

describe('the write queue', () => {
  test('commits the batches of one turn together, in order, and gives each caller its own outcome', async () => {
    const { groups, add } = setUp();
    const names = Array.from({ length: 64 }, (_, index) => (index === 9 ? 'bad' : `s${index}`));
    const outcomes = await Promise.allSettled(names.map((name) => add(name, `${name}b`)));
    expect(outcomes.map((each) => (each.status === 'fulfilled' ? each.value : each.reason.message))).toEqual(
      names.map((name) => (name === 'bad' ? 'bad' : [name, `${name}b`])),
    );
    expect(groups).toEqual([names.map((name) => `${name}+${name}b`)]);
  });

  test('continues after a failure of the check that precedes a commit', async () => {
    const { add } = setUp({
      ready: () => {
        throw new Error('EIO');
      },
    });
    expect(await Promise.all([add('a'), add('b')])).toEqual([['a'], ['b']]);
    expect(await add('c')).toEqual(['c']);
  });

  test('commits batches that arrive during a checkpoint together', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { groups, add } = setUp({ ready: () => promise });
    const first = add('a');
    await Bun.sleep(5);
    const second = add('b');
    resolve();
    await Promise.all([first, second]);
    expect(groups).toEqual([['a', 'b']]);
  });

  test('commits a lone batch without delay, and groups batches that arrive during a commit', async () => {
    const { groups, add } = setUp();
    const first = add('alone');
    while (groups.length === 0) await new Promise((resolve) => setImmediate(resolve));
    const later = [add('a'), add('b')];
    await first;
    await Promise.all(later);
    expect(groups).toEqual([['alone'], ['a', 'b']]);
  });

  test.each([
    ['until the group is full', 60_000, 32],
    ['no longer than the time limit', 0, 2],
  ])('commits the batches of successive turns together, %s', async (_, gatherMs, size) => {
    const { groups, add } = setUp({ gatherMs });
    const added: Promise<unknown>[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const addInEachTurn = () => {
      if (added.length === 40) return resolve();
      // Before the batch, so that the next one comes before the queue counts.
      setImmediate(addInEachTurn);
      added.push(add(`s${added.length}`));
    };
    addInEachTurn();
    await promise;
    await Promise.all(added);
    expect(groups[0]).toHaveLength(size);
  });

  test('fails the whole group when the commit fails, and then continues', async () => {
    const { add } = setUp();
    const outcomes = await Promise.allSettled([add('a'), add('broken')]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await add('c')).toEqual(['c']);
  });

  test('splits a large group between batches, never within one', async () => {
    const { groups, add } = setUp({ maxStatements: 3 });
    await Promise.all([add('a', 'b'), add('c', 'd'), add('e'), add('1', '2', '3', '4'), add('f')]);
    expect(groups).toEqual([['a+b'], ['c+d', 'e'], ['1+2+3+4'], ['f']]);
  });

  test('refuses a batch at once while too many have no outcome, and accepts one for each that has', async () => {
    const taken: WriteBatch[] = [];
    const commit = async (batches: readonly WriteBatch[]) => void taken.push(...batches);
    const queue = createWriteQueue({ timeoutMs: 1000, maxStatements: 256, maxPending: 2, commit });
    const settleAll = async (...names: string[]) => {
      const waiting = names.map((sql) => queue.add([{ sql }]));
      await expect(queue.add([{ sql: 'c' }])).rejects.toMatchObject({ code: 'QUEUE_FULL', isUnavailable: true });
      await until(() => taken.length === 2);
      await expect(queue.add([{ sql: 'c' }])).rejects.toMatchObject({ code: 'QUEUE_FULL', isUnavailable: true });
      for (const batch of taken.splice(0)) {
        batch.settle({ results: [] });
        batch.settle({ error: new Error('second') });
      }
      await Promise.all(waiting);
    };
    await settleAll('a', 'b');
    await settleAll('d', 'e');
  });

  test('has a timer only while a batch is pending, so that it does not keep a process alive', async () => {
    const timeoutMs = 54_321;
    const [started, cleared] = [spyOn(globalThis, 'setTimeout'), spyOn(globalThis, 'clearTimeout')];
    const isOfQueue = (index: number) => started.mock.calls[index]?.[1] === timeoutMs;
    const timers = () => started.mock.results.filter((_, index) => isOfQueue(index)).map(({ value }) => value);
    const running = () => timers().filter((timer) => !cleared.mock.calls.some(([each]) => each === timer));
    const taken: WriteBatch[] = [];
    const commit = async (batches: readonly WriteBatch[]) => void taken.push(...batches);
    const queue = createWriteQueue({ timeoutMs, maxStatements: 256, commit });
    try {
      for (const count of [1, 2]) {
        const added = [queue.add([{ sql: 'a' }]), queue.add([{ sql: 'b' }])];
        await until(() => taken.length === 2);
        for (const batch of taken.splice(0)) {
          expect([timers().length, running().length]).toEqual([count, 1]);
          batch.settle({ results: [] });
        }
        expect(running()).toEqual([]);
        await Promise.all(added);
      }
    } finally {
      started.mockRestore();
      cleared.mockRestore();
    }
  });

  test('does not start a batch whose deadline passes before its turn', async () => {
    const begun = Promise.withResolvers<void>();
    const isOver = Promise.withResolvers<void>();
    const committed: number[] = [];
    const queue = createWriteQueue({
      timeoutMs: 20,
      maxStatements: 1,
      async commit(batches) {
        committed.push(batches.length);
        begun.resolve();
        await isOver.promise;
        for (const batch of batches) batch.settle({ results: [] });
      },
    });
    const late = Promise.allSettled([queue.add([{ sql: 'a' }]), queue.add([{ sql: 'b' }])]);
    await begun.promise;
    for (const each of await late) expect(each).toMatchObject({ reason: { code: 'DEADLINE_EXCEEDED' } });
    isOver.resolve();
    await queue.add([{ sql: 'c' }]);
    expect(committed).toEqual([1, 0, 1]);
  });
});

test.each([
  ['an unreadable response', new SyntaxError('cut off'), 1],
  ['a number out of range', new RangeError('too large'), 1],
  ['a deadline', new DatabaseError('DEADLINE_EXCEEDED', true), 1],
  ['a refusal of the whole group', new LibsqlError('no', 'RESPONSE_TOO_LARGE'), 4],
])(
  'a group that a server fails with %s is sent again only when nothing can have been stored',
  async (_, error, sent) => {
    const { db } = await temporaryDatabase();
    let batches = 0;
    const write = () => {
      batches += 1;
      return Promise.reject(error);
    };
    const grouped = groupWrites({ ...db.$client, write }, { timeoutMs: 1000 });
    const outcomes = await Promise.allSettled(['a', 'b', 'c'].map((sql) => grouped.write([{ sql }])));
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(batches).toBe(sent);
  },
);

test('a group in which a server names the failing statement rejects only the write that has it', async () => {
  const { db } = await temporaryDatabase();
  const sizes: number[] = [];
  const write = async (statements: readonly SqlStatement[]) => {
    sizes.push(statements.length);
    const index = statements.findIndex(({ sql }) => sql === 'bad');
    if (index !== -1) throw new LibsqlBatchError('no', index, 'SQLITE_CONSTRAINT');
    return statements.map(({ sql }) => result(sql));
  };
  const grouped = groupWrites({ ...db.$client, write }, { timeoutMs: 1000 });
  const writes = [
    ['a', 'b'],
    ['bad', 'c'],
    ['d', 'e'],
  ].map((texts) => grouped.write(texts.map((sql) => ({ sql }))));
  const outcomes = await Promise.allSettled(writes);
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(sizes).toEqual([6, 4]);
});
