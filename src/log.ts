import { write as writeToFile } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { causeChain } from './errors';
import { type LogFields, listedFields } from './log-fields';
import { withTimeout } from './shared/async';
import { packageRoot } from './shared/build';
import type { CompletedRequest } from './telemetry/events';

/** Lines that exceed this buffer are dropped, for example if the reader is stalled or the disk is full. */
const maxWaitingCharacters = 16 * 1024 * 1024;
const retryMs = 100;
/** A write on another thread takes as much processor time as several log lines. */
const sharedMs = 10;

/** Writes some or all of the bytes, as `write` of `node:fs` does. */
type WriteBytes = (
  descriptor: number,
  bytes: Uint8Array,
  onEnd: (error: NodeJS.ErrnoException | null, written: number) => void,
) => void;

export interface LogOutput {
  write(line: string): void;
  /** Resolves when all lines are written, or after `timeoutMs`. */
  flush(timeoutMs: number): Promise<void>;
}

/**
 * Writes lines to a file descriptor without blocking the event loop, also on a full disk. A line is written at the end of
 * the turn of the event loop. The lines of the next 10 ms share a write. A failed write is retried every 100 ms.
 */
export function openLogOutput(descriptor: number, write: WriteBytes = writeToFile): LogOutput {
  let waiting = '';
  let unwritten: Uint8Array = new Uint8Array();
  let isBusy = false;
  let pause: Timer | undefined;
  let allWritten: PromiseWithResolvers<void> | undefined;

  const onWritten = () => {
    allWritten?.resolve();
    allWritten = undefined;
  };
  const writeOut = () => {
    pause = undefined;
    if (unwritten.byteLength === 0) {
      if (waiting === '') {
        isBusy = false;
        return;
      }
      unwritten = Buffer.from(waiting);
      waiting = '';
    }
    write(descriptor, unwritten, (error, written) => {
      if (error === null) {
        unwritten = unwritten.subarray(written);
        if (unwritten.byteLength > 0) writeOut();
        else {
          if (waiting === '') onWritten();
          pause = setTimeout(writeOut, sharedMs);
        }
      } else if (error.code === 'EPIPE' || error.code === 'EBADF') {
        // The reader has closed the pipe.
        unwritten = new Uint8Array();
        waiting = '';
        onWritten();
        writeOut();
      } else {
        setTimeout(writeOut, retryMs).unref();
      }
    });
  };

  return {
    write(line) {
      if (waiting.length + unwritten.byteLength + line.length > maxWaitingCharacters) return;
      waiting += line;
      if (isBusy) return;
      isBusy = true;
      setImmediate(writeOut);
    },
    async flush(timeoutMs) {
      if (waiting === '' && unwritten.byteLength === 0) return;
      allWritten ??= Promise.withResolvers();
      const { promise } = allWritten;
      if (pause !== undefined) {
        clearTimeout(pause);
        writeOut();
      }
      await withTimeout(promise, timeoutMs, () => undefined);
    },
  };
}

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type LogLevel = (typeof logLevels)[number];
type LineLevel = Exclude<LogLevel, 'silent'> | 'fatal';

/** Accepts a string literal and refuses a string that is built at run time, which could hold personal data. */
type Literal<Text extends string> = Record<never, never> extends Record<Text, 1> ? never : Text;

interface Write {
  <Text extends string>(message: Literal<Text>): void;
  <Text extends string>(fields: LogFields, message: Literal<Text>): void;
}

interface RequestLine extends CompletedRequest {
  readonly traceId?: string | undefined;
  /** The origin of the sending page if CORS_ORIGINS does not list it. */
  readonly refusedOrigin?: string | undefined;
}

/** Never throws: logging must not fail a request. */
export interface Log extends Readonly<Record<LineLevel, Write>> {
  /** Writes the line of a completed request at level `info`. */
  request(line: RequestLine): void;
  /** Guards fields that are expensive to compute. */
  readonly isDebug: boolean;
  /** Writes the pending counts of repeated lines. */
  summarize(): void;
}

/**
 * Writes one JSON object per line, with the fields of src/log-fields.ts only.
 *
 * @param summaryMs interval of the counts of repeated warnings and errors
 */
export function createLog(
  level: LogLevel,
  output: Pick<LogOutput, 'write'> = openLogOutput(1),
  summaryMs = 10_000,
): Log {
  const isEnabled = (label: LineLevel) =>
    level !== 'silent' && (label === 'fatal' || logLevels.indexOf(label) >= logLevels.indexOf(level));
  const time = createTimeText();
  const writeLine = (label: LineLevel, members: string) =>
    output.write(`{"level":"${label}","time":"${time()}",${members}}\n`);
  const print = (label: LineLevel, fields: object, msg: string) =>
    writeLine(label, JSON.stringify({ ...fields, msg }).slice(1, -1));
  const repeats = limitRepeats(print, summaryMs);
  const writer = (label: LineLevel): Write => {
    if (!isEnabled(label)) return () => undefined;
    return (first: LogFields | string, message: string = '') => {
      try {
        const fields = typeof first === 'string' ? {} : listedFields(first);
        const text = typeof first === 'string' ? first : message;
        // Operators look up the request of an internal error and the application of an error by their ids.
        const hasId = fields.problem === 'internal-error' || (label === 'error' && fields.application !== undefined);
        if ((label === 'warn' || label === 'error') && !hasId) repeats.write(label, fields, text);
        else print(label, fields, text);
      } catch {
        // See Log.
      }
    };
  };
  const isRequestLogged = isEnabled('info');
  return {
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
    fatal: writer('fatal'),
    isDebug: isEnabled('debug'),
    summarize: repeats.summarize,
    request(line) {
      if (!isRequestLogged) return;
      try {
        writeLine('info', requestMembers(line));
      } catch {
        // See Log.
      }
    },
  };
}

/** Returns a function that prints the time. It prints each millisecond once. */
function createTimeText(): () => string {
  let atMs = 0;
  let text = '';
  return () => {
    const nowMs = Date.now();
    if (nowMs !== atMs) text = new Date(nowMs).toISOString();
    atMs = nowMs;
    return text;
  };
}

type ListedFields = ReturnType<typeof listedFields>;

/** Lines of further kinds are not limited. */
const maxRepeatedKinds = 1_000;

/**
 * Writes the first line of a kind at once, and then one line with the count of the others every `summaryMs`. After an
 * interval without a line of the kind, a line at the level `info` has the total.
 */
function limitRepeats(write: (label: LineLevel, fields: ListedFields, message: string) => void, summaryMs: number) {
  const kinds = new Map<string, { count: number; summarize(isLast: boolean): void }>();
  const open = (key: string, label: 'warn' | 'error', fields: ListedFields, message: string) => {
    const { requestId: _, frames: __, application: ___, ...shared } = fields;
    let total = 1;
    const kind = {
      count: 0,
      summarize(isLast: boolean) {
        const { count } = kind;
        if (count > 0) write(label, { ...shared, count }, `${message} (repeated)`);
        else if (!isLast) {
          clearInterval(timer);
          kinds.delete(key);
          if (total > 1) write('info', { ...shared, count: total }, `${message} (ended)`);
        }
        total += count;
        kind.count = 0;
      },
    };
    const timer = setInterval(kind.summarize, summaryMs, false);
    timer.unref();
    kinds.set(key, kind);
  };
  return {
    write(label: 'warn' | 'error', fields: ListedFields, message: string) {
      const key = kindOfLine(label, fields, message);
      const kind = kinds.get(key);
      if (kind !== undefined) kind.count += 1;
      else {
        write(label, fields, message);
        if (kinds.size < maxRepeatedKinds) open(key, label, fields, message);
      }
    },
    summarize() {
      for (const { summarize } of kinds.values()) summarize(true);
    },
  };
}

/** Lines of one kind differ only in ids and durations. Without a problem slug, the first frame belongs to the kind. */
function kindOfLine(label: LineLevel, fields: ListedFields, message: string): string {
  const { requestId: _, frames, application: __, durationMs: ___, ...shared } = fields;
  const place = fields.problem === undefined && Array.isArray(frames) ? frames[0] : undefined;
  return JSON.stringify([label, message, shared, place]);
}

const methodShape = /^[A-Za-z]{1,20}$/;
const routeShape = /^[\w/:.*?-]{1,200}$/;
const requestIdShape = /^[\w-]{1,64}$/;
/** The origins that browsers send. */
const originShape = /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/[\w.:[\]-]{1,100})$/;

/** Printed without a library, because it runs for each request. No shape allows a character that JSON escapes. */
function requestMembers({ requestId, traceId, refusedOrigin, method, route, status, durationMs }: RequestLine): string {
  const id = requestIdShape.test(requestId) ? requestId : 'none';
  const trace = traceId !== undefined && requestIdShape.test(traceId) ? `"traceId":"${traceId}",` : '';
  const verb = methodShape.test(method) ? method : 'none';
  const pattern = route !== undefined && routeShape.test(route) ? route : 'none';
  const code = Number.isFinite(status) ? status : 0;
  const duration = Number.isFinite(durationMs) ? Math.round(durationMs * 100) / 100 : 0;
  const refused = refusedOrigin === undefined || originShape.test(refusedOrigin) ? refusedOrigin : 'unlisted';
  const origin = refused === undefined ? '' : `"refusedOrigin":"${refused}",`;
  return `"requestId":"${id}",${trace}"method":"${verb}","route":"${pattern}","status":${code},"durationMs":${duration},${origin}"msg":"request"`;
}

const root = fileURLToPath(packageRoot);

/**
 * Returns the names, codes and stack frames of an error and its causes. Messages are not logged: a database error may
 * contain SQL with its values, and a validation error the invalid answer.
 */
export function describeError(error: unknown): Required<Pick<LogFields, 'errors' | 'frames'>> {
  const causes = [...causeChain(error)].slice(0, 12);
  return {
    errors: causes.map((cause) => ({
      name: textOf(cause.name),
      ...('code' in cause ? { code: textOf(cause.code) } : {}),
    })),
    frames: framesOf(causes[0]),
  };
}

/** Any library may set a name or code of any type. */
function textOf(value: unknown): string {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

function framesOf(error: Error | undefined): string[] {
  if (error === undefined || typeof error.stack !== 'string') return [];
  // The stack begins with the message, which may contain lines that look like frames.
  const message = error.stack.indexOf(error.message);
  const trace = message === -1 ? error.stack : error.stack.slice(message + error.message.length);
  return trace.split('\n', 50).flatMap(placeOf).slice(0, 12);
}

/** Returns the place of a stack frame in this package or the runtime, without the function, whose name may be a value. */
function placeOf(line: string): string[] {
  const start = line.lastIndexOf(root);
  const place = start === -1 ? /(?:node|bun):[\w/.:-]+/.exec(line)?.[0] : line.slice(start + root.length);
  return place === undefined ? [] : [place.replace(/\)$/, '')];
}
