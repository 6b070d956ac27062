import { describe, expect, test } from 'bun:test';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { createLog, describeError } from '../src/log';
import { programOf } from './support/artifacts';
import { atEnd, freePort, temporaryFolder, until } from './support/resources';

const canary = 'Canary-4711';
const main = await programOf('src/main');
const Line = v.record(v.string(), v.unknown());

function loggingTo(lines: string[]) {
  return createLog('debug', { write: (line) => lines.push(line) });
}

/** The single written line, parsed. */
function only(lines: readonly string[]) {
  expect(lines).toHaveLength(1);
  expect(lines[0]?.trimEnd()).not.toContain('\n');
  return v.parse(Line, JSON.parse(lines[0] ?? ''));
}

/** Hides the field types from the compiler, as a spread may. */
const hidden = (fields: object): object => fields;

describe('log line', () => {
  test.each(['debug', 'info', 'warn', 'error', 'fatal'] as const)('has only listed fields at level %s', (level) => {
    const lines: string[] = [];
    const fields = hidden({ [canary]: 1, firstName: canary, email: `${canary}@example.com`, settled: 3 });
    loggingTo(lines)[level]({ ...fields, requestId: 'request-1' }, 'a text');
    expect(only(lines)).toEqual({
      level,
      time: expect.any(String),
      requestId: 'request-1',
      settled: 3,
      dropped: ['unlisted'],
      msg: 'a text',
    });
  });

  test.each([
    ['requestId', `${canary} Ada`],
    ['requestId', 'a\nb'.repeat(5)],
    ['problem', canary],
    ['problem', 'constructor'],
    ['rules', [canary]],
    ['errors', canary],
    ['errors', [canary]],
    ['frames', canary],
    ['code', canary],
    ['code', 'ADA'],
    ['code', 'VA'],
    ['code', '1951-07-19'],
    ['code', 'SQLITE_BUSY: Ada'],
    ['code', `SQLITE_${'A'.repeat(500)}`],
    ['reason', canary],
    ['endpoint', canary],
    ['application', `${canary}@example.com`],
    ['settled', 1.5],
    ['durationMs', Number.NaN],
    ['address', 'x'.repeat(1001)],
    ['time', canary],
    ['msg', canary],
    ['__proto__', canary],
  ])('drops %s with the value %p and reports only the field name', (name, value) => {
    const lines: string[] = [];
    loggingTo(lines).error(hidden(Object.fromEntries([[name, value]])), 'a text');
    const { time, ...line } = only(lines);
    const isListed = !['time', 'msg', '__proto__'].includes(name);
    expect(line).toEqual({ level: 'error', dropped: [isListed ? name : 'unlisted'], msg: 'a text' });
    expect(String(time)).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  });

  test('accepts only constant messages and listed fields by its types', () => {
    const lines: string[] = [];
    const log = createLog('silent', { write: (line) => lines.push(line) });
    const text: string = canary;
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
    expect(lines).toEqual([]);
  });

  test('never throws for hostile fields or a failing output', () => {
    const lines: string[] = [];
    const hostile = {
      get settled(): number {
        throw new Error(canary);
      },
    };
    loggingTo(lines).error(hostile, 'a text');
    const broken = createLog('debug', {
      write() {
        throw new Error(canary);
      },
    });
    broken.error('a text');
    broken.request({ requestId: 'request-1', method: 'GET', route: '/', status: 200, durationMs: 1 });
    expect(lines.join('')).not.toContain(canary);
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
    const lines: string[] = [];
    loggingTo(lines).request({ ...request, ...sent });
    const { time, ...line } = only(lines);
    expect(new Date(String(time)).getTime()).toBeGreaterThan(Date.now() - 60_000);
    expect(line).toEqual({ level: 'info', ...request, durationMs: 1.24, msg: 'request', ...expected });
  });

  test.each(['warn', 'error', 'silent'] as const)('does not appear at level %s', (level) => {
    const lines: string[] = [];
    createLog(level, { write: (line) => lines.push(line) }).request(request);
    expect(lines).toEqual([]);
  });
});

describe('logged error', () => {
  const named = (name: string) => Object.assign(new Error(canary), { name });
  const coded = (code: unknown) => Object.assign(new Error(canary), { code });
  const forged = new Error(`${canary}\n    at ${canary} (${process.cwd()}/src/${canary}.ts:1951:7)`);
  const renamed = (() => {
    const functions = {
      [canary]: () => {
        throw new Error(canary);
      },
    };
    try {
      functions[canary]?.();
    } catch (error) {
      return error;
    }
  })();
  test.each([
    ['a text', canary],
    ['nothing', undefined],
    ['null', null],
    ['an object', { message: canary, name: canary, stack: `at ${canary}` }],
    ['a message', new Error(canary)],
    ['a name', named(canary)],
    ['a name with a line break', named(`Error\n${canary}`)],
    ['a code', coded(canary)],
    ['a code that is an object', coded({ toString: () => canary })],
    [
      'a code whose toString throws',
      coded({
        toString: () => {
          throw new Error(canary);
        },
      }),
    ],
    ['a message that looks like frames', forged],
    ['a function that is named after a value', renamed],
    [
      'a stack of its own',
      Object.assign(new Error('x'), { stack: `Error: x\n    at ${canary} (/home/${canary}/x.ts:1:1)` }),
    ],
    ['a stack that is not text', Object.assign(new Error('x'), { stack: [canary] })],
    ['a cause', new Error('x', { cause: Object.assign(new TypeError(canary), { code: canary, params: [canary] }) })],
    ['a batch of errors', new AggregateError([new Error(canary)], canary)],
  ])('does not contain a value that is %s', (_, error) => {
    const lines: string[] = [];
    loggingTo(lines).error(describeError(error), 'it failed');
    expect(only(lines)).toMatchObject({ msg: 'it failed' });
    expect(lines.join('')).not.toContain(canary);
    expect(lines.join('')).not.toContain(process.cwd());
  });

  test('has name, code and stack frames', () => {
    const lines: string[] = [];
    const cause = Object.assign(new TypeError('x'), { code: 'ECONNREFUSED' });
    loggingTo(lines).error(describeError(new Error('y\nz', { cause })), 'it failed');
    const line = only(lines);
    expect(line.errors).toEqual([{ name: 'Error' }, { name: 'TypeError', code: 'ECONNREFUSED' }]);
    expect(line.frames).toEqual(expect.arrayContaining([expect.stringMatching(/^test\/log\.test\.ts:\d+:\d+$/)]));
    expect(line.dropped).toBeUndefined();
  });
});

describe('standard output', () => {
  /** Starts the service with the given standard output. */
  async function startWith(stdout: number | 'pipe') {
    const cwd = temporaryFolder();
    const port = await freePort();
    const child = Bun.spawn([process.execPath, main], {
      cwd,
      env: {
        PATH: process.env.PATH,
        NODE_ENV: 'development',
        PORT: String(port),
        SEED_DEMO: 'false',
        LOG_LEVEL: 'debug',
      },
      stdout,
      stderr: 'pipe',
    });
    atEnd(async () => {
      child.kill('SIGKILL');
      await child.exited;
    });
    const live = async () => (await fetch(`http://127.0.0.1:${port}/health/live`).catch(() => undefined))?.status;
    await until(async () => (await live()) === 200);
    return { child, live };
  }

  test.skipIf(process.platform !== 'linux')('loses lines but fails no request on a full disk', async () => {
    const { child, live } = await startWith(openSync('/dev/full', 'w'));
    for (let count = 0; count < 20; count += 1) expect(await live()).toBe(200);
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
  });

  test('loses lines but fails no request with a closed reader', async () => {
    const { child, live } = await startWith('pipe');
    if (typeof child.stdout === 'number' || child.stdout === undefined) throw new Error('There is no pipe');
    await child.stdout.cancel();
    for (let count = 0; count < 20; count += 1) expect(await live()).toBe(200);
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    expect(await new Response(child.stderr).text()).toBe('');
  });

  test.skipIf(process.platform !== 'linux')('uses bounded memory with a stalled reader', async () => {
    // 100 MB of lines that are never read.
    const child = Bun.spawn([process.execPath, join(import.meta.dirname, 'support/child.ts'), 'flood-log'], {
      stdout: stalledPipe(),
      stderr: 'pipe',
    });
    const grownMb = Number(await new Response(child.stderr).text());
    expect(grownMb).toBeGreaterThanOrEqual(0);
    expect(grownMb).toBeLessThan(80);
  });

  test.skipIf(process.platform !== 'linux')('delays neither requests nor the stop with a stalled reader', async () => {
    const { child, live } = await startWith(stalledPipe());
    for (let count = 0; count < 500; count += 1) await live();
    expect(await live()).toBe(200);
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
  });
});

/** An open pipe with a capacity of 64 kB that is never read. */
function stalledPipe(): number {
  const path = join(temporaryFolder(), 'pipe');
  Bun.spawnSync(['mkfifo', path]);
  return openSync(path, 'r+');
}
