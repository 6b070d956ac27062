import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import { applications } from '../../src/db/schema';
import { createHttpCarrier } from '../../src/modules/coverage/carrier/http-carrier';
import { ApplicationsBody } from '../../src/modules/coverage/model';
import { createApplicationStore } from '../../src/modules/coverage/store';
import { UserBody } from '../../src/modules/users/model';
import type { Metrics } from '../../src/telemetry/observers';
import { createPrometheusMetrics } from '../../src/telemetry/prometheus';
import { createTestApp, testConfig } from '../support/app';
import { applicant } from '../support/applicant';
import { atEnd } from '../support/cleanup';
import { coverageServiceOf } from '../support/coverage';
import { explainFirst } from '../support/query-plan';
import { testCarrier } from '../support/sandbox';

const coverage = '/v2/private/ltc/totalCoverage';
const listPath = '/v2/private/user/applications';
const pricing = (change: object = {}, term: object = {}) => [
  { product: 'TERM_10', coverage: 500_000, terms: [{ years: 10, price: 12.34, riders: [], ...term }], ...change },
];
const accepted = { applicationNumber: 7, pricing: pricing() };
type Respond = (request: { method: string; reference: string; count: number }) => Response;

/** A carrier that answers by a function, and an app that applies to it. */
async function setUp(respond: Respond, { perDay = 0, metrics }: { perDay?: number; metrics?: Metrics } = {}) {
  const timeoutMs = 2_000;
  const calls: { method: string; atMs: number }[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      calls.push({ method: request.method, atMs: performance.now() });
      const sent = v.safeParse(v.object({ clientReference: v.string() }), await request.json().catch(() => undefined));
      const reference = sent.success ? sent.output.clientReference : (request.url.split('/').at(-1) ?? '');
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
  test('G4 is never shared: the second application is unknown, with a log line and a metric', async () => {
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

  test('G4 is not shared by two applications of one person', async () => {
    const { start, list } = await setUp(() => created(accepted));
    await start();
    expect((await start({ firstName: 'Augusta' })).status).toBe(502);
    expect((await list()).applications.map(({ appNumber }) => appNumber)).toEqual([null, 7]);
  });

  test('G4 is given once when a carrier gives it to many at one instant', async () => {
    const { testApp, start } = await setUp(() => created(accepted));
    const people = Array.from({ length: 8 }, (_, index) => `person-${index}`);
    const statuses = (await Promise.all(people.map((as) => start({}, as)))).map(({ status }) => status);
    expect(statuses.sort()).toEqual([200, ...Array(7).fill(502)]);
    expect(await testApp.db.$count(applications, eq(applications.applicationNumber, 7))).toBe(1);
  });

  test('G4 is refused when a new application of the same person gets the number of the last', async () => {
    const { start, list, pass } = await setUp(({ method }) =>
      method === 'GET' ? Response.json(accepted) : created(accepted),
    );
    await start();
    pass(31 * 86_400_000);
    expect((await start()).status).toBe(502);
    expect((await list()).applications.map(({ state }) => state)).toEqual(['unknown', 'submitted']);
  });

  test('G4 that is taken at first is asked for again, and settles once the carrier gives another', async () => {
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

  test('G4 is compared within one carrier', async () => {
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
  ])('G4 comes with a reference that is %s', async (_, respond, status) => {
    const { start } = await setUp(({ reference }) => respond(reference));
    expect((await start()).status).toBe(status);
  });

  test('G4 counts in the metrics when it is taken', async () => {
    const metrics = createPrometheusMetrics({ version: '0', replica: undefined });
    const { start } = await setUp(() => created(accepted), { metrics });
    await start();
    await start({}, 'eve');
    const text = await metrics.print({ inFlight: 0, applications: { abandoned: 1 } });
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
  ])('G5 in %s is waited for when it fits the deadline', async (_, headers) => {
    const { calls, start } = await setUp(({ count }) => (count === 1 ? busy(headers) : created(accepted)));
    expect((await start()).status).toBe(200);
    expect(calls).toHaveLength(2);
    // Timers of the two processes' clocks may differ by a millisecond or two.
    expect((calls[1]?.atMs ?? 0) - (calls[0]?.atMs ?? 0)).toBeGreaterThan(990);
  });

  test.each<[string, Record<string, string>, number, string]>([
    ['seconds', { 'retry-after': '30' }, 429, '30'],
    ['seconds beside 503', { 'retry-after': '30' }, 503, '30'],
    ['a date', { 'retry-after': inSeconds(90_000), date: inSeconds(89_940) }, 503, '60'],
    ['more than an hour', { 'retry-after': '999999999' }, 429, '3600'],
    ['a date of next year', { 'retry-after': inSeconds(365 * 86_400) }, 503, '3600'],
  ])('G5 of %s that does not fit is the caller’s', async (_, headers, status, expected) => {
    const { calls, start } = await setUp(() => busy(headers, status));
    const answer = await start();
    expect(answer).toMatchObject({ status: 503, body: { type: '/problems/carrier-unavailable' } });
    expect(answer.headers.get('retry-after')).toBe(expected);
    expect(calls).toHaveLength(1);
  });

  test.each([
    ['an unknown form', { 'retry-after': 'soon' }],
    ['a negative number', { 'retry-after': '-5' }],
    ['a fraction', { 'retry-after': '1.5' }],
    ['a date that does not exist', { 'retry-after': 'Tue, 99 Mar 2026 12:00:01 GMT' }],
    ['a date that has passed', { 'retry-after': 'Tue, 10 Mar 2020 12:00:01 GMT' }],
    ['zero', { 'retry-after': '0' }],
  ])('G5 in %s does not keep the call from being repeated', async (_, headers) => {
    const { calls, start } = await setUp(({ count }) => (count === 1 ? busy(headers) : created(accepted)));
    expect((await start()).status).toBe(200);
    expect(calls).toHaveLength(2);
  });

  test('G5 holds for a repeat of the person and for the reconciler, and ends', async () => {
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

  test('G5 does not hold when the clock is set back by more than it can be', async () => {
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
    'G5 with %d for ever is sent a few times and then abandoned',
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

  test('G5 is started again by the person after it was abandoned', async () => {
    let isMended = false;
    const { start, list, pass } = await setUp(({ method }) =>
      method === 'GET'
        ? new Response(null, { status: 404 })
        : isMended
          ? created(accepted)
          : new Response(null, { status: 400 }),
    );
    for (let attempt = 0; attempt < 8; attempt += 1) {
      expect((await start()).status).toBe(502);
      pass(1_000);
    }
    isMended = true;
    expect((await start()).status).toBe(200);
    expect((await list()).applications.map(({ state }) => state)).toEqual(['submitted', 'abandoned']);
  });

  test('G5 settles as soon as the carrier takes it, before it is abandoned', async () => {
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

  test('G5 that fails in another way is never abandoned', async () => {
    const { start, list, reconcile, pass } = await setUp(() => new Response(null, { status: 500 }));
    await start();
    for (let hour = 0; hour < 24; hour += 1) {
      pass(3_600_000);
      await reconcile();
    }
    expect((await list()).applications).toMatchObject([{ state: 'unknown' }]);
  });
});

describe('what is accepted from a carrier', () => {
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
      'a number that is no safe integer',
      () => new Response(asText.replace(':7,', ':9007199254740993,'), { status: 201 }),
    ],
    [
      'bytes that are not UTF-8',
      () => new Response(Buffer.from(asText.replace('TERM_10', 'TERM_\xff'), 'latin1'), { status: 201 }),
    ],
    ['a character that is cut off', () => bytes(asText.slice(0, -1), [0xe2, 0x82])],
    ['a surrogate in UTF-8', () => bytes(asText.slice(0, -1), [0xed, 0xa0, 0x80])],
  ])('G6 is not %s', async (_, respond) => {
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
  ])('G6 is a price of %s, to the cent', async (sent, price) => {
    const { start } = await setUp(() => new Response(asText.replace('12.34', sent), { status: 201 }));
    const { user } = v.parse(UserBody, (await start()).body);
    expect(user.purchase.partner?.pricing[0]?.terms[0]?.price).toBe(price);
  });

  test('G6 is a rider of price 0, and UTF-8 with a byte order mark', async () => {
    const riders = [{ type: 'WAIVER', price: 0, included: true, coverage: 0 }];
    const text = `\ufeff${JSON.stringify({ ...accepted, pricing: pricing({ product: 'Vie entière' }, { riders }) })}`;
    const { start } = await setUp(() => new Response(text, { status: 201 }));
    const { user } = v.parse(UserBody, (await start()).body);
    expect(user.purchase.partner?.pricing).toEqual(pricing({ product: 'Vie entière' }, { riders }));
  });

  test('G6 stays readable where an earlier version has stored it', async () => {
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

  test('G2 is read by pages that give each application once, the newest first', async () => {
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

  test('G2 is served by an index', async () => {
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

describe('applications of a day', () => {
  const numbered = () => {
    let number = 0;
    return () => {
      number += 1;
      return created({ ...accepted, applicationNumber: number });
    };
  };
  const limited = { status: 429, body: { type: '/problems/rate-limited' } };

  test('G2 are capped, with the time until the next one fits', async () => {
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

  test('G2 do not count what is answered again, nor other people', async () => {
    const { start } = await setUp(numbered(), { perDay: 2 });
    for (const firstName of ['A', 'A', 'B', 'A', 'B']) expect((await start({ firstName })).status).toBe(200);
    const key = { 'idempotency-key': 'one' };
    expect((await start({ firstName: 'A' }, 'ada', key)).status).toBe(200);
    expect((await start({ firstName: 'A' }, 'ada', key)).status).toBe(200);
    expect(await start({ firstName: 'C' })).toMatchObject(limited);
    expect((await start({ firstName: 'C' }, 'eve')).status).toBe(200);
  });

  test('G2 count both flows, declines, and those that stay open for longer than a day', async () => {
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

  test('G2 are capped across instances when many arrive at one instant', async () => {
    const { testApp, carrier } = await setUp(numbered());
    const config = { ...testConfig, carrier: { applicationsPerDay: 5, attempts: 2, timeoutMs: 2_000 } };
    const instances = await Promise.all([0, 1].map(() => createTestApp({ db: testApp.db, carrier, config })));
    const answers = await Promise.all(
      names(20).map((firstName, index) =>
        instances[index % 2]?.call('POST', coverage, { as: 'ada', body: { ...applicant, firstName } }),
      ),
    );
    expect(answers.filter((answer) => answer?.status === 200)).toHaveLength(5);
    expect(answers.filter((answer) => answer?.status === 429)).toHaveLength(15);
    expect(await testApp.db.$count(applications)).toBe(5);
  });

  const names = (count: number) => Array.from({ length: count }, (_, index) => `Ada${String.fromCharCode(65 + index)}`);
});
