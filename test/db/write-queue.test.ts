import { describe, expect, test } from 'bun:test';
import { LibsqlError, type ResultSet } from '@libsql/client';
import { DatabaseError } from '../../src/db/errors';
import { groupWrites } from '../../src/db/remote-client';
import { createWriteQueue, type WriteBatch } from '../../src/db/write-queue';
import { temporaryDatabase } from '../support/database';

function result(text: string): ResultSet {
  const rows: ResultSet['rows'] = [];
  return { columns: [text], columnTypes: [], rows, rowsAffected: 0, lastInsertRowid: undefined, toJSON: () => text };
}

/** A queue that records its commits; a batch with the statement `bad` fails alone. */
function setUp({
  maxStatements = 256,
  maxPending = 1000,
  commit = undefined as undefined | (() => never),
  ready = (): Promise<unknown> | undefined => undefined,
} = {}) {
  const groups: string[][] = [];
  const sqlOf = (batch: WriteBatch) => batch.statements.map(({ sql }) => sql);
  const queue = createWriteQueue({
    timeoutMs: 1000,
    maxStatements,
    maxPending,
    ready,
    async commit(batches) {
      groups.push(batches.map((batch) => sqlOf(batch).join('+')));
      commit?.();
      await Bun.sleep(1);
      for (const batch of batches) {
        const texts = sqlOf(batch);
        batch.settle(texts.includes('bad') ? { error: new Error('bad') } : { results: texts.map(result) });
      }
    },
  });
  const add = async (...texts: string[]) =>
    (await queue.add(texts.map((sql) => ({ sql })))).map(({ columns }) => columns[0] ?? '');
  return { groups, add, queue };
}

describe('the write queue', () => {
  test('commits the batches of one turn together, in order, and returns each caller its own results', async () => {
    const { groups, add } = setUp();
    const names = Array.from({ length: 64 }, (_, index) => `s${index}`);
    expect(await Promise.all(names.map((name) => add(name, `${name}b`)))).toEqual(
      names.map((name) => [name, `${name}b`]),
    );
    expect(groups).toEqual([names.map((name) => `${name}+${name}b`)]);
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
    await new Promise((resolve) => setImmediate(resolve));
    const later = [add('a'), add('b')];
    await first;
    await Promise.all(later);
    expect(groups).toEqual([['alone'], ['a', 'b']]);
  });

  test('fails the whole group when the commit fails, and then continues', async () => {
    let isBroken = true;
    const { add } = setUp({
      commit: () => {
        if (isBroken) throw new Error('broken');
        return undefined as never;
      },
    });
    const outcomes = await Promise.allSettled([add('a'), add('b')]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    isBroken = false;
    expect(await add('c')).toEqual(['c']);
  });

  test('splits a large group between batches, never within one', async () => {
    const { groups, add } = setUp({ maxStatements: 3 });
    await Promise.all([add('a', 'b'), add('c', 'd'), add('e'), add('1', '2', '3', '4'), add('f')]);
    expect(groups).toEqual([['a+b'], ['c+d', 'e'], ['1+2+3+4'], ['f']]);
  });

  test('counts batches without an outcome toward its limit', async () => {
    const taken: WriteBatch[] = [];
    const queue = createWriteQueue({
      timeoutMs: 1000,
      maxStatements: 256,
      maxPending: 2,
      commit: async (batches) => void taken.push(...batches),
    });
    const waiting = [queue.add([{ sql: 'a' }]), queue.add([{ sql: 'b' }])];
    await Bun.sleep(5);
    expect(taken).toHaveLength(2);
    await expect(queue.add([{ sql: 'c' }])).rejects.toMatchObject({ code: 'QUEUE_FULL' });
    for (const batch of taken) {
      batch.settle({ results: [] });
      batch.settle({ error: new Error('second') });
    }
    await Promise.all(waiting);
    const later = [queue.add([{ sql: 'd' }]), queue.add([{ sql: 'e' }])];
    await expect(queue.add([{ sql: 'f' }])).rejects.toMatchObject({ code: 'QUEUE_FULL' });
    await Bun.sleep(5);
    for (const batch of taken) batch.settle({ results: [] });
    await Promise.all(later);
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

  test('refuses a batch at its limit at once, and accepts batches when there is room', async () => {
    const { add, queue } = setUp({ maxPending: 2 });
    const waiting = [add('a'), add('b')];
    await expect(queue.add([{ sql: 'c' }])).rejects.toMatchObject({ code: 'QUEUE_FULL', isUnavailable: true });
    await Promise.all(waiting);
    expect(await add('d')).toEqual(['d']);
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
