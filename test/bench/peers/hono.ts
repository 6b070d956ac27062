/** The three routes on Hono, Drizzle, the client of libSQL and valibot, on Bun. */
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { createMiddleware } from 'hono/factory';
import { routePath } from 'hono/route';
import { parseAnswers } from './hono/answers';
import { openUserStore } from './hono/user-store';
import { matchesAny } from './shared/conditional-get.mjs';
import { parseJsonBody } from './shared/json-body.mjs';
import { toLifeInsurancePatch } from './shared/life-insurance.mjs';
import { prepareLists } from './shared/lists.mjs';
import { createLog, describeError, durationSince } from './shared/log.mjs';
import { answerOf, Problem, tooLarge } from './shared/problem.mjs';
import { requestIdOf } from './shared/request-id.mjs';
import { bodyLimitBytes, readSettings } from './shared/settings.mjs';
import { createTokenVerifier } from './shared/token-verifier.mjs';
import { toUserBody, userHeaders } from './shared/user.mjs';

interface Env {
  Variables: { requestId: string; userId: string };
}

const settings = readSettings();
const log = createLog();
const verifyToken = createTokenVerifier(settings.secret);
const users = await openUserStore(settings.databasePath);
const lists = prepareLists(settings.listsPath);

const app = new Hono<Env>({ strict: false });

/** Where what belongs to every request is mounted. */
const everyPath = '/*';

app.use(everyPath, async (context, next) => {
  const startedAtMs = performance.now();
  const requestId = requestIdOf(context.req.header('x-request-id'));
  context.set('requestId', requestId);
  context.header('x-request-id', requestId);
  await next();
  const { req, res } = context;
  const matched = routePath(context, -1);
  const route = matched === everyPath ? 'none' : matched;
  const durationMs = durationSince(startedAtMs);
  log.info({ requestId, method: req.method, route, status: res.status, durationMs }, 'request');
});

const authenticate = createMiddleware<Env>(async (context, next) => {
  context.set('userId', await verifyToken(context.req.header('authorization')));
  await next();
});

const limitBody = bodyLimit({
  maxSize: bodyLimitBytes,
  onError() {
    throw tooLarge(bodyLimitBytes);
  },
});

/** Answers 304 to a caller that has what the ETag names. */
const conditionalGet = createMiddleware(async (context, next) => {
  await next();
  const { status, headers } = context.res;
  const tag = headers.get('etag');
  if (status !== 200 || tag === null || !matchesAny(context.req.header('if-none-match'), tag)) return;
  context.res = new Response(null, { status: 304, headers });
});

async function readAnswers({ req }: Context) {
  const bytes = new Uint8Array(await req.arrayBuffer());
  return parseAnswers(
    parseJsonBody(bytes, { type: req.header('content-type'), encoding: req.header('content-encoding') }),
  );
}

app.post('/v2/private/deepDives/lifeInsurance', authenticate, limitBody, async (context) => {
  const answers = await readAnswers(context);
  const row = await users.saveLifeInsurance(context.get('userId'), toLifeInsurancePatch(answers));
  return context.json(toUserBody(row), 200, userHeaders(row));
});

app.get('/v2/private/user', authenticate, conditionalGet, async (context) => {
  const row = await users.find(context.get('userId'));
  if (row === undefined) throw new Problem('user-not-found');
  return context.json(toUserBody(row), 200, userHeaders(row));
});

// Hono takes the last slash off what is asked.
app.get('/v2/private/healthAndCare', authenticate, conditionalGet, (context) =>
  context.body(lists.bytes, 200, lists.headers),
);

app.notFound((context) => answer(new Problem('route-not-found'), context));

app.onError((error, context) => {
  const problem = error instanceof Problem ? error : new Problem('internal-error', { cause: error });
  if (problem.status >= 500)
    log.error({ requestId: context.get('requestId'), ...describeError(error) }, 'request failed');
  return answer(problem, context);
});

function answer(problem: Problem, context: Context<Env>): Response {
  const requestId = context.get('requestId');
  const { status, headers, body } = answerOf(problem, { path: context.req.path, requestId });
  return new Response(body, { status, headers: { ...headers, 'x-request-id': requestId } });
}

const server = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: app.fetch });
process.stdout.write(`http://127.0.0.1:${server.port}\n`);
