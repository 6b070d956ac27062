import { describe, expect, spyOn, test } from 'bun:test';
import * as v from 'valibot';
import { priceApplication } from '../../../src/carrier-sandbox/tariff';
import { createHttpCarrier } from '../../../src/modules/coverage/http-carrier';
import { ApplicationsBody } from '../../../src/modules/coverage/service';
import { UserBody } from '../../../src/modules/users/model';
import { type Carrier, CarrierError } from '../../../src/shared/carrier';
import {
  applicant,
  carrierPricing,
  coverageServiceOf,
  createTestApp,
  startSandbox,
  testCarrier,
} from '../../support/app';
import { atEnd, until } from '../../support/resources';

const application = { clientReference: 'reference-1', flow: 'ltc', applicant } as const;
const acceptance = { applicationNumber: 7, pricing: carrierPricing };
const asText = JSON.stringify(acceptance);
const created = (body: string | object = asText) => {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  return new Response(new Uint8Array(bytes), { status: 201 });
};
const failing = (status: number, headers = {}) => new Response('{}', { status, headers });

/** A carrier client, connected to a server that responds with the given function, and the calls the server received. */
function carrierThat(
  respond: (method: string, count: number) => Response | Promise<Response>,
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
  const url = `http://127.0.0.1:${server.port}`;
  const carrier = createHttpCarrier({ ...testCarrier, timeoutMs: 5_000, ...policy, url, apiKey: 'key' });
  const start = (mayBeKnown = false) => carrier.start(application, mayBeKnown);
  const failure = async (mayBeKnown = false): Promise<CarrierError> => {
    const error = await start(mayBeKnown).catch((thrown: unknown) => thrown);
    if (!(error instanceof CarrierError)) throw new Error('Expected a CarrierError');
    return error;
  };
  return { calls, start, failure };
}

describe('HTTP carrier client', () => {
  test('repeats a request at once only after a status that may pass, and reports others as a refusal', async () => {
    const ofRetried = [408, 425, 429, 500, 503, 401, 403].map(async (status) => {
      const { calls, start } = carrierThat((_, count) => (count < 2 ? failing(status) : created()));
      expect([status, await start()]).toMatchObject([status, { kind: 'accepted', applicationNumber: 7 }]);
      expect([status, calls.length]).toEqual([status, 2]);
    });
    const ofRefused = [400, 404, 409, 410, 418, 422].map(async (status) => {
      const { calls, failure } = carrierThat(() => failing(status));
      expect(await failure()).toMatchObject({ code: `bad-answer ${status}`, isRefusal: true });
      expect([status, calls.length]).toEqual([status, 1]);
    });
    await Promise.all([...ofRetried, ...ofRefused]);
  });

  test.each<[name: string, first: () => Response, code: string]>([
    ['status 500', () => failing(500), 'bad-answer 400'],
    ['200 without a number', () => failing(200), 'bad-answer 200'],
    ['a redirect', () => Response.redirect('http://127.0.0.1:1/', 302), 'bad-answer 302'],
  ])('reports that the carrier may have accepted when %s came before a refusal', async (_, first, code) => {
    const { failure } = carrierThat((__, count) => (count === 1 ? first() : failing(400)));
    expect(await failure()).toMatchObject({ code, wasAsked: true, mayBeAccepted: true, isRefusal: false });
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
    const { calls, failure } = carrierThat(endless, { timeoutMs: 300 });
    expect(await failure()).toMatchObject({ kind: 'timeout' });
    expect(calls).toHaveLength(testCarrier.attempts);
  });

  test('asks for the reference first when the carrier may know it, and sends it when it does not', async () => {
    const known = carrierThat(() => created());
    await known.start(true);
    expect(known.calls).toEqual(['GET /applications/reference-1']);
    const unknown = carrierThat((method) => (method === 'GET' ? failing(404) : created()));
    await unknown.start(true);
    expect(unknown.calls).toEqual(['GET /applications/reference-1', 'POST /applications']);
  });

  test.each<[name: string, body: object, status: number, isDecision: boolean]>([
    ['its own', { ...acceptance, clientReference: 'reference-1' }, 201, true],
    ['null', { ...acceptance, clientReference: null }, 201, true],
    ['of another application', { ...acceptance, clientReference: 'another' }, 201, false],
    ['a number', { ...acceptance, clientReference: 7 }, 201, false],
    ['in capitals', { ...acceptance, clientReference: 'REFERENCE-1' }, 201, false],
    ['of another application, beside a decline', { decision: 'declined', clientReference: 'x' }, 422, false],
  ])('reads a response with a reference: %s', async (_, body, status, isDecision) => {
    const { start, failure } = carrierThat(() => Response.json(body, { status }));
    if (isDecision) expect(await start()).toMatchObject({ kind: 'accepted', applicationNumber: 7 });
    else expect(await failure()).toMatchObject({ kind: 'bad-answer' });
  });
});

describe('an acceptance of the carrier', () => {
  const withPricing = (change: object, term: object = {}) => {
    const [product] = carrierPricing;
    return { ...acceptance, pricing: [{ ...product, terms: [{ ...product?.terms[0], ...term }], ...change }] };
  };
  const withTerm = (term: object) => withPricing({}, term);
  const withoutEnd = (...bytes: number[]) => Buffer.concat([Buffer.from(asText.slice(0, -1)), Buffer.from(bytes)]);

  test.each<[name: string, body: string | object]>([
    ['no JSON', '<html>'],
    ['the number 0', { ...acceptance, applicationNumber: 0 }],
    ['the number 10.5', { ...acceptance, applicationNumber: 10.5 }],
    ['a number that is not a safe integer', asText.replace(':7,', ':9007199254740993,')],
    ['no product', { ...acceptance, pricing: [] }],
    ['a product without terms', withPricing({ terms: [] })],
    [
      'two products, one without terms',
      { ...acceptance, pricing: [...carrierPricing, { ...carrierPricing[0], terms: [] }] },
    ],
    ['a price of 0', withTerm({ price: 0 })],
    ['a price that rounds to 0', withTerm({ price: 0.004 })],
    ['a negative price', withTerm({ price: -0.01 })],
    ['an infinite price', asText.replace('12.34', '1e999')],
    ['a price as text', withTerm({ price: '12.34' })],
    ['0 years', withTerm({ years: 0 })],
    ['10.5 years', withTerm({ years: 10.5 })],
    ['-10 years', withTerm({ years: -10 })],
    ['121 years', withTerm({ years: 121 })],
    ['a control character', asText.replace('TERM_10', '\\u0000')],
    ['bytes that are not UTF-8', Buffer.from(asText.replace('TERM_10', 'TERM_\xff'), 'latin1')],
    ['a character that is cut off', withoutEnd(0xe2, 0x82)],
    ['a surrogate in UTF-8', withoutEnd(0xed, 0xa0, 0x80)],
  ])('is invalid with %s, and not asked for again', async (_, body) => {
    const { calls, failure } = carrierThat(() => created(body));
    expect(await failure()).toMatchObject({ kind: 'bad-answer', wasAsked: true, mayBeAccepted: true });
    expect(calls).toHaveLength(1);
  });

  test.each([
    ['12.340000000000002', 12.34],
    ['0.30000000000000004', 0.3],
    ['1.005e1', 10.05],
    ['12.345', 12.35],
    ['0.005', 0.01],
    ['1e9', 1e9],
  ])('with a price of %s has %p, in cents', async (sent, price) => {
    const { start } = carrierThat(() => created(asText.replace('12.34', sent)));
    expect(await start()).toMatchObject({ pricing: [{ terms: [{ price }] }] });
  });

  test('may have a rider of price 0 and a byte order mark', async () => {
    const riders = [{ type: 'WAIVER', price: 0, included: true, coverage: 0 }];
    const body = withPricing({ product: 'Vie entière' }, { riders });
    expect(await carrierThat(() => created(`\ufeff${JSON.stringify(body)}`)).start()).toMatchObject(body);
  });
});

describe('Retry-After', () => {
  const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toUTCString();
  const passed = 'Tue, 10 Mar 2026 12:00:00 GMT';

  test.each([{ 'retry-after': '1' }, { 'retry-after': 'Tue, 10 Mar 2026 12:00:01 GMT', date: passed }])(
    'delays the second attempt when it fits the deadline: %j',
    async (headers) => {
      const { calls, start } = carrierThat((_, count) => (count === 1 ? failing(429, headers) : created()));
      const original = setTimeout;
      const delays: unknown[] = [];
      // Without the header the delay is random and shorter.
      const timers = spyOn(globalThis, 'setTimeout').mockImplementation(
        Object.assign((work: () => void, delay?: number) => {
          delays.push(delay);
          return original(work, 0);
        }, original),
      );
      await start().finally(() => timers.mockRestore());
      expect(calls).toHaveLength(2);
      expect(delays).toContain(1000);
    },
  );

  test.each([
    [429, { 'retry-after': '30' }, 30_000],
    [503, { 'retry-after': '30' }, 30_000],
    [503, { 'retry-after': inSeconds(90_000), date: inSeconds(89_940) }, 60_000],
    [429, { 'retry-after': '999999999' }, 3_600_000],
    [503, { 'retry-after': inSeconds(365 * 86_400) }, 3_600_000],
  ])('ends the call with status %d when it exceeds the deadline: %j', async (status, headers, retryAfterMs) => {
    const { calls, failure } = carrierThat(() => failing(status, headers));
    expect(await failure()).toMatchObject({ kind: 'unavailable', retryAfterMs });
    expect(calls).toHaveLength(1);
  });

  test('does not delay the second attempt when it is invalid or has passed', async () => {
    const values = ['soon', '-5', '1.5', 'Tue, 99 Mar 2026 12:00:01 GMT', 'Tue, 10 Mar 2020 12:00:01 GMT', '0'];
    const results = values.map(async (value) => {
      const headers = { 'retry-after': value };
      const { calls, start } = carrierThat((_, count) => (count === 1 ? failing(429, headers) : created()));
      const { kind } = await start();
      return `${value}: ${kind} by ${calls.length}`;
    });
    expect(await Promise.all(results)).toEqual(values.map((value) => `${value}: accepted by 2`));
  });
});

describe('the circuit breaker', () => {
  test('opens for submissions and not for lookups', async () => {
    const { calls, failure } = carrierThat((method) => failing(method === 'GET' ? 404 : 500), { breakerMs: 60_000 });
    for (let attempt = 0; attempt < 3; attempt += 1) await failure(true);
    const posts = () => calls.filter((call) => call.startsWith('POST')).length;
    expect(posts()).toBe(testCarrier.breakerFailures);
    const lookups = calls.length - posts();
    expect(await failure(true)).toMatchObject({ kind: 'unavailable', wasAsked: false });
    expect([posts(), calls.length - posts()]).toEqual([testCarrier.breakerFailures, lookups + 1]);
  });

  test('reports the status of the carrier for the call that opens it', async () => {
    const policy = { attempts: 3, breakerFailures: 2, breakerMs: 60_000 };
    const { calls, failure } = carrierThat(() => failing(500), policy);
    expect(await failure()).toMatchObject({ code: 'unavailable 500', wasAsked: true });
    expect(await failure()).toMatchObject({ wasAsked: false });
    expect(calls).toHaveLength(2);
  });

  test('closes again after the break', async () => {
    let isMended = false;
    const policy = { attempts: 1, breakerFailures: 1, breakerMs: 20 };
    const { calls, start, failure } = carrierThat(() => (isMended ? created() : failing(500)), policy);
    await failure();
    isMended = true;
    await until(() => start().then(Boolean, () => false));
    await start();
    expect(calls).toHaveLength(3);
  });
});

describe('the service with the sandbox carrier', () => {
  test('returns the prices of the tariff', async () => {
    const { call } = await createTestApp({ carrier: (await startSandbox()).carrier() });
    for (const state of ['VA', 'PW']) {
      const body = { ...applicant, state };
      const response = await call('POST', '/v2/private/ltc/totalCoverage', { as: state, body });
      const { partner } = v.parse(UserBody, response.body).user.purchase;
      expect(partner?.pricing).toMatchObject(priceApplication({ ageYears: 45, gender: 'Female', state }));
    }
  });

  test('a repeat and the reconciler get the first number after a failure, and none without an acceptance', async () => {
    const sandbox = await startSandbox();
    const carrierWith = (policy: Partial<typeof testCarrier>) => sandbox.carrier({ breakerFailures: 1_000, ...policy });
    const patient = carrierWith({});
    const impatient = new Map([
      ['Slow', carrierWith({ timeoutMs: 100 })],
      // A second attempt would wait for a second.
      ['Busy', carrierWith({ attempts: 1 })],
    ]);
    const carrier: Carrier = {
      id: 'sandbox',
      start: (...call) => (impatient.get(call[0].applicant.lastName) ?? patient).start(...call),
    };
    const testApp = await createTestApp({ carrier });
    const start = async (lastName: string, user: number) => {
      const as = `${lastName} ${user}`;
      return testApp.call('POST', '/v2/private/ltc/totalCoverage', { as, body: { ...applicant, lastName } });
    };
    const accepting = ['Slow', 'Dropped', 'Broken', 'Garbled', 'Huge'];
    const failures = { Slow: [504, 'timeout'], Dropped: [503, 'unavailable'], Broken: [503, 'unavailable'] };
    const others = { Garbled: [502, 'bad-answer'], Huge: [502, 'bad-answer'], Busy: [503, 'unavailable'] };
    const declines = { Declined: [422, 'declined'], Notfiled: [422, 'declined'] };
    const cases = Object.entries({ ...failures, ...others, ...declines });
    const failed = cases.map(async ([lastName, [status, kind]]) => {
      for (const response of await Promise.all([start(lastName, 1), start(lastName, 2)])) {
        const expected = { status, body: { type: `/problems/carrier-${kind}` } };
        expect({ lastName, response }).toMatchObject({ lastName, response: expected });
        if (lastName === 'Busy') expect(response.headers.get('retry-after')).toBe('1');
      }
    });
    await Promise.all(failed);
    expect(await sandbox.store.count()).toBe(2 * accepting.length);
    for (const lastName of accepting) expect((await start(lastName, 1)).status).toBe(200);
    testApp.now = new Date(testApp.now.getTime() + 5_000);
    expect(await coverageServiceOf(testApp, carrier).reconcile('one', () => false)).toBe(accepting.length);
    const listed = accepting.flatMap((lastName) =>
      [1, 2].map(async (user) => {
        const { body } = await testApp.call('GET', '/v2/private/user/applications', { as: `${lastName} ${user}` });
        return v.parse(ApplicationsBody, body).data.applications.map(({ state, appNumber }) => `${state} ${appNumber}`);
      }),
    );
    const numbers = Array.from({ length: 2 * accepting.length }, (_, index) => [`submitted ${100_001 + index}`]);
    expect((await Promise.all(listed)).sort()).toEqual(numbers);
    expect(await sandbox.store.count()).toBe(2 * accepting.length);
  });
});
