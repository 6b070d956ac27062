import { fileURLToPath } from 'node:url';
import pino from 'pino';
import { causeChain } from './errors';
import { type LogFields, listedFields } from './log-fields';
import { openLogOutput } from './log-output';
import { packageRoot } from './package-root';
import type { AnsweredRequest } from './telemetry/observers';

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type LogLevel = (typeof logLevels)[number];

/** A text of the program's own: one that is put together at run time is of no such type. */
type Fixed<Text extends string> = Record<never, never> extends Record<Text, 1> ? never : Text;

/** Writes one line of a fixed text and listed fields; never throws. */
interface Write {
  <Text extends string>(message: Fixed<Text>): void;
  <Text extends string>(fields: LogFields, message: Fixed<Text>): void;
}

interface RequestLine extends AnsweredRequest {
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
}

/** One JSON object a line on standard output, or to `destination`, of listed fields alone (src/log-fields.ts). */
export function createLog(level: LogLevel, destination: pino.DestinationStream = openLogOutput(1)): Log {
  const lines = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
  const writer =
    (label: 'debug' | 'info' | 'warn' | 'error' | 'fatal') =>
    (first: LogFields | string, message?: string): void => {
      if (!lines.isLevelEnabled(label)) return;
      try {
        if (typeof first === 'string') lines[label](first);
        else lines[label](listedFields(first), message);
      } catch {
        // No line is worth the request, or the process, that it tells of.
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
