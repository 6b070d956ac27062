import pino from 'pino';
import { causeChain } from './errors';

export type Log = pino.Logger;
export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type LogLevel = (typeof logLevels)[number];

/** Off the thread that serves requests; what is not written yet is when the process exits or logs a fatal line. Where nobody reads, lines are dropped. */
const standardOutput = { dest: 1, sync: false, maxLength: 16 * 1024 * 1024 } as const;

/** One JSON object a line on standard output, or to `destination`. */
export function createLog(
  level: LogLevel,
  destination: pino.DestinationStream = pino.destination(standardOutput),
): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
}

/**
 * What a log may hold of an error: names, codes and frames. The text of a database error carries SQL with its
 * values, and that of a validation error the answer that failed.
 */
export function describeError(error: unknown) {
  const causes = [...causeChain(error)];
  return {
    errors: causes.map((cause) => ({ name: cause.name, ...('code' in cause ? { code: String(cause.code) } : {}) })),
    frames: causes[0]?.stack
      ?.split('\n')
      .filter((line) => /^\s+at /.test(line))
      .slice(0, 12),
  };
}
