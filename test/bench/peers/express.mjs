/** The three routes on Express, ajv and the native driver of libSQL, on Node.js. */
import Ajv from 'ajv';
import express from 'express';
import { addKeywords, ajvOptions, findFieldErrors, lifeInsuranceSchema } from './node/answers.mjs';
import { openUserStore } from './node/user-store.mjs';
import { invalidInput, refuseLongLists } from './shared/field-errors.mjs';
import { parseJsonBody } from './shared/json-body.mjs';
import { toLifeInsurancePatch } from './shared/life-insurance.mjs';
import { prepareLists } from './shared/lists.mjs';
import { createLog, describeError, durationSince } from './shared/log.mjs';
import { answerOf, Problem, tooLarge } from './shared/problem.mjs';
import { requestIdOf } from './shared/request-id.mjs';
import { bodyLimitBytes, readSettings } from './shared/settings.mjs';
import { createTokenVerifier } from './shared/token-verifier.mjs';
import { toUserBody, userHeaders } from './shared/user.mjs';

const settings = readSettings();
const log = createLog();
const verifyToken = createTokenVerifier(settings.secret);
const users = openUserStore(settings.databasePath);
const lists = prepareLists(settings.listsPath);
const isLifeInsurance = addKeywords(new Ajv(ajvOptions)).compile(lifeInsuranceSchema);

const app = express();
app.disable('x-powered-by');
// Of its own it would hash every answer that has no ETag.
app.disable('etag');

app.use((request, response, next) => {
  const startedAtMs = performance.now();
  const requestId = requestIdOf(request.headers['x-request-id']);
  response.locals.requestId = requestId;
  response.set('x-request-id', requestId);
  response.on('finish', () => {
    const { method, route } = request;
    const durationMs = durationSince(startedAtMs);
    log.info({ requestId, method, route: route?.path ?? 'none', status: response.statusCode, durationMs }, 'request');
  });
  next();
});

async function authenticate(request, response, next) {
  response.locals.userId = await verifyToken(request.headers.authorization);
  next();
}

const readBytes = express.raw({ type: () => true, limit: bodyLimitBytes, inflate: false });

function validate({ headers, body: bytes = Buffer.alloc(0) }, response, next) {
  const body = parseJsonBody(bytes, { type: headers['content-type'], encoding: headers['content-encoding'] });
  refuseLongLists(body);
  if (!isLifeInsurance(body)) throw invalidInput(findFieldErrors(isLifeInsurance.errors));
  response.locals.answers = body;
  next();
}

app.post('/v2/private/deepDives/lifeInsurance', authenticate, readBytes, validate, (_, response) => {
  const { userId, answers } = response.locals;
  const row = users.saveLifeInsurance(userId, toLifeInsurancePatch(answers));
  response.set(userHeaders(row)).json(toUserBody(row));
});

app.get('/v2/private/user', authenticate, (_, response) => {
  const row = users.find(response.locals.userId);
  if (row === undefined) throw new Problem('user-not-found');
  response.set(userHeaders(row)).json(toUserBody(row));
});

app.get('/v2/private/healthAndCare/', authenticate, (_, response) => {
  response.set(lists.headers).send(lists.bytes);
});

app.use(() => {
  throw new Problem('route-not-found');
});

// Express tells an error handler by its four parameters.
app.use((error, request, response, _next) => {
  const { requestId } = response.locals;
  const problem = toProblem(error);
  if (problem.status >= 500) log.error({ requestId, ...describeError(error) }, 'request failed');
  const { status, headers, body } = answerOf(problem, { path: request.path, requestId });
  response.status(status).set(headers).send(body);
});

function toProblem(error) {
  if (error instanceof Problem) return error;
  switch (error.type) {
    case 'entity.too.large':
      return tooLarge(bodyLimitBytes);
    case 'encoding.unsupported':
      return new Problem('unsupported-media-type', { detail: 'The body must not have a Content-Encoding.' });
    case 'request.aborted':
    case 'request.size.invalid':
      return new Problem('malformed-request');
    default:
      return new Problem('internal-error', { cause: error });
  }
}

const server = app.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}\n`);
});
