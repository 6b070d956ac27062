import { afterAll, describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { magicLastNames } from '../../src/carrier-sandbox/faults';
import { testSecret, testToken } from '../support/app';
import { applicant } from '../support/applicant';
import { amount, isLong } from '../support/long';
import { createRawClient } from '../support/raw-http';
import { startService } from '../support/service';
import { documentOfSources } from '../support/traffic';
import { faultsOf, keyMark, numberMark, type Sent, valueMark } from './checks';
import { documentedRequest, requestsTo, straysFrom, type Tokens } from './requests';

/** The service as a process of its own, with the demo data and the real sandbox carrier. */
const service = await startService({
  environment: {
    AUTH_SECRET: testSecret,
    CARRIER_TIMEOUT_MS: String(amount({ long: 5_000, short: 1_500 })),
    CARRIER_ATTEMPTS: '1',
    RATE_LIMIT_PER_MINUTE: '0',
    CARRIER_APPLICATIONS_PER_DAY: '0',
  },
});
const document = await documentOfSources();
const client = createRawClient(Number(new URL(service.address).port));
afterAll(() => client.close());

const now = new Date();
/** So many that nobody's list of applications becomes longer than a person's. */
const callerIds = [
  'demo-manager',
  'one',
  'f\u00fcnf',
  ...Array.from({ length: amount({ long: 200, short: 5 }) }, (_, index) => `caller-${index}`),
];
const tokens: Tokens = {
  good: await Promise.all(
    callerIds.map(async (id) => {
      const isManager = id === 'demo-manager';
      return { id, isManager, token: await testToken({ id, roles: isManager ? ['salesManager'] : [], now }) };
    }),
  ),
  bad: [
    await testToken({ id: valueMark, now: new Date(0) }),
    `${(await testToken({ id: valueMark, now })).slice(0, -3)}AAA`,
    `eyJhbGciOiJub25lIn0.${btoa(`{"sub":"${valueMark}","exp":99999999999}`).replaceAll('=', '')}.`,
    `${valueMark}.${valueMark}.${valueMark}`,
    '..',
    'a'.repeat(3_000),
  ],
};

/** The slow one takes as long as the carrier may. */
const faults = Object.keys(magicLastNames).filter((name) => isLong || name !== 'Slow');

/** Repeats a run: `FUZZ_SEED=… bun test test/fuzz`. */
const firstSeed = process.env.FUZZ_SEED === undefined ? undefined : Number(process.env.FUZZ_SEED);
const met = new Map<string, number>();
let sentInAll = 0;
let megabytesHalfway = 0;

async function residentMegabytes(): Promise<number> {
  const kilobytes = await Bun.$`ps -o rss= -p ${service.process.pid}`.text();
  return Math.round(Number(kilobytes) / 1024);
}

async function keepsPromises(sent: Sent): Promise<void> {
  const answer = await client.send(sent);
  sentInAll += 1;
  if (sentInAll === halfway) megabytesHalfway = await residentMegabytes();
  const key = `${sent.target.split('?')[0]?.replace(/\/$/, '')} ${answer?.status}`;
  met.set(key, (met.get(key) ?? 0) + 1);
  const faults = faultsOf(document, sent, answer);
  if (faults.length > 0) throw new Error(`${faults.join('; ')}\n${JSON.stringify(answer).slice(0, 1_000)}`);
}

const runsPerRoute = amount({ long: 6_700, short: 70 });
const halfway = (runsPerRoute * document.operations.length) / 2;

for (const { id, token } of tokens.good) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const saved = await fetch(`${service.address}/v2/private/user/profile`, { method: 'POST', headers, body: '{}' });
  if (saved.status !== 200) throw new Error(`${id} has no record`);
}

/** Many at a time, as callers come: one after the other, each save would wait for a sync of its own. */
async function holdsForAll(requests: fc.Arbitrary<Sent>): Promise<void> {
  const lanes = amount({ long: 16, short: 4 });
  const inLane = (lane: number) =>
    fc.assert(fc.asyncProperty(requests, keepsPromises), {
      numRuns: Math.ceil(runsPerRoute / lanes),
      ...(firstSeed !== undefined && { seed: firstSeed + lane }),
    });
  await Promise.all(Array.from({ length: lanes }, (_, lane) => inLane(lane)));
}

describe('every answer is as documented, and tells nothing that was sent', () => {
  test.each(document.operations)(
    'from $name',
    async (operation) => {
      // By chance alone, a route that asks for much of a request may meet no good one.
      await keepsPromises(documentedRequest(operation, tokens));
      await holdsForAll(requestsTo(operation, document, tokens));
    },
    300_000,
  );

  test('from paths and methods that are not served', async () => {
    await holdsForAll(straysFrom(document, tokens));
  }, 300_000);

  test.each(faults)('from a carrier that fails for %s', async (lastName) => {
    for (const path of ['/v2/private/ltc/totalCoverage', '/v2/private/life/totalCoverage']) {
      await keepsPromises({
        method: 'POST',
        target: path,
        caller: { id: 'one', isManager: false },
        headers: [
          ['Host', 'fuzz.example'],
          ['Authorization', `Bearer ${tokens.good.find(({ id }) => id === 'one')?.token}`],
          ['Content-Type', 'application/json'],
        ],
        body: new TextEncoder().encode(JSON.stringify({ ...applicant, lastName })),
        meetsCarrierFault: true,
      });
    }
  });
});

describe('the run', () => {
  test('met success, strangers and refusals at every route', () => {
    const statusesAt = (path: string) =>
      [200, 401, 422].filter((status) => met.has(`${path.replace(/\/$/, '')} ${status}`));
    for (const { path, isPrivate, body, name } of document.operations) {
      const expected = [200, ...(isPrivate ? [401] : []), ...(body === undefined ? [] : [422])];
      expect([name, statusesAt(path)]).toEqual([name, expect.arrayContaining(expected)]);
    }
  });

  test('left nothing that was sent in the log, but request ids', () => {
    const log = service
      .output()
      .replaceAll(/"requestId":"[\w-]{8,64}"/g, '')
      .toLowerCase();
    for (const mark of [valueMark, keyMark, String(numberMark)]) expect(log.includes(mark)).toBeFalse();
  });

  /** Measured from the middle of the run, when all is loaded and every cache is warm. */
  if (isLong)
    test('did not make the service grow', async () => {
      const grownMegabytes = (await residentMegabytes()) - megabytesHalfway;
      process.stdout.write(
        `${sentInAll} requests; ${megabytesHalfway} MB halfway, ${grownMegabytes} more at the end\n`,
      );
      expect(megabytesHalfway).toBeGreaterThan(0);
      expect(grownMegabytes).toBeLessThan(32);
    });

  test('left a service that goes on', async () => {
    expect(service.process.exitCode).toBeNull();
    expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
    expect(sentInAll).toBeGreaterThan(amount({ long: 100_000, short: 1_000 }));
  });
});
