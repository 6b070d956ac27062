import { describe, expect, spyOn, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import { countParts } from '../../src/db/queries';
import { activities } from '../../src/db/schema/lists';
import { applications, idempotencyKeys } from '../../src/db/schema/people';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { createApplicationStore } from '../../src/modules/coverage/store';
import { startReconciler } from '../../src/modules/coverage/submissions';
import { createPersonalDataStore } from '../../src/modules/privacy/store';
import { createSalesStore } from '../../src/modules/sales/store';
import { UserBody } from '../../src/modules/users/model';
import type { Metrics } from '../../src/telemetry/events';
import { createPrometheusMetrics } from '../../src/telemetry/metrics';
import {
  applicant,
  counselor,
  coverageDepsOf,
  coverageServiceOf,
  createTestApp,
  manager,
  testCarrier,
  testConfig,
  testOperator,
} from '../support/app';
import { explainFirst } from '../support/database';
import { atEnd } from '../support/resources';
import { aScrape } from '../support/telemetry';

const coverage = '/v2/private/ltc/totalCoverage';
const listPath = '/v2/private/user/applications';
const pricing = (change: object = {}, term: object = {}) => [
  { product: 'TERM_10', coverage: 500_000, terms: [{ years: 10, price: 12.34, riders: [], ...term }], ...change },
];
const accepted = { applicationNumber: 7, pricing: pricing() };
type Respond = (request: { method: string; reference: string; count: number }) => Response | Promise<Response>;

/** A carrier with the responses of `respond`, and an app that uses it. */
async function setUp(respond: Respond, { perDay = 0, metrics }: { perDay?: number; metrics?: Metrics } = {}) {
  const timeoutMs = 2_000;
  const calls: { method: string; reference: string }[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      const sent = v.safeParse(v.object({ clientReference: v.string() }), await request.json().catch(() => undefined));
      const reference = sent.success ? sent.output.clientReference : (request.url.split('/').at(-1) ?? '');
      calls.push({ method: request.method, reference });
      return respond({ method: request.method, reference, count: calls.length });
    },
  });
  atEnd(() => server.stop(true));
  const url = `http://127.0.0.1:${server.port}`;
  const carrier = createHttpCarrier({ ...testCarrier, breakerFailures: 1000, timeoutMs, url, apiKey: 'key' });
  const config = { ...testConfig, carrier: { applicationsPerDay: perDay, attempts: 2, timeoutMs } };
  const testApp = await createTestApp({ carrier, config, metrics });
  const start = (identity: object = {}, as = 'ada', headers: Record<string, string> = {}) =>
    testApp.call('POST', coverage, { as, body: { ...applicant, ...identity }, headers });
  const list = async (as = 'ada', query = '') =>
    v.parse(ApplicationsBody, (await testApp.call('GET', `${listPath}${query}`, { as })).body).data;
  const service = coverageServiceOf(testApp, carrier);
  const reconcile = () => service.reconcile('one', () => false);
  const pass = (ms: number) => {
    testApp.now = new Date(testApp.now.getTime() + ms);
  };
  return { testApp, carrier, calls, start, list, service, reconcile, pass };
}

const created = (body: object, headers: Record<string, string> = {}) => Response.json(body, { status: 201, headers });

describe('an application number', () => {
  test('G4 a number that another person holds leaves the application unknown and is logged', async () => {
    const { testApp, start, list } = await setUp(() => created(accepted));
    expect((await start()).status).toBe(200);
    const second = await start({}, 'eve');
    expect(second).toMatchObject({ status: 502, body: { type: '/problems/carrier-bad-answer' } });
    expect((await list('eve')).applications).toMatchObject([{ state: 'unknown', appNumber: null }]);
    expect((await list('ada')).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
    const { user } = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'eve' })).body);
    expect(user.purchase).toEqual({});
    expect(testApp.logLines.filter((line) => line.includes('that another application holds'))).toHaveLength(1);
  });

  test('G4 a number that another identity of the same person holds leaves the application unknown', async () => {
    const { start, list } = await setUp(() => created(accepted));
    await start();
    expect((await start({ firstName: 'Augusta' })).status).toBe(502);
    expect((await list()).applications.map(({ appNumber }) => appNumber)).toEqual([null, 7]);
  });

  test('G4 a number goes to one person when a carrier gives it to many at once', async () => {
    const { testApp, start } = await setUp(() => created(accepted));
    const people = Array.from({ length: 8 }, (_, index) => `person-${index}`);
    const statuses = (await Promise.all(people.map((as) => start({}, as)))).map(({ status }) => status);
    expect(statuses.sort()).toEqual([200, ...Array(7).fill(502)]);
    expect(await testApp.db.$count(applications, eq(applications.applicationNumber, 7))).toBe(1);
  });

  test('G4 a person gets the same number again for the same identity, and it is credited once', async () => {
    const { testApp, start, list, pass } = await setUp(() => created(accepted));
    const sales = createSalesStore(testApp.db);
    await sales.upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: {} });
    await sales.assignCounselor({ userId: 'ada', counselorId: 'c1', operator: testOperator, now: testApp.now });
    await start();
    pass(31 * 86_400_000);
    expect((await start()).status).toBe(200);
    expect((await list()).applications).toMatchObject([
      { state: 'submitted', appNumber: 7 },
      { state: 'submitted', appNumber: 7 },
    ]);
    expect(await testApp.db.$count(activities)).toBe(2);
    expect((await start({}, 'eve')).status).toBe(502);
  });

  test.each([
    ['no row names another carrier', false, 502, null],
    ['a row names another carrier', true, 200, 7],
  ])(
    'G4 a number of an earlier build is compared unless another carrier is named: %s',
    async (_, isAnotherNamed, status, appNumber) => {
      const { testApp, carrier, start, list } = await setUp(() => created(accepted));
      for (const as of ['ada', 'bob', 'cyd']) {
        await start({}, as);
        await testApp.db.update(applications).set({ state: 'submitted', applicationNumber: 7, carrier: null });
      }
      if (isAnotherNamed) {
        await testApp.db.update(applications).set({ carrier: 'other.example' }).where(eq(applications.userId, 'cyd'));
      }
      const reconciler = startReconciler(coverageServiceOf(testApp, carrier), coverageDepsOf(testApp, carrier));
      await reconciler.stop();
      expect((await start({}, 'eve')).status).toBe(status);
      expect((await list('eve')).applications).toMatchObject([{ appNumber }]);
    },
  );

  test('G4 a number that is taken adds no refusal', async () => {
    const { testApp, start, reconcile, pass } = await setUp(() => created(accepted));
    await start();
    await start({}, 'eve');
    for (let day = 0; day < 4; day += 1) {
      pass(86_400_000);
      await reconcile();
    }
    const rows = await testApp.db.select().from(applications).where(eq(applications.userId, 'eve'));
    expect(rows).toMatchObject([{ state: 'unknown', attempt: 5, refusals: 0, abandonedAt: null }]);
  });

  test('G4 an application whose number is taken settles when the carrier gives another number', async () => {
    let number = 7;
    const { start, list, reconcile, pass } = await setUp(() => created({ ...accepted, applicationNumber: number }));
    await start();
    await start({}, 'eve');
    number = 8;
    pass(30_000);
    expect(await reconcile()).toBe(0);
    pass(31_000);
    expect(await reconcile()).toBe(1);
    expect((await list('eve')).applications).toMatchObject([{ state: 'submitted', appNumber: 8 }]);
  });

  test('G4 numbers of different carriers are not compared', async () => {
    const one = await setUp(() => created(accepted));
    await one.start();
    const other = await setUp(() => created(accepted));
    const service = coverageServiceOf(one.testApp, other.carrier);
    const request = {
      userId: 'eve',
      flow: 'ltc',
      applicant,
      idempotencyKey: undefined,
      preconditions: {},
      requestId: 'r',
    } as const;
    await service.start(request);
    expect(await one.testApp.db.$count(applications, eq(applications.applicationNumber, 7))).toBe(2);
  });

  test.each<[string, (reference: string) => Response, number]>([
    ['ours', (clientReference) => created({ ...accepted, clientReference }), 200],
    ['null', () => created({ ...accepted, clientReference: null }), 200],
    ['of another application', () => created({ ...accepted, clientReference: 'another' }), 502],
    ['a number', () => created({ ...accepted, clientReference: 7 }), 502],
    [
      'of another application beside a decline',
      () => Response.json({ decision: 'declined', clientReference: 'x' }, { status: 422 }),
      502,
    ],
    ['ours in capitals', (reference) => created({ ...accepted, clientReference: reference.toUpperCase() }), 502],
  ])('G4 the reply carries a reference: %s', async (_, respond, status) => {
    const { start } = await setUp(({ reference }) => respond(reference));
    expect((await start()).status).toBe(status);
  });

  test('G4 the metrics count each number that is taken', async () => {
    const metrics = createPrometheusMetrics({ replica: undefined });
    const { start } = await setUp(() => created(accepted), { metrics });
    await start();
    await start({}, 'eve');
    const text = await metrics.print({
      ...aScrape,
      database: { applications: { abandoned: 1 }, completedTasks: {} },
    });
    expect(text).toContain('planning_application_numbers_taken_total 1');
    expect(text).toContain('planning_applications{state="abandoned"} 1');
  });
});

describe('Retry-After of the carrier', () => {
  const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toUTCString();
  const busy = (headers: Record<string, string>, status = 429) => new Response('{}', { status, headers });

  test.each<[string, Record<string, string>]>([
    ['seconds', { 'retry-after': '1' }],
    ['a date', { 'retry-after': 'Tue, 10 Mar 2026 12:00:01 GMT', date: 'Tue, 10 Mar 2026 12:00:00 GMT' }],
  ])('G5 the call waits for Retry-After in %s when it fits the deadline', async (_, headers) => {
    const { calls, start } = await setUp(({ count }) => (count === 1 ? busy(headers) : created(accepted)));
    const timers = spyOn(globalThis, 'setTimeout');
    const status = (await start()).status;
    const delays = timers.mock.calls.map(([, delay]) => delay);
    timers.mockRestore();
    expect(status).toBe(200);
    expect(calls).toHaveLength(2);
    // Without the header the delay is random and shorter.
    expect(delays).toContain(1000);
  });

  test.each<[string, Record<string, string>, number, string]>([
    ['seconds', { 'retry-after': '30' }, 429, '30'],
    ['seconds beside 503', { 'retry-after': '30' }, 503, '30'],
    ['a date', { 'retry-after': inSeconds(90_000), date: inSeconds(89_940) }, 503, '60'],
    ['more than an hour', { 'retry-after': '999999999' }, 429, '3600'],
    ['a date of next year', { 'retry-after': inSeconds(365 * 86_400) }, 503, '3600'],
  ])('G5 the response carries Retry-After when %s does not fit the deadline', async (_, headers, status, expected) => {
    const { calls, start } = await setUp(() => busy(headers, status));
    const response = await start();
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/carrier-unavailable' } });
    expect(response.headers.get('retry-after')).toBe(expected);
    expect(calls).toHaveLength(1);
  });

  test.each([
    ['an unknown form', { 'retry-after': 'soon' }],
    ['a negative number', { 'retry-after': '-5' }],
    ['a fraction', { 'retry-after': '1.5' }],
    ['a date that does not exist', { 'retry-after': 'Tue, 99 Mar 2026 12:00:01 GMT' }],
    ['a date that has passed', { 'retry-after': 'Tue, 10 Mar 2020 12:00:01 GMT' }],
    ['zero', { 'retry-after': '0' }],
  ])('G5 the call is repeated when Retry-After has %s', async (_, headers) => {
    const { calls, start } = await setUp(({ count }) => (count === 1 ? busy(headers) : created(accepted)));
    expect((await start()).status).toBe(200);
    expect(calls).toHaveLength(2);
  });

  test('G5 Retry-After holds for the person and for the reconciler until it has passed', async () => {
    const { calls, start, list, reconcile, pass } = await setUp(({ count, method }) =>
      count === 1 ? busy({ 'retry-after': '60' }) : method === 'GET' ? busy({}, 404) : created(accepted),
    );
    await start();
    pass(20_000);
    const repeated = await start();
    expect(repeated).toMatchObject({ status: 503, body: { type: '/problems/carrier-unavailable' } });
    expect(repeated.headers.get('retry-after')).toBe('40');
    expect(await reconcile()).toBe(0);
    expect(calls).toHaveLength(1);
    pass(40_001);
    expect(await reconcile()).toBe(1);
    expect((await list()).applications).toMatchObject([{ state: 'submitted' }]);
  });

  test('G5 Retry-After is ignored when the clock is set back by more than the longest wait', async () => {
    const { start, pass } = await setUp(({ count, method }) =>
      count === 1 ? busy({ 'retry-after': '60' }) : method === 'GET' ? busy({}, 404) : created(accepted),
    );
    await start();
    pass(-86_400_000);
    expect((await start()).status).toBe(200);
  });
});

describe('a request that the carrier refuses', () => {
  test.each([400, 404, 409, 410, 418, 422])(
    'G5 an application is abandoned after eight responses of %d',
    async (status) => {
      const { calls, testApp, start, list, reconcile, pass } = await setUp(({ method }) =>
        method === 'GET' ? new Response(null, { status: 404 }) : Response.json({}, { status }),
      );
      expect((await start()).status).toBe(502);
      for (let minutes = 0; minutes < 7 * 24 * 60; minutes += 10) {
        pass(10 * 60_000);
        await reconcile();
      }
      expect(calls.filter(({ method }) => method === 'POST')).toHaveLength(8);
      const {
        applications: [abandoned],
      } = await list();
      expect(abandoned).toMatchObject({ state: 'abandoned', appNumber: null });
      expect(Date.parse(abandoned?.settledAt ?? '') - Date.parse(abandoned?.createdAt ?? '')).toBeGreaterThan(
        12 * 3_600_000,
      );
      expect(testApp.logLines.filter((line) => line.includes('is abandoned'))).toHaveLength(1);
      const before = calls.length;
      pass(60_000);
      await reconcile();
      expect(calls).toHaveLength(before);
    },
  );

  /** A carrier that stores an application under its reference; a function in `mode` replaces its response. */
  const storing = async () => {
    const records = new Map<string, number>();
    const carrier: { mode: 'well' | ((method: string, store: () => void) => Response | undefined) } = { mode: 'well' };
    const set = await setUp(({ method, reference }) => {
      const store = () => records.set(reference, records.get(reference) ?? records.size + 7);
      const instead = carrier.mode === 'well' ? undefined : carrier.mode(method, store);
      if (instead !== undefined) return instead;
      if (method === 'POST') store();
      const applicationNumber = records.get(reference);
      return applicationNumber === undefined
        ? new Response(null, { status: 404 })
        : created({ ...accepted, applicationNumber });
    });
    const row = async () => (await set.testApp.db.select().from(applications))[0];
    const days = async (count: number) => {
      for (let minutes = 0; minutes < count * 24 * 60; minutes += 10) {
        set.pass(10 * 60_000);
        await set.reconcile();
      }
    };
    return { ...set, records, carrier, row, days };
  };
  const refusing = (method: string) => new Response(null, { status: method === 'GET' ? 404 : 400 });

  test.each([
    ['404', (): Response => new Response(null, { status: 404 })],
    ['400', refusing],
  ])('G5 the carrier holds one record when a lost acceptance is followed by %s', async (_, refuse) => {
    const { records, carrier, start, list, pass, days } = await storing();
    carrier.mode = (method, store) => {
      if (method === 'POST') store();
      return new Response(null, { status: 503 });
    };
    const statuses = [(await start()).status];
    carrier.mode = refuse;
    for (let press = 0; press < 8; press += 1) {
      statuses.push((await start()).status);
      pass(1_000);
    }
    await days(2);
    carrier.mode = 'well';
    statuses.push((await start()).status);
    expect(statuses).toEqual([503, ...Array(8).fill(502), 200]);
    expect([...records.values()]).toEqual([7]);
    expect((await list()).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
  });

  test.each<[string, () => Response]>([
    ['500', () => new Response(null, { status: 500 })],
    ['200 without a number', () => Response.json({})],
    ['302', () => new Response(null, { status: 302 })],
  ])('G5 an application stays unknown when %s came before the refusals', async (_, first) => {
    const { calls, records, carrier, start, list, row, days } = await storing();
    // The second attempt of the same call is refused.
    carrier.mode = (method, store) => {
      carrier.mode = refusing;
      if (method === 'POST') store();
      return first();
    };
    expect((await start()).status).toBe(502);
    await days(5);
    expect(await row()).toMatchObject({ state: 'unknown', abandonedAt: null });
    // The delays keep growing.
    expect(calls.filter(({ method }) => method === 'POST').length).toBeLessThan(32);
    carrier.mode = 'well';
    await days(1);
    expect((await list()).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
    expect(records.size).toBe(1);
  });

  test('G5 repeats of the person reach the carrier and add no refusal before the wait has passed', async () => {
    const { calls, carrier, start, row, pass } = await storing();
    carrier.mode = refusing;
    for (let press = 0; press < 30; press += 1) {
      expect((await start()).status).toBe(502);
      pass(1_000);
    }
    expect(calls.filter(({ method }) => method === 'POST')).toHaveLength(30);
    expect(await row()).toMatchObject({ state: 'unknown', refusals: 1, abandonedAt: null });
    pass(31_000);
    await start();
    expect(await row()).toMatchObject({ refusals: 2 });
  });

  test('G5 the person sends an abandoned application again under the same reference', async () => {
    const { calls, records, carrier, start, list, row, days } = await storing();
    carrier.mode = refusing;
    await start();
    await days(1);
    expect((await list()).applications).toMatchObject([{ state: 'abandoned' }]);
    expect((await start()).status).toBe(502);
    expect(await row()).toMatchObject({ state: 'unknown', refusals: 1, abandonedAt: null });
    await days(1);
    expect((await list()).applications).toMatchObject([{ state: 'abandoned' }]);
    carrier.mode = 'well';
    expect((await start()).status).toBe(200);
    expect((await list()).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
    expect(new Set(calls.map(({ reference }) => reference)).size).toBe(1);
    expect(records.size).toBe(1);
  });

  test('G5 an acceptance is stored when it comes after the application was abandoned', async () => {
    const abandoned = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const set = await setUp(async () => {
      asked.resolve();
      await abandoned.promise;
      return created(accepted);
    });
    const started = set.start();
    await asked.promise;
    await set.testApp.db.update(applications).set({ state: 'unknown', abandonedAt: 1 });
    abandoned.resolve();
    expect((await started).status).toBe(200);
    expect((await set.list()).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
  });

  test('G5 an abandoned application is unknown to the previous build, counted apart, and not counted after an erasure', async () => {
    const { testApp, calls, carrier, start, list, row, days } = await storing();
    carrier.mode = refusing;
    await start();
    await days(1);
    expect((await list()).applications).toMatchObject([{ state: 'abandoned', settledAt: expect.any(String) }]);
    // The states of the previous build's response schema.
    expect(['submitting', 'submitted', 'declined', 'unknown']).toContain((await row())?.state ?? '');
    const counts = async () =>
      Object.entries(await countParts(testApp.db, 'applications')).filter(([, count]) => count !== 0);
    expect(await counts()).toEqual([['abandoned', 1]]);
    const sent = calls.length;
    await createPersonalDataStore(testApp.db).erase('ada', { operator: testOperator, now: testApp.now });
    await days(1);
    expect(calls).toHaveLength(sent);
    expect(await counts()).toEqual([]);
    // The previous build sets only the state.
    await testApp.db.update(applications).set({ state: 'submitted' });
    expect(await counts()).toEqual([['submitted', 1]]);
  });

  test('G5 an application settles when the carrier accepts it before the eighth refusal', async () => {
    let isMended = false;
    const { start, list, reconcile, pass } = await setUp(({ method }) =>
      method === 'GET'
        ? new Response(null, { status: 404 })
        : isMended
          ? created(accepted)
          : new Response(null, { status: 400 }),
    );
    await start();
    pass(61_000);
    await reconcile();
    isMended = true;
    pass(241_000);
    expect(await reconcile()).toBe(1);
    expect((await list()).applications).toMatchObject([{ state: 'submitted', appNumber: 7 }]);
  });

  test('G5 an application is never abandoned when the carrier returns 500', async () => {
    const { start, list, reconcile, pass } = await setUp(() => new Response(null, { status: 500 }));
    await start();
    for (let hour = 0; hour < 24; hour += 1) {
      pass(3_600_000);
      await reconcile();
    }
    expect((await list()).applications).toMatchObject([{ state: 'unknown' }]);
  });
});

describe('the response of the carrier', () => {
  const bytes = (prefix: string, invalid: readonly number[]) =>
    new Response(Buffer.concat([Buffer.from(prefix), Buffer.from(invalid), Buffer.from('"')]), { status: 201 });
  const asText = JSON.stringify(accepted);
  test.each<[string, () => Response]>([
    ['a product without terms', () => created({ ...accepted, pricing: pricing({ terms: [] }) })],
    [
      'one product of two without terms',
      () => created({ ...accepted, pricing: [...pricing(), ...pricing({ terms: [] })] }),
    ],
    ['no product', () => created({ ...accepted, pricing: [] })],
    ['a price of 0', () => created({ ...accepted, pricing: pricing({}, { price: 0 }) })],
    ['a price that rounds to 0', () => created({ ...accepted, pricing: pricing({}, { price: 0.004 }) })],
    ['a negative price', () => created({ ...accepted, pricing: pricing({}, { price: -0.01 }) })],
    ['a price as text', () => created({ ...accepted, pricing: pricing({}, { price: '12.34' }) })],
    ['0 years', () => created({ ...accepted, pricing: pricing({}, { years: 0 }) })],
    ['10.5 years', () => created({ ...accepted, pricing: pricing({}, { years: 10.5 }) })],
    ['-10 years', () => created({ ...accepted, pricing: pricing({}, { years: -10 }) })],
    ['121 years', () => created({ ...accepted, pricing: pricing({}, { years: 121 }) })],
    ['a number of 10.5', () => created({ ...accepted, applicationNumber: 10.5 })],
    [
      'a number that is not a safe integer',
      () => new Response(asText.replace(':7,', ':9007199254740993,'), { status: 201 }),
    ],
    [
      'bytes that are not UTF-8',
      () => new Response(Buffer.from(asText.replace('TERM_10', 'TERM_\xff'), 'latin1'), { status: 201 }),
    ],
    ['a character that is cut off', () => bytes(asText.slice(0, -1), [0xe2, 0x82])],
    ['a surrogate in UTF-8', () => bytes(asText.slice(0, -1), [0xed, 0xa0, 0x80])],
  ])('G6 the reply is refused when it has %s', async (_, respond) => {
    const { start, list } = await setUp(respond);
    expect(await start()).toMatchObject({ status: 502, body: { type: '/problems/carrier-bad-answer' } });
    expect((await list()).applications).toMatchObject([{ state: 'unknown', appNumber: null }]);
  });

  test.each([
    ['12.340000000000002', 12.34],
    ['0.30000000000000004', 0.3],
    ['1.005e1', 10.05],
    ['12.345', 12.35],
    ['0.005', 0.01],
    ['1e9', 1e9],
  ])('G6 a price of %s is rounded to cents', async (sent, price) => {
    const { start } = await setUp(() => new Response(asText.replace('12.34', sent), { status: 201 }));
    const { user } = v.parse(UserBody, (await start()).body);
    expect(user.purchase.partner?.pricing[0]?.terms[0]?.price).toBe(price);
  });

  test('G6 the reply may have a rider of price 0 and a byte order mark', async () => {
    const riders = [{ type: 'WAIVER', price: 0, included: true, coverage: 0 }];
    const text = `\ufeff${JSON.stringify({ ...accepted, pricing: pricing({ product: 'Vie entière' }, { riders }) })}`;
    const { start } = await setUp(() => new Response(text, { status: 201 }));
    const { user } = v.parse(UserBody, (await start()).body);
    expect(user.purchase.partner?.pricing).toEqual(pricing({ product: 'Vie entière' }, { riders }));
  });

  test('G6 pricing that an earlier version stored stays readable', async () => {
    const { testApp } = await setUp(() => created(accepted));
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: {} });
    const partner = { appNumber: 7, pricing: pricing({ terms: [] }).concat(pricing({}, { price: 0, years: 10.5 })) };
    const args = [JSON.stringify({ partner })];
    await testApp.db.$client.execute({
      sql: "UPDATE users SET purchase = ?, version = version + 1 WHERE id = 'ada'",
      args,
    });
    const match = await testApp.call('POST', '/v2/private/engine/matches?explain=true', { as: 'ada' });
    expect(v.parse(UserBody, match.body).user.purchase).toEqual({ partner });
  });
});

describe('the list of applications', () => {
  const names = Array.from(
    { length: 45 },
    (_, index) => `Ada${String.fromCharCode(65 + Math.floor(index / 26), 65 + (index % 26))}`,
  );
  const walk = async ({ list }: Awaited<ReturnType<typeof setUp>>, limit: string) => {
    const ids: string[] = [];
    const sizes: number[] = [];
    for (let next: string | null = ''; next !== null; ) {
      const page: ApplicationsBody['data'] = await list('ada', `?limit=${limit}${next === '' ? '' : `&after=${next}`}`);
      sizes.push(page.applications.length);
      ids.push(...page.applications.map(({ id }) => id));
      next = page.next;
    }
    return { ids, sizes };
  };
  const withMany = async () => {
    let number = 0;
    const set = await setUp(() => {
      number += 1;
      return created({ ...accepted, applicationNumber: number });
    });
    for (const firstName of names) await set.start({ firstName });
    await set.start({}, 'eve');
    return set;
  };

  test('G2 the pages give each application once, the newest first', async () => {
    const set = await withMany();
    const all = await set.list('ada', '?limit=100');
    expect(all.next).toBeNull();
    const numbers = all.applications.map(({ appNumber }) => appNumber);
    expect(numbers).toEqual(names.map((_, index) => names.length - index));
    const first = await set.list();
    expect(first.applications).toEqual(all.applications.slice(0, 20));
    expect(first.next).toBe(all.applications[19]?.id ?? '');
    const ids = all.applications.map(({ id }) => id);
    expect(await walk(set, '20')).toEqual({ ids, sizes: [20, 20, 5] });
    expect(await walk(set, '45')).toEqual({ ids, sizes: [45] });
    expect(await walk(set, '1')).toEqual({ ids, sizes: names.map(() => 1) });
    const [anothers] = (await set.list('eve')).applications;
    for (const query of [
      '?limit=0',
      '?limit=101',
      '?limit=x',
      '?limit=',
      '?after=',
      '?after=unknown',
      `?after=${anothers?.id}`,
    ]) {
      const refused = await set.testApp.call('GET', `${listPath}${query}`, { as: 'ada' });
      expect({ query, status: refused.status }).toEqual({ query, status: 422 });
    }
    expect((await set.list('ada', `?after=${ids.at(-1)}`)).applications).toEqual([]);
  }, 30_000);

  test('G2 the list uses an index', async () => {
    const { testApp } = await setUp(() => created(accepted));
    for (const after of [undefined, 'some-id']) {
      const plan = await explainFirst(testApp.db, (db) =>
        createApplicationStore(db).listByUser({ userId: 'ada', limit: 20, after }),
      );
      expect(plan.join('\n')).toContain(
        `USING INDEX applications_by_user (user_id=?${after === undefined ? '' : ' AND created_at<?'})`,
      );
      expect(plan.join('\n')).not.toMatch(/SCAN|TEMP B-TREE/);
    }
  });
});

describe('the daily cap of applications', () => {
  const numbered = () => {
    let number = 0;
    return () => {
      number += 1;
      return created({ ...accepted, applicationNumber: number });
    };
  };
  const limited = { status: 429, body: { type: '/problems/rate-limited' } };

  test('G2 returns 429 with the time until the next application fits', async () => {
    const { calls, testApp, start, pass } = await setUp(numbered(), { perDay: 3 });
    for (const firstName of ['A', 'B', 'C']) {
      expect((await start({ firstName })).status).toBe(200);
      pass(3_600_000);
    }
    const before = await testApp.call('GET', '/v2/private/user', { as: 'ada' });
    const refused = await start({ firstName: 'D' });
    expect(refused).toMatchObject(limited);
    expect(Number(refused.headers.get('retry-after'))).toBe(21 * 3600);
    expect(calls).toHaveLength(3);
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(before.text);
    pass(21 * 3_600_000);
    expect((await start({ firstName: 'D' })).status).toBe(200);
    expect(await start({ firstName: 'E' })).toMatchObject(limited);
  });

  test('G2 an idempotency key is free for another body when the cap refused the first', async () => {
    const { testApp, start, pass } = await setUp(numbered(), { perDay: 1 });
    const key = { 'idempotency-key': 'one' };
    expect((await start({ firstName: 'A' })).status).toBe(200);
    pass(23 * 3_600_000);
    expect(await start({ firstName: 'B' }, 'ada', key)).toMatchObject(limited);
    expect(await testApp.db.$count(idempotencyKeys)).toBe(0);
    pass(2 * 3_600_000);
    expect((await start({ firstName: 'C' }, 'ada', key)).status).toBe(200);
  });

  test('G2 the cap ignores repeated applications and other users', async () => {
    const { start } = await setUp(numbered(), { perDay: 2 });
    for (const firstName of ['A', 'A', 'B', 'A', 'B']) expect((await start({ firstName })).status).toBe(200);
    const key = { 'idempotency-key': 'one' };
    expect((await start({ firstName: 'A' }, 'ada', key)).status).toBe(200);
    expect((await start({ firstName: 'A' }, 'ada', key)).status).toBe(200);
    expect(await start({ firstName: 'C' })).toMatchObject(limited);
    expect((await start({ firstName: 'C' }, 'eve')).status).toBe(200);
  });

  test('G2 the cap counts both flows, declines, and applications that stay open for longer than a day', async () => {
    const { testApp, start, pass } = await setUp(
      ({ reference, count }) =>
        count === 1
          ? Response.json({ decision: 'declined' }, { status: 422 })
          : new Response(reference, { status: 500 }),
      { perDay: 3 },
    );
    expect((await start({ firstName: 'A' })).status).toBe(422);
    expect((await start({ firstName: 'B' })).status).toBe(503);
    const life = await testApp.call('POST', '/v2/private/life/totalCoverage', { as: 'ada', body: applicant });
    expect(life.status).toBe(503);
    expect(await start({ firstName: 'C' })).toMatchObject(limited);
    pass(25 * 3_600_000);
    expect((await start({ firstName: 'C' })).status).toBe(503);
    pass(25 * 3_600_000);
    const refused = await start({ firstName: 'D' });
    expect(refused).toMatchObject(limited);
    expect(refused.headers.get('retry-after')).toBe('3600');
  });

  test('G2 the cap holds across instances when many requests arrive at once', async () => {
    const { testApp, carrier } = await setUp(numbered());
    const config = { ...testConfig, carrier: { applicationsPerDay: 5, attempts: 2, timeoutMs: 2_000 } };
    const instances = await Promise.all([0, 1].map(() => createTestApp({ db: testApp.db, carrier, config })));
    const responses = await Promise.all(
      names(20).map((firstName, index) =>
        instances[index % 2]?.call('POST', coverage, { as: 'ada', body: { ...applicant, firstName } }),
      ),
    );
    expect(responses.filter((response) => response?.status === 200)).toHaveLength(5);
    expect(responses.filter((response) => response?.status === 429)).toHaveLength(15);
    expect(await testApp.db.$count(applications)).toBe(5);
  });

  const names = (count: number) => Array.from({ length: count }, (_, index) => `Ada${String.fromCharCode(65 + index)}`);
});
