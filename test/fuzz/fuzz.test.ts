import { afterAll, describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { magicLastNames } from '../../src/carrier-sandbox/server';
import { applicant, testSecret, testToken } from '../support/app';
import { documentOfSources } from '../support/conformance';
import { createRawClient } from '../support/http';
import { startService } from '../support/processes';
import { amount, isLong } from '../support/resources';
import { faultsOf, keyMark, numberMark, type Sent, valueMark } from './checks';
import { documentedRequest, requestsTo, straysFrom, type Tokens } from './requests';

/** The service as a separate process, with the demo data and the sandbox carrier. */
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
/** Enough users that the list of applications of each stays short. */
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

/** The name Slow takes as long as the carrier timeout. */
const faults = Object.keys(magicLastNames).filter((name) => isLong || name !== 'Slow');

/** Repeats a run: `FUZZ_SEED=… bun test test/fuzz`. */
const firstSeed = process.env.FUZZ_SEED === undefined ? undefined : Number(process.env.FUZZ_SEED);
const seen = new Map<string, number>();
let sentInAll = 0;
let megabytesHalfway = 0;

async function residentMegabytes(): Promise<number> {
  const kilobytes = await Bun.$`ps -o rss= -p ${service.process.pid}`.text();
  return Math.round(Number(kilobytes) / 1024);
}

async function expectContract(sent: Sent): Promise<void> {
  const response = await client.send(sent);
  sentInAll += 1;
  if (sentInAll === halfway) megabytesHalfway = await residentMegabytes();
  const key = `${sent.target.split('?')[0]?.replace(/\/$/, '')} ${response?.status}`;
  seen.set(key, (seen.get(key) ?? 0) + 1);
  const faults = faultsOf(document, sent, response);
  if (faults.length > 0) throw new Error(`${faults.join('; ')}\n${JSON.stringify(response).slice(0, 1_000)}`);
}

const runsPerRoute = amount({ long: 6_700, short: 70 });
const halfway = (runsPerRoute * document.operations.length) / 2;

for (const { id, token } of tokens.good) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const saved = await fetch(`${service.address}/v2/private/user/profile`, { method: 'POST', headers, body: '{}' });
  if (saved.status !== 200) throw new Error(`${id} has no record`);
}

/** Sends in parallel lanes: each save of a sequential run would wait for its own fsync. */
async function sendAll(requests: fc.Arbitrary<Sent>): Promise<void> {
  const lanes = amount({ long: 16, short: 4 });
  const inLane = (lane: number) =>
    fc.assert(fc.asyncProperty(requests, expectContract), {
      numRuns: Math.ceil(runsPerRoute / lanes),
      ...(firstSeed !== undefined && { seed: firstSeed + lane }),
    });
  await Promise.all(Array.from({ length: lanes }, (_, lane) => inLane(lane)));
}

describe('a generated request', () => {
  test.each(document.operations)(
    'gets a documented response that repeats no sent value: $name',
    async (operation) => {
      // Random requests alone may include no valid one for a route with many required fields.
      await expectContract(documentedRequest(operation, tokens));
      await sendAll(requestsTo(operation, document, tokens));
    },
    300_000,
  );

  test('gets a documented response that repeats no sent value: unknown paths and methods', async () => {
    await sendAll(straysFrom(document, tokens));
  }, 300_000);

  test.each(faults)('gets a documented response that repeats no sent value: carrier failure %s', async (lastName) => {
    for (const path of ['/v2/private/ltc/totalCoverage', '/v2/private/life/totalCoverage']) {
      await expectContract({
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

describe('the fuzz run', () => {
  test('includes 200, 401 and 422 responses of every route', () => {
    const statusesAt = (path: string) =>
      [200, 401, 422].filter((status) => seen.has(`${path.replace(/\/$/, '')} ${status}`));
    for (const { path, isPrivate, body, name } of document.operations) {
      const expected = [200, ...(isPrivate ? [401] : []), ...(body === undefined ? [] : [422])];
      expect([name, statusesAt(path)]).toEqual([name, expect.arrayContaining(expected)]);
    }
  });

  test('leaves no sent value in the log except request ids', () => {
    const log = service
      .output()
      .replaceAll(/"requestId":"[\w-]{8,64}"/g, '')
      .toLowerCase();
    for (const mark of [valueMark, keyMark, String(numberMark)]) expect(log.includes(mark)).toBeFalse();
  });

  /** Measured from the middle of the run, when every cache is warm. */
  if (isLong)
    test('does not grow the memory of the service', async () => {
      const grownMegabytes = (await residentMegabytes()) - megabytesHalfway;
      process.stdout.write(
        `${sentInAll} requests; ${megabytesHalfway} MB halfway, ${grownMegabytes} more at the end\n`,
      );
      expect(megabytesHalfway).toBeGreaterThan(0);
      expect(grownMegabytes).toBeLessThan(32);
    });

  test('leaves the service running', async () => {
    expect(service.process.exitCode).toBeNull();
    expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
    expect(sentInAll).toBeGreaterThan(amount({ long: 100_000, short: 1_000 }));
  });
});
