import { sql } from 'drizzle-orm';
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import { closeDatabase, type Database, openDatabase } from '../db/client';
import { ageOn, calendarDateAt, parseCalendarDate } from '../shared/calendar';
import { stateCodes } from '../shared/states';
import { issueAges, type Pricing, priceApplication } from './tariff';

/**
 * The last names that make the sandbox fail, so that a frontend can test every failure. They affect only the POST: a GET of
 * the reference returns the outcome.
 */
export const magicLastNames = {
  Slow: { does: 'accepts, and responds after a minute', isAccepted: true },
  Dropped: { does: 'accepts, and closes the connection without a response', isAccepted: true },
  Broken: { does: 'accepts, and responds with 500', isAccepted: true },
  Busy: { does: 'does not accept, and responds with 429 and Retry-After', isAccepted: false },
  Garbled: { does: 'accepts, and responds with a body that is not JSON', isAccepted: true },
  Huge: { does: 'accepts, and responds with a body of 50 MB', isAccepted: true },
  Declined: { does: 'declines', isAccepted: false },
  Notfiled: { does: 'says that the product is not filed in the state', isAccepted: false },
} as const;

export type Fault = keyof typeof magicLastNames;

function faultOf(lastName: string): Fault | undefined {
  return isFault(lastName) ? lastName : undefined;
}

function isFault(name: string): name is Fault {
  return Object.hasOwn(magicLastNames, name);
}

const Application = v.object({
  clientReference: v.pipe(v.string(), v.regex(/^[\w-]{8,64}$/)),
  flow: v.picklist(['ltc', 'life']),
  applicant: v.object({
    firstName: v.pipe(v.string(), v.nonEmpty()),
    lastName: v.pipe(v.string(), v.nonEmpty()),
    dateOfBirth: v.pipe(
      v.string(),
      v.check((date) => parseCalendarDate(date) === date),
    ),
    gender: v.picklist(['Male', 'Female']),
    state: v.picklist(stateCodes),
    email: v.pipe(v.string(), v.nonEmpty()),
  }),
});

const slowMs = 60_000;
const hugeBytes = 50_000_000;
const hugeChunk = new Uint8Array(1_000_000).fill(32);

interface SandboxDeps {
  readonly store: SandboxStore;
  readonly clock: () => Date;
  /** The bearer token that every request must carry; undefined accepts every request. */
  readonly apiKey?: string | undefined;
}

/**
 * Creates the sandbox carrier: a separate application that the service reaches only over HTTP, with its own tariff. It does
 * not listen by itself.
 */
export function createCarrierSandbox({ store, clock, apiKey }: SandboxDeps) {
  return new Elysia({ serve: { reusePort: false, development: false, idleTimeout: 120 } })
    .onRequest(({ request }) => {
      if (apiKey === undefined || request.headers.get('authorization') === `Bearer ${apiKey}`) return;
      return respond(401, { error: 'The API key is not valid.' });
    })
    .onError(({ code }) =>
      code === 'NOT_FOUND'
        ? respond(404, { error: 'There is no such application.' })
        : respond(503, { error: 'The carrier failed; try again.' }),
    )
    .post(
      '/applications',
      async ({ request, server }) => {
        const parsed = v.safeParse(Application, await request.json().catch(() => undefined));
        if (!parsed.success) return respond(400, { error: 'The application is incomplete.' });
        const { clientReference, flow, applicant } = parsed.output;
        const ageYears = ageOn(applicant.dateOfBirth, calendarDateAt(clock(), 'UTC'));
        const fault = faultOf(applicant.lastName);
        if (fault === 'Busy') return respond(429, { error: 'Too many applications.' }, { 'retry-after': '1' });
        if (fault === 'Notfiled') return respond(422, { decision: 'not-filed' });
        if (fault === 'Declined' || ageYears < issueAges.min || ageYears > issueAges.max) {
          return respond(422, { decision: 'declined' });
        }
        const accepted = await store.accept({
          clientReference,
          flow,
          applicant,
          pricing: priceApplication({ ageYears, gender: applicant.gender, state: applicant.state }),
          createdAt: clock().getTime(),
        });
        return respondToAccepted(accepted, fault, () => server?.timeout(request, 0));
      },
      { parse: 'none' },
    )
    .get('/applications/:clientReference', async ({ params }) => {
      const application = await store.find(params.clientReference);
      return application === undefined
        ? respond(404, { error: 'There is no such application.' })
        : respond(200, view(application));
    });
}

async function respondToAccepted(accepted: CarrierApplication, fault: Fault | undefined, keepOpen: () => void) {
  switch (fault) {
    case 'Slow':
      keepOpen();
      await Bun.sleep(slowMs);
      return respond(201, view(accepted));
    case 'Dropped':
      return new Response(
        new ReadableStream({
          pull: (controller) => controller.error(),
        }),
      );
    case 'Broken':
      return respond(500, { error: 'Broken on purpose.' });
    case 'Garbled':
      return new Response('{"applicationNumber":', { status: 201, headers: { 'content-type': 'application/json' } });
    case 'Huge':
      return new Response(hugeBody(), { status: 201, headers: { 'content-type': 'application/json' } });
    default:
      return respond(201, view(accepted));
  }
}

function hugeBody(): ReadableStream<Uint8Array> {
  let sent = 0;
  return new ReadableStream({
    pull(controller) {
      controller.enqueue(hugeChunk);
      sent += hugeChunk.byteLength;
      if (sent >= hugeBytes) controller.close();
    },
  });
}

function view({ applicationNumber, pricing }: CarrierApplication): object {
  return { applicationNumber, pricing };
}

function respond(status: number, body: object, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers });
}

/** The sandbox has its own database, without tables of the service. */
const carrierApplications = sqliteTable('carrier_applications', {
  applicationNumber: integer('application_number').primaryKey({ autoIncrement: true }),
  clientReference: text('client_reference').notNull().unique(),
  flow: text('flow').notNull(),
  applicant: text('applicant', { mode: 'json' }).$type<object>().notNull(),
  pricing: text('pricing', { mode: 'json' }).$type<Pricing[]>().notNull(),
  createdAt: integer('created_at').notNull(),
});

export type CarrierApplication = typeof carrierApplications.$inferSelect;

/** Creates the table if needed. Numbers begin at 100001. */
export async function createSandboxStore(db: Database) {
  const createTable = `CREATE TABLE IF NOT EXISTS carrier_applications (
    application_number integer PRIMARY KEY AUTOINCREMENT, client_reference text NOT NULL UNIQUE, flow text NOT NULL,
    applicant text NOT NULL, pricing text NOT NULL, created_at integer NOT NULL)`;
  const setFirstNumber = `INSERT INTO sqlite_sequence (name, seq) SELECT 'carrier_applications', 100000
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'carrier_applications')`;
  await db.$client.migrate([createTable, setFirstNumber]);

  const find = async (clientReference: string): Promise<CarrierApplication | undefined> => {
    const [row] = await db
      .select()
      .from(carrierApplications)
      .where(sql`${carrierApplications.clientReference} = ${clientReference}`);
    return row;
  };

  return {
    find,

    /** Returns the application that was accepted under the reference; accepts this one if there is none. */
    async accept(application: Omit<CarrierApplication, 'applicationNumber'>): Promise<CarrierApplication> {
      const [row] = await db.insert(carrierApplications).values(application).onConflictDoNothing().returning();
      const accepted = row ?? (await find(application.clientReference));
      if (accepted === undefined) throw new Error('The accepted application is missing');
      return accepted;
    },

    async count(): Promise<number> {
      return db.$count(carrierApplications);
    },
  };
}

export type SandboxStore = Awaited<ReturnType<typeof createSandboxStore>>;

interface ListenOptions {
  readonly config: Pick<Config, 'sandboxDatabaseUrl' | 'database'>;
  readonly clock: () => Date;
  readonly apiKey: string | undefined;
  /** 0 for any free port. */
  readonly port: number;
}

/** Serves the sandbox carrier on 127.0.0.1 with its own database. `stop` ends open requests. */
export async function listenCarrierSandbox({ config, clock, apiKey, port }: ListenOptions) {
  const { timeoutMs, encryptionKey } = config.database;
  const db = await openDatabase({ url: config.sandboxDatabaseUrl, timeoutMs, encryptionKey });
  const sandbox = createCarrierSandbox({ store: await createSandboxStore(db), clock, apiKey });
  sandbox.listen({ hostname: '127.0.0.1', port });
  return {
    url: `http://127.0.0.1:${sandbox.server?.port}`,
    async stop() {
      await sandbox.stop(true);
      await closeDatabase(db);
    },
  };
}
