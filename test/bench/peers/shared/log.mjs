import pino from 'pino';

/** One JSON object a line on standard output. */
export function createLog() {
  return pino(
    {
      level: 'info',
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    pino.destination(1),
  );
}

/**
 * Returns the name and code of an error, not its message: a database error may contain SQL with its values.
 *
 * @param {unknown} error
 */
export function describeError(error) {
  if (!(error instanceof Error)) return { name: typeof error };
  return { name: error.name, ...('code' in error ? { code: String(error.code) } : {}) };
}

/** @param {number} startedAtMs */
export function durationSince(startedAtMs) {
  return Math.round((performance.now() - startedAtMs) * 100) / 100;
}
