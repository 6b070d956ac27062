import { Elysia } from 'elysia';
import * as v from 'valibot';
import { ageOn, calendarDateAt, parseCalendarDate } from '../calendar';
import { stateCodes } from '../states';
import { type Fault, faultOf } from './faults';
import type { CarrierApplication, SandboxStore } from './store';
import { issueAges, priceApplication } from './tariff';

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

export interface SandboxDeps {
  readonly store: SandboxStore;
  readonly clock: () => Date;
  /** The bearer token that callers must send; none is asked for without it. */
  readonly apiKey?: string | undefined;
}

/**
 * The sandbox carrier: an application of its own that is reached over HTTP alone, prices by its own tariff, and fails
 * on purpose for the last names of faults.ts. It never listens by itself.
 */
export function createCarrierSandbox({ store, clock, apiKey }: SandboxDeps) {
  return new Elysia({ serve: { reusePort: false, development: false, idleTimeout: 120 } })
    .onRequest(({ request }) => {
      if (apiKey === undefined || request.headers.get('authorization') === `Bearer ${apiKey}`) return;
      return answer(401, { error: 'The API key is not the one of this carrier.' });
    })
    .onError(({ code }) =>
      code === 'NOT_FOUND' ? answer(404, { error: 'There is none.' }) : answer(503, { error: 'It failed; try again.' }),
    )
    .post(
      '/applications',
      async ({ request, server }) => {
        const parsed = v.safeParse(Application, await request.json().catch(() => undefined));
        if (!parsed.success) return answer(400, { error: 'The application is not complete.' });
        const { clientReference, flow, applicant } = parsed.output;
        const ageYears = ageOn(applicant.dateOfBirth, calendarDateAt(clock(), 'UTC'));
        const fault = faultOf(applicant.lastName);
        if (fault === 'Busy') return answer(429, { error: 'Too many applications.' }, { 'retry-after': '1' });
        if (fault === 'Notfiled') return answer(422, { decision: 'not-filed' });
        if (fault === 'Declined' || ageYears < issueAges.min || ageYears > issueAges.max) {
          return answer(422, { decision: 'declined' });
        }
        const accepted = await store.accept({
          clientReference,
          flow,
          applicant,
          pricing: priceApplication({ ageYears, gender: applicant.gender, state: applicant.state }),
          createdAt: clock().getTime(),
        });
        return answerAccepted(accepted, fault, () => server?.timeout(request, 0));
      },
      { parse: 'none' },
    )
    .get('/applications/:clientReference', async ({ params }) => {
      const application = await store.find(params.clientReference);
      return application === undefined ? answer(404, { error: 'There is none.' }) : answer(200, view(application));
    });
}

async function answerAccepted(accepted: CarrierApplication, fault: Fault | undefined, keepOpen: () => void) {
  switch (fault) {
    case 'Slow':
      keepOpen();
      await Bun.sleep(slowMs);
      return answer(201, view(accepted));
    case 'Dropped':
      return new Response(
        new ReadableStream({
          pull: (controller) => controller.error(),
        }),
      );
    case 'Broken':
      return answer(500, { error: 'Broken on purpose.' });
    case 'Garbled':
      return new Response('{"applicationNumber":', { status: 201, headers: { 'content-type': 'application/json' } });
    case 'Huge':
      return new Response(hugeBody(), { status: 201, headers: { 'content-type': 'application/json' } });
    default:
      return answer(201, view(accepted));
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

function answer(status: number, body: object, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers });
}
