import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { describeError } from '../log';
import { problemResponse } from './error-handler';

/** How Bun serves the app. */
export function serveOptions({ log, newId }: Pick<AppDeps, 'log' | 'newId'>) {
  return {
    // Two services on one port would share its requests silently.
    reusePort: false,
    // What escapes the error handler (a header that cannot be sent, `throw null`) would show Bun's own page.
    development: false,
    // Larger bodies are refused by our own check, after the token's and with a problem body.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    error(error: unknown) {
      const requestId = newId();
      log.error({ requestId, problem: 'internal-error', ...describeError(error) }, 'request failed');
      const answer = problemResponse(new AppError('internal-error'), new Request('http://localhost/'), requestId);
      answer.headers.set('x-request-id', requestId);
      return answer;
    },
  };
}
