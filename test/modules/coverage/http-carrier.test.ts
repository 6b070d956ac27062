import { describe, expect, test } from 'bun:test';
import { createHttpCarrier } from '../../../src/modules/coverage/http-carrier';
import { CarrierError } from '../../../src/shared/carrier';
import { applicant, testCarrier } from '../../support/app';
import { atEnd } from '../../support/resources';

const application = {
  clientReference: 'reference-1',
  flow: 'ltc',
  applicant,
} as const;
const accepted = {
  applicationNumber: 7,
  pricing: [{ product: 'TERM_10', coverage: 500_000, terms: [{ years: 10, price: 12.34, riders: [] }] }],
};
const pricedAt = (price: string) => JSON.stringify(accepted).replace('12.34', price);

/** A carrier client, connected to a server that responds with the given function, and the calls the server received. */
function carrierThat(
  respond: (method: string, calls: number) => Response | Promise<Response>,
  policy: Partial<typeof testCarrier> = {},
) {
  const calls: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch(request) {
      calls.push(`${request.method} ${new URL(request.url).pathname}`);
      return respond(request.method, calls.length);
    },
  });
  atEnd(() => server.stop(true));
  const settings = { ...testCarrier, attempts: 3, ...policy, url: `http://127.0.0.1:${server.port}`, apiKey: 'key' };
  return { calls, carrier: createHttpCarrier(settings) };
}

const failureOf = async (promise: Promise<unknown>): Promise<CarrierError> => {
  const error = await promise.catch((failure: unknown) => failure);
  if (!(error instanceof CarrierError)) throw new Error('Expected a CarrierError');
  return error;
};

describe('HTTP carrier client', () => {
  test.each([408, 425, 429, 500, 503, 401, 403])('retries status %d', async (status) => {
    const { carrier, calls } = carrierThat((_, count) =>
      count < 3 ? new Response('no', { status }) : Response.json(accepted, { status: 201 }),
    );
    expect(await carrier.start(application, false)).toMatchObject({ kind: 'accepted', applicationNumber: 7 });
    expect(calls).toHaveLength(3);
  });

  test.each([
    ['a redirect', () => Response.redirect('http://127.0.0.1:1/', 301), 'bad-answer 301'],
    ['an unexpected status', () => new Response('no', { status: 400 }), 'bad-answer 400'],
    ['a 422 with an unknown decision', () => Response.json({ decision: 'perhaps' }, { status: 422 }), 'bad-answer 422'],
    ['no JSON', () => new Response('<html>', { status: 201 }), 'bad-answer 201'],
    ['no number', () => Response.json({ ...accepted, applicationNumber: 0 }, { status: 201 }), 'bad-answer 201'],
    ['no prices', () => Response.json({ ...accepted, pricing: [] }, { status: 201 }), 'bad-answer 201'],
    ['an infinite price', () => new Response(pricedAt('1e999'), { status: 201 }), 'bad-answer 201'],
    ['a negative price', () => new Response(pricedAt('-1'), { status: 201 }), 'bad-answer 201'],
    [
      'a control character',
      () => new Response(JSON.stringify(accepted).replace('TERM_10', '\\u0000'), { status: 201 }),
      'bad-answer 201',
    ],
  ])('fails without a retry when the response has %s', async (_, respond, code) => {
    const { carrier, calls } = carrierThat(respond);
    const failure = await failureOf(carrier.start(application, false));
    expect(failure).toMatchObject({ kind: 'bad-answer', code, wasAsked: true });
    expect(calls).toHaveLength(1);
  });

  test('times out when the response never ends', async () => {
    const endless = () =>
      new Response(
        new ReadableStream({
          async pull(controller) {
            await Bun.sleep(20);
            controller.enqueue(new Uint8Array(1));
          },
        }),
      );
    const { carrier } = carrierThat(endless);
    const startedAtMs = performance.now();
    expect(await failureOf(carrier.start(application, false))).toMatchObject({ kind: 'timeout' });
    expect(performance.now() - startedAtMs).toBeLessThan(3 * testCarrier.timeoutMs + 1_500);
  });

  test('looks up the reference first when the carrier may know it, and sends it when it does not', async () => {
    const known = carrierThat(() => Response.json(accepted));
    await known.carrier.start(application, true);
    expect(known.calls).toEqual(['GET /applications/reference-1']);
    const unknown = carrierThat((method) =>
      method === 'GET' ? new Response(null, { status: 404 }) : Response.json(accepted, { status: 201 }),
    );
    await unknown.carrier.start(application, true);
    expect(unknown.calls).toEqual(['GET /applications/reference-1', 'POST /applications']);
  });

  test('has separate circuit breakers for lookups and submissions', async () => {
    const respond = (method: string) => new Response(null, { status: method === 'GET' ? 404 : 500 });
    // A breaker that closes during the test would let one more call through.
    const { carrier, calls } = carrierThat(respond, { breakerMs: 60_000 });
    for (let attempt = 0; attempt < 3; attempt += 1) await failureOf(carrier.start(application, true));
    const posts = calls.filter((call) => call.startsWith('POST')).length;
    const failure = await failureOf(carrier.start(application, true));
    expect(failure).toMatchObject({ kind: 'unavailable', wasAsked: false });
    expect(calls.filter((call) => call.startsWith('POST')).length).toBe(posts);
    expect(posts).toBe(testCarrier.breakerFailures);
  });

  test('reports the carrier status, not an open circuit, for the call that opens the circuit', async () => {
    const policy = { attempts: 3, breakerFailures: 2, breakerMs: 60_000 };
    const { carrier, calls } = carrierThat(() => new Response(null, { status: 500 }), policy);
    expect(await failureOf(carrier.start(application, false))).toMatchObject({
      code: 'unavailable 500',
      wasAsked: true,
    });
    expect(calls).toHaveLength(2);
    expect(await failureOf(carrier.start(application, false))).toMatchObject({ wasAsked: false });
    expect(calls).toHaveLength(2);
  });
});
