import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { describeError } from '../log';
import { answerHeaders } from './answer-headers';
import { problemResponse } from './error-handler';

/** How many queries in a row the longest answer waits for. */
const longestQueries = 6;
const idleSeconds = 10;

type ServeConfig = Pick<AppDeps['config'], 'carrier' | 'database' | 'publicUrl' | 'requestTimeoutMs'>;

/** How Bun serves the app. */
export function serveOptions({
  config,
  log,
  metrics,
  newRequestId,
}: Pick<AppDeps, 'log' | 'newRequestId'> & Partial<Pick<AppDeps, 'metrics'>> & { config: ServeConfig }) {
  const { carrier, database, publicUrl, requestTimeoutMs } = config;
  const longestAnswerMs = (carrier.attempts + 1) * carrier.timeoutMs + longestQueries * database.timeoutMs;
  return {
    // Counts anew from a whole request and from an answer, not from each byte, so it cuts whoever sends a head slowly
    // too; a slow body is answered before.
    idleTimeout: Math.ceil(Math.max(longestAnswerMs, requestTimeoutMs) / 1000) + idleSeconds,
    // Two services on one port would share its requests silently.
    reusePort: false,
    // What escapes the error handler (a header that cannot be sent, `throw null`) would show Bun's own page.
    development: false,
    // Larger bodies are refused by our own check, after the token's and with a problem body.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    error(error: unknown) {
      const requestId = newRequestId();
      log.error({ requestId, problem: 'internal-error', ...describeError(error) }, 'request failed');
      metrics?.escaped();
      const answer = problemResponse(new AppError('internal-error'), new Request('http://localhost/'), requestId);
      answer.headers.set('x-request-id', requestId);
      for (const [name, value] of Object.entries(answerHeaders(publicUrl))) answer.headers.set(name, value);
      return answer;
    },
  };
}
