import { describe, expect, test } from 'bun:test';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { createLog, describeError, type Log, openLogOutput } from '../src/log';
import { nextTurn } from '../src/shared/async';
import { temporaryFolder, until } from './support/resources';

const canary = 'Canary-4711';
const Lines = v.array(v.pipe(v.string(), v.endsWith('\n'), v.parseJson(), v.record(v.string(), v.unknown())));

/** The lines that `write` logs, parsed; each must be one line. */
function logged(write: (log: Log) => void, level: Parameters<typeof createLog>[0] = 'debug') {
  const lines: string[] = [];
  write(createLog(level, { write: (line) => lines.push(line) }));
  expect(lines.filter((line) => line.trimEnd().includes('\n'))).toEqual([]);
  return v.parse(Lines, lines);
}

/** Hides the field types from the compiler, as a spread may. */
const hidden = (fields: object): object => fields;
const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);

describe('log line', () => {
  test.each(['debug', 'info', 'warn', 'error', 'fatal'] as const)('has only listed fields at level %s', (level) => {
    const fields = hidden({ [canary]: 1, firstName: canary, email: `${canary}@example.com`, settled: 3 });
    const line = { level, time, requestId: 'request-1', settled: 3, dropped: ['unlisted'], msg: 'a text' };
    expect(logged((log) => log[level]({ ...fields, requestId: 'request-1' }, 'a text'))).toEqual([line]);
  });

  test.each([
    ['requestId', [`${canary} Ada`, 'a\nb'.repeat(5)]],
    ['problem', [canary, 'constructor']],
    ['rules', [[canary]]],
    ['errors', [canary, [canary]]],
    ['frames', [canary]],
    ['code', [canary, 'ADA', 'VA', '1951-07-19', 'SQLITE_BUSY: Ada', `SQLITE_${'A'.repeat(500)}`]],
    ['reason', [canary]],
    ['endpoint', [canary]],
    ['application', [`${canary}@example.com`]],
    ['settled', [1.5]],
    ['durationMs', [Number.NaN]],
    ['address', ['x'.repeat(1001)]],
    ['time', [canary]],
    ['msg', [canary]],
    ['__proto__', [canary]],
  ])('drops %s with an invalid value and reports only the field name: %p', (name, values) => {
    const dropped = ['time', 'msg', '__proto__'].includes(name) ? 'unlisted' : name;
    for (const value of values) {
      const lines = logged((log) => log.error(hidden(Object.fromEntries([[name, value]])), 'a text'));
      expect(lines).toEqual([{ level: 'error', time, dropped: [dropped], msg: 'a text' }]);
    }
  });

  test('accepts only constant messages and listed fields by its types', () => {
    const text: string = canary;
    const write = (log: Log) => {
      // @ts-expect-error
      log.info(text);
      // @ts-expect-error
      log.info(`the name is ${text}`);
      // @ts-expect-error
      log.info({ settled: 1 }, `the name is ${text}`);
      // @ts-expect-error
      log.info({ firstName: text }, 'a text');
      // @ts-expect-error
      log.info({ settled: text }, 'a text');
    };
    expect(logged(write, 'silent')).toEqual([]);
  });

  test('never throws for hostile fields or a failing output', () => {
    const fail = () => {
      throw new Error(canary);
    };
    const hostile = Object.defineProperty({}, 'settled', { enumerable: true, get: fail });
    expect(JSON.stringify(logged((log) => log.error(hostile, 'a text')))).not.toContain(canary);
    const broken = createLog('debug', { write: fail });
    broken.error('a text');
    broken.request({ requestId: 'request-1', method: 'GET', route: '/', status: 200, durationMs: 1 });
  });
});

describe('request line', () => {
  const request = { requestId: 'request-1', method: 'GET', route: '/v2/private/user', status: 200, durationMs: 1.239 };
  test.each([
    [{}, {}],
    [{ method: `GET","level":"fatal` }, { method: 'none' }],
    [{ method: 'x'.repeat(100_000) }, { method: 'none' }],
    [{ route: `/"\n{"level":"fatal"}` }, { route: 'none' }],
    [{ route: `/${'x'.repeat(1000)}` }, { route: 'none' }],
    [{ route: '/users/:id/*' }, { route: '/users/:id/*' }],
    [{ route: undefined }, { route: 'none' }],
    [{ requestId: `"\n` }, { requestId: 'none' }],
    [{ requestId: '' }, { requestId: 'none' }],
    [{ status: Number.NaN }, { status: 0 }],
    [{ durationMs: Number.NaN }, { durationMs: 0 }],
    [{ durationMs: Number.POSITIVE_INFINITY }, { durationMs: 0 }],
  ])('has one line of JSON with safe values for %j', (sent, expected) => {
    const line = { level: 'info', time, ...request, durationMs: 1.24, msg: 'request', ...expected };
    expect(logged((log) => log.request({ ...request, ...sent }))).toEqual([line]);
  });

  test.each(['warn', 'error', 'silent'] as const)('does not appear at level %s', (level) => {
    expect(logged((log) => log.request(request), level)).toEqual([]);
  });
});

describe('logged error', () => {
  const withFields = (fields: object) => Object.assign(new Error(canary), fields);
  const fail = () => {
    throw new Error(canary);
  };
  const thrownBy = (work: () => unknown) => {
    try {
      return work();
    } catch (error) {
      return error;
    }
  };
  test.each([
    ['a text', canary],
    ['nothing', undefined],
    ['null', null],
    ['an object', { message: canary, name: canary, stack: `at ${canary}` }],
    ['a message', new Error(canary)],
    ['a name', withFields({ name: canary })],
    ['a name with a line break', withFields({ name: `Error\n${canary}` })],
    ['a code', withFields({ code: canary })],
    ['a code that is an object', withFields({ code: { toString: () => canary } })],
    ['a code whose toString throws', withFields({ code: { toString: fail } })],
    ['a message that looks like frames', new Error(`x\n    at ${canary} (${process.cwd()}/src/${canary}.ts:19:7)`)],
    ['a function that is named after a value', thrownBy({ [canary]: () => fail() }[canary] ?? fail)],
    ['a stack of its own', withFields({ stack: `Error: x\n    at ${canary} (/home/${canary}/x.ts:1:1)` })],
    ['a stack that is not text', withFields({ stack: [canary] })],
    ['a cause', new Error('x', { cause: Object.assign(new TypeError(canary), { code: canary, params: [canary] }) })],
    ['a batch of errors', new AggregateError([new Error(canary)], canary)],
  ])('does not contain a value that is %s', (_, error) => {
    const lines = logged((log) => log.error(describeError(error), 'it failed'));
    expect(lines).toMatchObject([{ msg: 'it failed' }]);
    for (const text of [canary, process.cwd()]) expect(JSON.stringify(lines)).not.toContain(text);
  });

  test('has name, code and stack frames', () => {
    const cause = Object.assign(new TypeError('x'), { code: 'ECONNREFUSED' });
    const [line] = logged((log) => log.error(describeError(new Error('y\nz', { cause })), 'it failed'));
    expect(line?.errors).toEqual([{ name: 'Error' }, { name: 'TypeError', code: 'ECONNREFUSED' }]);
    expect(line?.frames).toContainEqual(expect.stringMatching(/^test\/log\.test\.ts:\d+:\d+$/));
    expect(line?.dropped).toBeUndefined();
  });
});

describe('repeated line', () => {
  const errors = [{ name: 'DatabaseError', code: 'SQLITE_BUSY' }];
  const shared = { problem: 'database-unavailable', errors } as const;

  test('is summarised, and written again after the end of the repetition', async () => {
    const lines: Record<string, unknown>[] = [];
    const log = createLog('info', { write: (line) => lines.push({ ...JSON.parse(line), time }) }, 30);
    const fail = (requestId: string) => log.error({ requestId, ...shared }, 'request failed');
    for (let index = 0; index < 5; index += 1) fail(`request-${index}`);
    log.warn({ reason: 'expired' }, 'a token is refused');
    await until(() => lines.some(({ msg }) => msg === 'request failed (ended)'));
    fail('request-9');
    expect(lines).toEqual([
      { level: 'error', time, requestId: 'request-0', ...shared, msg: 'request failed' },
      { level: 'warn', time, reason: 'expired', msg: 'a token is refused' },
      { level: 'error', time, ...shared, count: 4, msg: 'request failed (repeated)' },
      { level: 'info', time, ...shared, count: 5, msg: 'request failed (ended)' },
      { level: 'error', time, requestId: 'request-9', ...shared, msg: 'request failed' },
    ]);
  });

  test.each(['error', 'warn'] as const)('at level %s has the count of the lines at a stop', (level) => {
    const write = (log: Log) => {
      for (let index = 0; index < 100; index += 1)
        log[level]({ requestId: `request-${index}`, ...shared }, 'it failed');
      log.summarize();
    };
    expect(logged(write).map(({ msg, count }) => [msg, count])).toEqual([
      ['it failed', undefined],
      ['it failed (repeated)', 99],
    ]);
  });

  test('is not summarised for an internal error and for the application of an error', () => {
    const ids = Array.from({ length: 3 }, () => Bun.randomUUIDv7());
    const lines = logged((log) => {
      for (const requestId of ids) log.error({ requestId, problem: 'internal-error' }, 'request failed');
      for (const application of ids) log.error({ application, code: 'refused' }, 'an application is abandoned');
    });
    expect(lines.map(({ requestId, application }) => requestId ?? application)).toEqual([...ids, ...ids]);
  });
});

describe.skipIf(process.platform !== 'linux')('openLogOutput', () => {
  /** A pipe that is not read, and an output that writes to it. */
  function openPipe() {
    const path = join(temporaryFolder(), 'pipe');
    Bun.spawnSync(['mkfifo', path]);
    const [stalled, writer] = [openSync(path, 'r+'), openSync(path, 'w')];
    return { reader: openSync(path, 'r'), stalled, writer, output: openLogOutput(writer) };
  }

  test('keeps a bounded number of lines of a stalled reader, and writes them when it reads again', async () => {
    const { reader, stalled, writer, output } = openPipe();
    for (let count = 0; count < 4000; count += 1) output.write(`${'x'.repeat(9999)}\n`);
    await output.flush(1);
    const counting = Bun.spawn(['wc', '-c'], { stdin: reader });
    await output.flush(20_000);
    for (const descriptor of [reader, stalled, writer]) closeSync(descriptor);
    const written = Number(await new Response(counting.stdout).text());
    expect([written > 16_000_000, written < 17_000_000]).toEqual([true, true]);
  });

  /** An output whose writes end when the test ends them. */
  function openHeldOutput() {
    const writes: string[] = [];
    const ends: (() => void)[] = [];
    const output = openLogOutput(1, (_, bytes, onEnd) => {
      writes.push(new TextDecoder().decode(bytes));
      ends.push(() => onEnd(null, bytes.byteLength));
    });
    return { output, writes, endWrite: () => ends.shift()?.() };
  }

  test('writes a line at once, and the lines of the pause after it together', async () => {
    const { output, writes, endWrite } = openHeldOutput();
    const lines = Array.from({ length: 100 }, (_, index) => `${index}\n`);
    const [early, late] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    output.write('first\n');
    await nextTurn();
    expect(writes).toEqual(['first\n']);
    // Timers fire in the order of their times, so the pause ends after the first timer and before the second.
    setTimeout(early.resolve, 5);
    endWrite();
    const lateTimer = setTimeout(late.resolve, 2_000);
    for (const line of lines.slice(0, 50)) output.write(line);
    await early.promise;
    for (const line of lines.slice(50)) output.write(line);
    expect(writes).toEqual(['first\n']);
    await Promise.race([until(() => writes.length > 1), late.promise]);
    clearTimeout(lateTimer);
    expect(writes).toEqual(['first\n', lines.join('')]);
  });

  test('flushes without the pause, for each of two concurrent callers', async () => {
    const { output, writes, endWrite } = openHeldOutput();
    await output.flush(600_000);
    output.write('1\n');
    await nextTurn();
    endWrite();
    output.write('2\n');
    const flushes = [output.flush(600_000), output.flush(600_000)];
    expect(writes).toEqual(['1\n', '2\n']);
    endWrite();
    // The time limit of the test is shorter.
    await Promise.all(flushes);
    await output.flush(600_000);
  });

  test('drops the lines of a closed reader', async () => {
    const { reader, stalled, writer, output } = openPipe();
    for (const descriptor of [reader, stalled]) closeSync(descriptor);
    output.write('a line\n');
    // The time limit of the test is shorter.
    await output.flush(600_000);
    closeSync(writer);
  });
});
