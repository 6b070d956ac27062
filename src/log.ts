import { write } from 'node:fs';
import { fileURLToPath } from 'node:url';
import pino from 'pino';
import { causeChain } from './errors';
import { type LogFields, listedFields } from './log-fields';
import { packageRoot } from './shared/build';
import type { CompletedRequest } from './telemetry/events';

/** What waits for a reader who stalls or a disk that is full; what exceeds it is dropped. */
const maxWaitingCharacters = 16 * 1024 * 1024;
const retryMs = 100;

interface LogOutput {
  write(line: string): void;
  /** Ends when all that was written is out, or after `patienceMs`. */
  flush(patienceMs: number): Promise<void>;
}

/**
 * Writes lines to a file descriptor off the thread that serves requests, those of one turn of the event loop together.
 * It never stands still, unlike pino's own destination, which waits on the thread for a full disk at exits and fatal
 * lines: what cannot be written is tried again for as long as there is room for it.
 */
export function openLogOutput(descriptor: number): LogOutput {
  let waiting = '';
  let unwritten: Uint8Array = new Uint8Array();
  let isBusy = false;
  let onIdle: () => void = () => undefined;

  const writeOut = () => {
    if (unwritten.byteLength === 0) {
      if (waiting === '') {
        isBusy = false;
        onIdle();
        return;
      }
      unwritten = Buffer.from(waiting);
      waiting = '';
    }
    write(descriptor, unwritten, (error, written) => {
      if (error === null) {
        unwritten = unwritten.subarray(written);
        writeOut();
      } else if (error.code === 'EPIPE' || error.code === 'EBADF') {
        // Nobody will ever read it.
        unwritten = new Uint8Array();
        waiting = '';
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
    flush(patienceMs) {
      if (!isBusy) return Promise.resolve();
      const idle = new Promise<void>((resolve) => {
        onIdle = resolve;
      });
      return Promise.race([idle, Bun.sleep(patienceMs)]);
    },
  };
}

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type LogLevel = (typeof logLevels)[number];

/** A text of the program's own: one that is put together at run time is of no such type. */
type Fixed<Text extends string> = Record<never, never> extends Record<Text, 1> ? never : Text;

/** Writes one line of a fixed text and listed fields; never throws. */
interface Write {
  <Text extends string>(message: Fixed<Text>): void;
  <Text extends string>(fields: LogFields, message: Fixed<Text>): void;
}

interface RequestLine extends CompletedRequest {
  /** Of the request's trace, while there are traces. */
  readonly traceId?: string | undefined;
  /** The origin of the sending page if CORS_ORIGINS does not list it. */
  readonly refusedOrigin?: string | undefined;
}

export interface Log extends Readonly<Record<'debug' | 'info' | 'warn' | 'error' | 'fatal', Write>> {
  /** The one line of a request, at the level `info`. */
  request(line: RequestLine): void;
  /** Whether lines of that level are written, for fields that take long to make. */
  readonly isDebug: boolean;
  /** Writes the summaries of repeated lines that are due, at a stop. */
  summarize(): void;
}

type Level = 'debug' | 'info' | 'warn' | 'error' | 'fatal';

/**
 * One JSON object a line on standard output, or to `destination`, of listed fields alone (src/log-fields.ts).
 *
 * @param summaryMs how often repeated warnings and errors of one kind are summarised
 */
export function createLog(
  level: LogLevel,
  destination: pino.DestinationStream = openLogOutput(1),
  summaryMs = 10_000,
): Log {
  const lines = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
  const repeats = limitRepeats((label, fields, message) => lines[label](fields, message), summaryMs);
  const writer =
    (label: Level) =>
    (first: LogFields | string, message = ''): void => {
      if (!lines.isLevelEnabled(label)) return;
      try {
        const fields = typeof first === 'string' ? {} : listedFields(first);
        const text = typeof first === 'string' ? first : message;
        // An operator looks up the request of an internal error and the application of an error by their ids.
        const hasId = fields.problem === 'internal-error' || (label === 'error' && fields.application !== undefined);
        const isLimited = (label === 'warn' || label === 'error') && !hasId;
        if (isLimited) repeats.write(label, fields, text);
        else lines[label](fields, text);
      } catch {
        // Logging must never fail a request.
      }
    };
  const isRequestLogged = lines.isLevelEnabled('info');
  return {
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
    fatal: writer('fatal'),
    isDebug: lines.isLevelEnabled('debug'),
    summarize: repeats.summarize,
    request(line) {
      if (!isRequestLogged) return;
      try {
        destination.write(printRequest(line));
      } catch {
        // As above.
      }
    },
  };
}

type ListedFields = ReturnType<typeof listedFields>;

/** More kinds at a time than there are; further ones are not limited. */
const maxRepeatedKinds = 1_000;

/**
 * Writes the first line of a kind at once, and then one line with the count of the others every `summaryMs`. A line at
 * the level `info` says that it has ended, once there was none for that long.
 */
function limitRepeats(write: (label: Level, fields: ListedFields, message: string) => void, summaryMs: number) {
  const kinds = new Map<string, { summarize(isLast: boolean): void; note(): void }>();
  const open = (kind: string, label: 'warn' | 'error', fields: ListedFields, message: string) => {
    const { requestId: _, frames: __, application: ___, ...shared } = fields;
    let [count, total] = [0, 1];
    const summarize = (isLast: boolean) => {
      if (count > 0) write(label, { ...shared, count }, `${message} (repeated)`);
      else if (!isLast) {
        clearInterval(timer);
        kinds.delete(kind);
        if (total > 1) write('info', { ...shared, count: total }, `${message} (ended)`);
      }
      total += count;
      count = 0;
    };
    const timer = setInterval(summarize, summaryMs, false);
    timer.unref();
    kinds.set(kind, {
      summarize,
      note() {
        count += 1;
      },
    });
  };
  return {
    write(label: 'warn' | 'error', fields: ListedFields, message: string) {
      const kind = kindOfLine(label, fields, message);
      const known = kinds.get(kind);
      if (known !== undefined) known.note();
      else {
        write(label, fields, message);
        if (kinds.size < maxRepeatedKinds) open(kind, label, fields, message);
      }
    },
    summarize() {
      for (const { summarize } of kinds.values()) summarize(true);
    },
  };
}

/** Lines of one kind differ in ids alone. The place counts where no problem is named. */
function kindOfLine(label: Level, fields: ListedFields, message: string): string {
  const { requestId: _, frames, application: __, durationMs: ___, ...shared } = fields;
  const place = fields.problem === undefined && Array.isArray(frames) ? frames[0] : undefined;
  return JSON.stringify([label, message, shared, place]);
}

const methodShape = /^[A-Za-z]{1,20}$/;
const routeShape = /^[\w/:.*?-]{1,200}$/;
const requestIdShape = /^[\w-]{1,64}$/;
/** The origins that browsers send. */
const originShape = /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/[\w.:[\]-]{1,100})$/;

/** By hand, as it is written once a request; whatever is put between quotes has been seen to need no escaping. */
function printRequest(line: RequestLine): string {
  const { requestId, traceId, refusedOrigin, method, route = 'none', status, durationMs } = line;
  return `{"level":"info","time":"${new Date().toISOString()}","requestId":"${
    requestIdShape.test(requestId) ? requestId : 'none'
  }"${traceId === undefined || !requestIdShape.test(traceId) ? '' : `,"traceId":"${traceId}"`},"method":"${methodShape.test(method) ? method : 'none'}","route":"${
    routeShape.test(route) ? route : 'none'
  }","status":${Number.isFinite(status) ? status : 0},"durationMs":${Number.isFinite(durationMs) ? Math.round(durationMs * 100) / 100 : 0}${
    refusedOrigin === undefined
      ? ''
      : `,"refusedOrigin":"${originShape.test(refusedOrigin) ? refusedOrigin : 'unlisted'}"`
  },"msg":"request"}\n`;
}

const root = fileURLToPath(packageRoot);

/**
 * What a log may hold of an error: names, codes and places. The text of a database error carries SQL with its
 * values, and that of a validation error the answer that failed.
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

/** Whoever made the error may have put anything there. */
function textOf(value: unknown): string {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

function framesOf(error: Error | undefined): string[] {
  if (error === undefined || typeof error.stack !== 'string') return [];
  // The stack begins with the message, which may hold lines that look like a part of it.
  const message = error.stack.indexOf(error.message);
  const trace = message === -1 ? error.stack : error.stack.slice(message + error.message.length);
  return trace.split('\n', 50).flatMap(placeOf).slice(0, 12);
}

/** Where a line of a stack stands, if that is in this package or in the runtime. A function may be named after a value. */
function placeOf(line: string): string[] {
  const start = line.lastIndexOf(root);
  const place = start === -1 ? /(?:node|bun):[\w/.:-]+/.exec(line)?.[0] : line.slice(start + root.length);
  return place === undefined ? [] : [place.replace(/\)$/, '')];
}
