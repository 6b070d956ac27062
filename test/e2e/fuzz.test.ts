import { afterAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import fc from 'fast-check';
import * as v from 'valibot';
import { magicLastNames } from '../../src/carrier-sandbox/server';
import { Problem } from '../../src/http/problem-response';
import { applicant, testSecret, testToken } from '../support/app';
import { documentOfSources, mismatchesWith, operationsAt, pathAt } from '../support/conformance';
import { createRawClient, type RawResponse } from '../support/http';
import { startService } from '../support/processes';
import { amount, isLong, never, runToEnd, temporaryFolder } from '../support/resources';
import {
  bearer,
  type Caller,
  documentedRequest,
  keyMark,
  numberMark,
  requestsTo,
  type Sent,
  straysFrom,
  valueMark,
} from './fuzz-requests';

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
const ids = [
  'demo-manager',
  'fünf',
  ...Array.from({ length: amount({ long: 200, short: 5 }) }, (_, n) => `caller-${n}`),
];
const good = await Promise.all(
  ids.map(async (id): Promise<Caller> => {
    const isManager = id === 'demo-manager';
    return { id, isManager, token: await testToken({ id, roles: isManager ? ['salesManager'] : [], now }) };
  }),
);
const manager = good[0] ?? never();
const claims = btoa(`{"sub":"${valueMark}","exp":99999999999}`).replaceAll('=', '');
const tokens = {
  good,
  bad: [
    await testToken({ id: valueMark, now: new Date(0) }),
    `${(await testToken({ id: valueMark, now })).slice(0, -3)}AAA`,
    `eyJhbGciOiJub25lIn0.${claims}.`,
    `${valueMark}.${valueMark}.${valueMark}`,
    '..',
    'a'.repeat(3_000),
  ],
};

/** Served outside the API document. */
const pages = /^\/(?:swagger|icons|problems|favicon\.ico)(?:\/|$)/;
const internals =
  /\b(?:SELECT|INSERT|UPDATE|DELETE|FROM|WHERE)\b|[Ss][Qq][Ll]ite|libsql|[Dd]rizzle|[Ee]lysia|valibot|node_modules|\.ts:\d|\bat \w+ \(/;

/** Returns every violation of the API contract in a response. */
function faultsOf(sent: Sent, response: RawResponse, meetsCarrierFault: boolean): string[] {
  const { status, headers, text } = response;
  const method = sent.method === 'HEAD' ? 'GET' : sent.method;
  const atPath = operationsAt(document, sent.target);
  const operation = atPath.find((each) => each.method === method);
  const hasManyParameters = sent.target.split('&').length > 64;
  const isRefused = operation?.isPrivate === true && sent.caller === undefined;
  const owner = status === 200 && sent.method !== 'HEAD' ? /^\{"user":\{"id":"([^"]+)/.exec(text)?.[1] : undefined;
  const rules: [isBroken: boolean, fault: string][] = [
    [!/^[\w-]{8,64}$/.test(headers.get('x-request-id') ?? ''), 'there is no request id'],
    [status >= 500 && !meetsCarrierFault, 'the service failed'],
    [hasManyParameters && ![400, 404].includes(status), 'a query of many parameters was read'],
    [isRefused && !hasManyParameters && status !== 401, 'a request without a valid token was not refused'],
    [!isRefused && operation !== undefined && status === 401, 'a valid token was refused'],
    [owner !== undefined && owner !== sent.caller?.id, 'the record of another user was returned'],
    [status === 405 && (headers.get('allow') ?? '').split(', ').includes(method), 'a method is refused and allowed'],
  ];
  if (operation === undefined) {
    const expected = atPath.length > 0 ? [405, ...(method === 'OPTIONS' ? [204] : [])] : [];
    const isPage = pages.test(pathAt(sent.target)) || (method === 'OPTIONS' && pathAt(sent.target) === '/');
    rules.push([atPath.length > 0 && !hasManyParameters && !expected.includes(status), 'a wrong method was accepted']);
    rules.push([atPath.length === 0 && status < 400 && !isPage, 'an unknown path was served']);
  }
  const sentText = sent.body && new TextDecoder().decode(sent.body);
  const exchange = { method: sent.method, sentText, status, headers, text };
  return [
    ...rules.flatMap(([isBroken, fault]) => (isBroken ? [`${status}: ${fault}`] : [])),
    ...(operation === undefined || hasManyParameters ? [] : mismatchesWith(operation, exchange)),
    ...(status >= 400 ? problemFaults(sent, response) : []),
  ];
}

/** An error response may contain only the path, in `instance`, and field names, in `pointer`. */
function problemFaults({ method, headers: sentHeaders }: Sent, { status, headers, text }: RawResponse): string[] {
  if (headers.get('content-type') !== 'application/problem+json') return ['the error is no problem'];
  if (headers.get('cache-control') !== 'no-store') return ['the error may be cached'];
  if (method === 'HEAD') return text === '' ? [] : ['there is a body for HEAD'];
  const { instance: _, requestId, errors = [], ...problem } = v.parse(Problem, JSON.parse(text));
  const sentId = sentHeaders.find(([name]) => name.toLowerCase() === 'x-request-id')?.[1];
  const values = [...headers.values()].filter((value) => value !== sentId);
  const withoutPointers = JSON.stringify([problem, errors.map(({ rule, message }) => [rule, message]), values]);
  const shown = `${withoutPointers}${JSON.stringify(errors)}`;
  const rules: [isBroken: boolean, fault: string][] = [
    [problem.status !== status || problem.http_code !== status, 'the problem has another status'],
    [requestId !== headers.get('x-request-id'), 'the problem has another request id'],
    [problem.type.endsWith('/invalid-input') && errors.length === 0, 'no field is named'],
    [shown.toLowerCase().includes(valueMark) || shown.includes(String(numberMark)), 'a sent value appears'],
    [withoutPointers.toLowerCase().includes(keyMark), 'a field name appears outside `pointer`'],
    [internals.test(withoutPointers), 'an internal detail appears'],
    [text.length > 40_000, 'the error response is too long'],
  ];
  return rules.flatMap(([isBroken, fault]) => (isBroken ? [fault] : []));
}

const runsPerRoute = amount({ long: 6_700, short: 60 });
const halfway = (runsPerRoute * document.operations.length) / 2;
let sentInAll = 0;
let megabytesHalfway = 0;
const residentMegabytes = async () => Number(await Bun.$`ps -o rss= -p ${service.process.pid}`.text()) / 1024;

/** Sends a request and returns its status. */
async function statusOf(sent: Sent, meetsCarrierFault = false): Promise<number> {
  const response = await client.send(sent);
  sentInAll += 1;
  if (isLong && sentInAll === halfway) megabytesHalfway = await residentMegabytes();
  if (response === undefined) throw new Error('The connection was closed without a response');
  const faults = faultsOf(sent, response, meetsCarrierFault);
  if (faults.length > 0) throw new Error(`${faults.join('; ')}\n${JSON.stringify(response).slice(0, 1_000)}`);
  return response.status;
}

/** Sends in parallel lanes: each save of a sequential run would wait for its own fsync. Returns the statuses. */
async function sendAll(requests: fc.Arbitrary<Sent>): Promise<Set<number>> {
  const statuses = new Set<number>();
  const lanes = amount({ long: 16, short: 4 });
  const property = fc.asyncProperty(requests, async (sent) => void statuses.add(await statusOf(sent)));
  const numRuns = Math.ceil(runsPerRoute / lanes);
  await Promise.all(Array.from({ length: lanes }, () => fc.assert(property, { numRuns })));
  return statuses;
}

for (const { id, token } of good) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const saved = await fetch(`${service.address}/v2/private/user/profile`, { method: 'POST', headers, body: '{}' });
  if (saved.status !== 200) throw new Error(`${id} has no record`);
}

describe('a generated request', () => {
  test.each(document.operations)(
    'gets a documented response that repeats no sent value: $name',
    async (operation) => {
      expect(await statusOf(documentedRequest(operation, manager))).toBe(200);
      const statuses = await sendAll(requestsTo(operation, tokens));
      const expected = [...(operation.isPrivate ? [401] : []), ...(operation.body === undefined ? [] : [422])];
      expect([...statuses]).toEqual(expect.arrayContaining(expected));
    },
    300_000,
  );

  test('gets a documented response that repeats no sent value: unknown paths and methods', async () => {
    expect(await sendAll(straysFrom(document, tokens))).toContain(404);
  }, 300_000);

  // The name Slow takes as long as the carrier timeout.
  const names = Object.keys(magicLastNames).filter((name) => isLong || name !== 'Slow');
  test.each(names)('gets a documented response that repeats no sent value: carrier failure %s', async (lastName) => {
    const headers = [['Host', 'fuzz.example'], bearer(manager.token), ['Content-Type', 'application/json']] as const;
    const body = new TextEncoder().encode(JSON.stringify({ ...applicant, lastName }));
    for (const target of ['/v2/private/ltc/totalCoverage', '/v2/private/life/totalCoverage']) {
      await statusOf({ method: 'POST', target, caller: manager, headers, body }, true);
    }
  });
});

test('a test run fails when a test receives an undocumented response', async () => {
  const folder = temporaryFolder();
  const program = `
    import { test } from 'bun:test';
    const service = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('{}', { status: 418 }) });
    test('undocumented', () => fetch(service.url + 'v2/private/user'));
    test('unobserved', () => fetch(service.url + 'v2/other'));
  `;
  await Bun.write(join(folder, 'wrong.test.ts'), program);
  const preload = join(import.meta.dirname, '../support/preload.ts');
  const command = [process.execPath, 'test', '--preload', preload, './wrong.test.ts'];
  const { exitCode, stderr } = await runToEnd(Bun.spawn(command, { cwd: folder, stdout: 'pipe', stderr: 'pipe' }));
  const outcomes = stderr.match(/^\((?:pass|fail)\) [a-z]+(?= \[)/gm);
  expect(outcomes?.slice(0, 2)).toEqual(['(fail) undocumented', '(pass) unobserved']);
  expect(stderr).toContain('GET /v2/private/user: 418 is not documented');
  expect(exitCode).toBe(1);
});

// Measured from the middle of the run, when every cache is warm.
afterAll(async () => {
  if (isLong) expect((await residentMegabytes()) - megabytesHalfway).toBeLessThan(32);
  expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
  const log = service.output().replaceAll(/"requestId":"[\w-]{8,64}"/g, '');
  for (const mark of [valueMark, keyMark, String(numberMark)]) expect(log.toLowerCase()).not.toContain(mark);
});
