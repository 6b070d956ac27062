import type { AppDeps } from '../deps';
import { OperatorError } from '../errors';
import { createLog } from '../log';
import answers from './answers.json' with { type: 'json' };

const { firstName, lastName, dateOfBirth, gender, state, email } = answers.profile;

/** What a frontend would send, in that order. */
const journey = [
  ['/user/profile', answers.profile],
  ['/ltc/lifetimeCare', answers.ltc],
  ['/deepDives/lifeInsurance', answers.lifeInsurance],
  ['/deepDives/lifetimeCare', answers.lifetimeCare],
  ['/engine/matches', {}],
  ['/ltc/totalCoverage', { firstName, lastName, dateOfBirth, gender, state, email }],
] as const;

export type CreateApp = (deps: AppDeps) => { handle(request: Request): Promise<Response> };

/**
 * Lets the demo user go through the whole journey before anybody is served: by an app of their own, whatever tokens
 * the service takes, unlimited, and unseen by those who watch it.
 */
export async function walkJourney(createApp: CreateApp, deps: AppDeps): Promise<void> {
  const app = createApp({
    ...deps,
    verifyToken: async () => ({ id: 'demo-user', roles: [] }),
    log: createLog('silent'),
    rateLimits: undefined,
    metrics: undefined,
    tracing: undefined,
  });
  for (const [path, body] of journey) {
    const answer = await app.handle(
      new Request(`http://localhost/v2/private${path}`, {
        method: 'POST',
        headers: { authorization: 'Bearer demo', 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    );
    if (!answer.ok) throw new OperatorError(`The demo user cannot be made: ${path} is answered with ${answer.status}.`);
  }
}
