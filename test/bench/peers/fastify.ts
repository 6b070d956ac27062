/** The three routes on Fastify, its serialization and log, and the native driver of libSQL, on Node.js. */
import Fastify from 'fastify';
import Database from 'libsql';
import * as v from 'valibot';
import { AppError } from '../../../src/errors';
import { authenticate, lists, problemResponse, readPatch, settings, type UserRow, userResponse } from '../handlers';

const database = new Database(settings.databasePath, { timeout: settings.lockTimeoutMs });
database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON');
const columns = `id, profile, insurance, ltc_lifetime_care AS ltcLifetimeCare, purchase, life_insurance AS lifeInsurance,
  lifetime_care AS lifetimeCare, version, created_at AS createdAt, updated_at AS updatedAt`;
// Only `all` is safe for a reused statement of this driver: `get` does not read to the end.
const find = database.prepare(`SELECT ${columns} FROM users WHERE id = ?`);
const save = database.prepare(`INSERT INTO users (id, life_insurance, version, created_at, updated_at)
  VALUES (?1, json_patch('{}', ?2), 1, ?3, ?3) ON CONFLICT (id) DO UPDATE
  SET life_insurance = json_patch(coalesce(life_insurance, '{}'), ?2), version = version + 1, updated_at = ?3
  RETURNING ${columns}`);

const json = v.nullable(v.string());
const sectionColumns = { profile: json, insurance: json, ltcLifetimeCare: json, purchase: json, lifeInsurance: json };
const times = { createdAt: v.number(), updatedAt: v.number() };
const StoredRow = v.object({ id: v.string(), version: v.number(), ...times, ...sectionColumns, lifetimeCare: json });

function toRow([row]: unknown[]): UserRow | undefined {
  if (!v.is(StoredRow, row)) return undefined;
  const parse = (text: string | null): unknown => (text === null ? undefined : JSON.parse(text));
  return {
    ...row,
    profile: parse(row.profile),
    insurance: parse(row.insurance),
    ltcLifetimeCare: parse(row.ltcLifetimeCare),
    purchase: parse(row.purchase),
    lifeInsurance: parse(row.lifeInsurance),
    lifetimeCare: parse(row.lifetimeCare),
  };
}

const text = { type: 'string' };
const strings = { type: 'array', items: text };
const lifeInsurance = {
  type: 'object',
  properties: { billsAndDebt: strings, financialPriorities: strings, livingStatus: text, policySupport: {} },
};
/** The sections that other routes write are serialized as they are. */
const sections = { profile: {}, insurance: {}, ltc: {}, purchase: {}, lifeInsurance, lifetimeCare: {} };
const user = { type: 'object', properties: { id: text, createdAt: text, updatedAt: text, ...sections } };
const schema = { response: { 200: { type: 'object', properties: { user } } } };

const app = Fastify({
  logger: { level: 'info' },
  disableRequestLogging: true,
  genReqId: ({ headers }) => String(headers['x-request-id'] ?? crypto.randomUUID()),
  bodyLimit: settings.bodyLimitBytes,
});
app.decorateRequest('userId', '');
app.addHook('onRequest', async (request, reply) => {
  reply.header('x-request-id', request.id);
  request.userId = await authenticate(request.headers.authorization);
});
app.addHook('onResponse', async ({ log, method, routeOptions, id }, { statusCode, elapsedTime }) => {
  log.info({ requestId: id, method, route: routeOptions.url, status: statusCode, durationMs: elapsedTime }, 'request');
});
app.setNotFoundHandler(() => {
  throw new AppError('route-not-found');
});
app.setErrorHandler((error: Error & { code?: string }, request, reply) => {
  const known = error.code === 'FST_ERR_CTP_BODY_TOO_LARGE' ? new AppError('payload-too-large') : error;
  const cause = error instanceof SyntaxError ? new AppError('malformed-json') : known;
  const { status, headers, body } = problemResponse(cause, request.url, request.id);
  reply.code(status).headers(headers).send(body);
});

declare module 'fastify' {
  interface FastifyRequest {
    userId: string;
  }
}

app.post('/v2/private/deepDives/lifeInsurance', { schema }, async ({ userId, body: sent }, reply) => {
  const { body, headers } = userResponse(toRow(save.all([userId, readPatch(sent), Date.now()])));
  reply.headers(headers);
  return body;
});
app.get('/v2/private/user', { schema }, async ({ userId }, reply) => {
  const { body, headers } = userResponse(toRow(find.all([userId])));
  reply.headers(headers);
  return body;
});
app.get('/v2/private/healthAndCare/', async (_, reply) => {
  reply.headers(lists.headers);
  return lists.bytes;
});

process.stdout.write(`${await app.listen({ host: '127.0.0.1', port: 0 })}\n`);
