/** The three routes on Fastify, its validation and serialization, and the native driver of libSQL, on Node.js. */
import Fastify, { LogController } from 'fastify';
import { addKeywords, ajvOptions, findFieldErrors, lifeInsuranceSchema } from './node/answers.mjs';
import { openUserStore } from './node/user-store.mjs';
import { matchesAny } from './shared/conditional-get.mjs';
import { invalidInput, refuseLongLists } from './shared/field-errors.mjs';
import { parseJsonBody } from './shared/json-body.mjs';
import { toLifeInsurancePatch } from './shared/life-insurance.mjs';
import { prepareLists } from './shared/lists.mjs';
import { createLog, describeError } from './shared/log.mjs';
import { answerOf, Problem, tooLarge } from './shared/problem.mjs';
import { requestIdOf } from './shared/request-id.mjs';
import { bodyLimitBytes, readSettings } from './shared/settings.mjs';
import { createTokenVerifier } from './shared/token-verifier.mjs';
import { toUserBody, userHeaders } from './shared/user.mjs';

const settings = readSettings();
const verifyToken = createTokenVerifier(settings.secret);
const users = openUserStore(settings.databasePath);
const lists = prepareLists(settings.listsPath);

const titled = { type: 'object', properties: { id: { type: 'number' }, title: { type: 'string' } } };
const strings = { type: 'array', items: { type: 'string' } };
const lifeInsurance = {
  type: 'object',
  properties: {
    billsAndDebt: strings,
    financialPriorities: strings,
    livingStatus: { type: 'string' },
    policySupport: {
      type: 'object',
      properties: {
        selections: { type: 'array', items: titled },
        customSelections: { type: 'array', items: titled },
      },
    },
  },
};
const text = { type: 'string' };
/** The other sections are written by other routes, and serialized as they are. */
const userBody = {
  type: 'object',
  properties: {
    user: {
      type: 'object',
      properties: {
        id: text,
        createdAt: text,
        updatedAt: text,
        profile: {},
        insurance: {},
        ltc: {},
        purchase: {},
        lifeInsurance,
        lifetimeCare: {},
      },
    },
  },
};

const app = Fastify({
  loggerInstance: createLog(),
  logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' }),
  genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
  bodyLimit: bodyLimitBytes,
  routerOptions: { ignoreTrailingSlash: true },
  ajv: { customOptions: ajvOptions, plugins: [addKeywords] },
});

app.removeAllContentTypeParsers();
app.addContentTypeParser(['application/json', '*'], { parseAs: 'buffer' }, async ({ headers }, bytes) =>
  parseJsonBody(bytes, { type: headers['content-type'], encoding: headers['content-encoding'] }),
);
app.addHook('onRequest', async (request, reply) => {
  reply.header('x-request-id', request.id);
});
app.addHook('onResponse', async (request, reply) => {
  const { method, routeOptions } = request;
  const durationMs = Math.round(reply.elapsedTime * 100) / 100;
  request.log.info({ method, route: routeOptions.url ?? 'none', status: reply.statusCode, durationMs }, 'request');
});
app.setNotFoundHandler(() => {
  throw new Problem('route-not-found');
});
app.setErrorHandler((error, request, reply) => {
  const problem = toProblem(error);
  if (problem.status >= 500) request.log.error(describeError(error), 'request failed');
  const { status, headers, body } = answerOf(problem, { path: request.url.split('?')[0], requestId: request.id });
  reply.code(status).headers(headers).send(body);
});

function toProblem(error) {
  if (error instanceof Problem) return error;
  if (error.validation !== undefined) return invalidInput(findFieldErrors(error.validation));
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return tooLarge(bodyLimitBytes);
  if (error.code === 'FST_ERR_CTP_INVALID_CONTENT_LENGTH') return new Problem('malformed-request');
  return new Problem('internal-error', { cause: error });
}

app.register(
  async (routes) => {
    routes.decorateRequest('userId', '');
    routes.addHook('onRequest', async (request) => {
      request.userId = await verifyToken(request.headers.authorization);
    });

    routes.post(
      '/deepDives/lifeInsurance',
      {
        schema: { body: lifeInsuranceSchema, response: { 200: userBody } },
        preValidation: async ({ body }) => refuseLongLists(body),
      },
      async ({ userId, body }, reply) => {
        const row = users.saveLifeInsurance(userId, toLifeInsurancePatch(body));
        reply.headers(userHeaders(row));
        return toUserBody(row);
      },
    );

    routes.get('/user', { schema: { response: { 200: userBody } } }, async (request, reply) => {
      const row = users.find(request.userId);
      if (row === undefined) throw new Problem('user-not-found');
      const headers = userHeaders(row);
      reply.headers(headers);
      if (matchesAny(request.headers['if-none-match'], headers.etag)) return reply.code(304).send();
      return toUserBody(row);
    });

    routes.get('/healthAndCare/', async (request, reply) => {
      reply.headers(lists.headers);
      if (matchesAny(request.headers['if-none-match'], lists.headers.etag)) return reply.code(304).send();
      return lists.bytes;
    });
  },
  { prefix: '/v2/private' },
);

// Before Fastify, which logs it too.
app.server.once('listening', () => process.stdout.write(`http://127.0.0.1:${app.server.address().port}\n`));
await app.listen({ host: '127.0.0.1', port: 0 });
