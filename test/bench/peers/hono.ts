/** The three routes on Hono, Drizzle and the client of libSQL, on Bun. */
import { createClient } from '@libsql/client';
import { eq, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/libsql';
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { HTTPException } from 'hono/http-exception';
import { AppError } from '../../../src/errors';
import { createLog } from '../../../src/log';
import { authenticate, lists, problemResponse, readPatch, settings, userResponse } from '../handlers';

const json = (name: string) => text(name, { mode: 'json' }).$type<object>();
const users = sqliteTable('users', {
  id: text('id').primaryKey(),
  profile: json('profile'),
  insurance: json('insurance'),
  ltcLifetimeCare: json('ltc_lifetime_care'),
  purchase: json('purchase'),
  lifeInsurance: json('life_insurance'),
  lifetimeCare: json('lifetime_care'),
  version: integer('version').notNull(),
  createdAt: integer('created_at').notNull(),
  updatedAt: integer('updated_at').notNull(),
});

// One connection, because a PRAGMA reaches no other.
const { databasePath, lockTimeoutMs: timeout } = settings;
const client = createClient({ url: `file:${databasePath}`, timeout, concurrency: 1 });
for (const pragma of ['journal_mode = WAL', 'synchronous = FULL', 'secure_delete = ON']) {
  await client.execute(`PRAGMA ${pragma}`);
}
const db = drizzle({ client });
const userId = sql.placeholder('userId');
const now = sql.placeholder('now');
const find = db.select().from(users).where(eq(users.id, userId)).limit(1).prepare();
const merged = sql`json_patch(coalesce(${users.lifeInsurance}, '{}'), ${sql.placeholder('patch')})`;
const save = db
  .insert(users)
  .values({
    id: userId,
    lifeInsurance: sql`json_patch('{}', ${sql.placeholder('patch')})`,
    version: 1,
    createdAt: now,
    updatedAt: now,
  })
  .onConflictDoUpdate({
    target: users.id,
    set: { lifeInsurance: merged, version: sql`${users.version} + 1`, updatedAt: sql`${now}` },
  })
  .returning()
  .prepare();

const log = createLog('info');
const app = new Hono<{ Variables: { requestId: string; userId: string } }>({ strict: false });
app.use(async (context, next) => {
  const startedAtMs = performance.now();
  const requestId = context.req.header('x-request-id') ?? crypto.randomUUID();
  context.set('requestId', requestId);
  context.header('x-request-id', requestId);
  await next();
  const { method, path: route } = context.req;
  log.request({ requestId, method, route, status: context.res.status, durationMs: performance.now() - startedAtMs });
});
app.use('/v2/private/*', async (context, next) => {
  context.set('userId', await authenticate(context.req.header('authorization')));
  await next();
});

app.post('/v2/private/deepDives/lifeInsurance', bodyLimit({ maxSize: settings.bodyLimitBytes }), async (context) => {
  const patch = readPatch(await context.req.json());
  const [row] = await save.execute({ userId: context.get('userId'), patch, now: Date.now() });
  const { body, headers } = userResponse(row);
  return context.json(body, 200, headers);
});
app.get('/v2/private/user', async (context) => {
  const [row] = await find.execute({ userId: context.get('userId') });
  const { body, headers } = userResponse(row);
  return context.json(body, 200, headers);
});
app.get('/v2/private/healthAndCare', (context) => context.body(lists.bytes, 200, lists.headers));
app.notFound(() => {
  throw new AppError('route-not-found');
});
app.onError((error, context) => {
  const cause =
    error instanceof SyntaxError
      ? new AppError('malformed-json')
      : error instanceof HTTPException
        ? new AppError('payload-too-large')
        : error;
  const { status, headers, body } = problemResponse(cause, context.req.path, context.get('requestId'));
  return new Response(body, { status, headers });
});

const { port } = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: app.fetch });
process.stdout.write(`http://127.0.0.1:${port}\n`);
