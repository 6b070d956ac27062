import * as v from 'valibot';
import { Problem } from '../../src/http/problem-response';
import { problemKinds } from '../../src/shared/problems';
import {
  type DocumentedOperation,
  mismatchesWith,
  operationsAt,
  pathAt,
  type ServiceDocument,
} from '../support/conformance';
import type { RawRequest, RawResponse } from '../support/http';

/** Part of every generated value; no error response may contain it, in any case. */
export const valueMark = 'zqvalue';
export const numberMark = 73_918_465_012;
/** Part of the name of every unknown field; an error response may contain it only as a field name. */
export const keyMark = 'zqkey';

/** A request with its expected authentication. */
export interface Sent extends RawRequest {
  /** The user of its token; undefined when the token must be refused. */
  readonly caller: { readonly id: string; readonly isManager: boolean } | undefined;
  /** The name of the applicant makes the sandbox carrier fail. */
  readonly meetsCarrierFault?: boolean;
}

/** A query with more parameters is refused before any other check. */
const maxParameters = 64;
/** Served outside the API document. */
const pages = /^\/(?:swagger|icons|problems|favicon\.ico)(?:\/|$)/;
const ourWords =
  /\b(?:SELECT|INSERT|UPDATE|DELETE|FROM|WHERE)\b|[Ss][Qq][Ll]ite|libsql|[Dd]rizzle|[Ee]lysia|valibot|node_modules|\.ts:\d|\bat \w+ \(/;

/** Returns every violation of the API contract in a response. */
export function faultsOf(document: ServiceDocument, sent: Sent, response: RawResponse | undefined): string[] {
  if (response === undefined) return ['the connection was closed without a response'];
  const faults: string[] = [];
  const expect = (isSo: boolean, fault: string) => void (isSo || faults.push(fault));
  const { status, headers, text } = response;
  const requestId = headers.get('x-request-id') ?? '';

  expect(/^[\w-]{8,64}$/.test(requestId), 'there is no request id');
  expect(status < 500 || sent.meetsCarrierFault === true, `the service failed: ${status}`);
  if (status >= 400) faults.push(...leaksOf(sent, response), ...problemFaults(sent, response, requestId));

  if (sent.target.replace(/^[^?]*/, '').split('&').length > maxParameters) {
    expect([400, 404].includes(status), `a query of many parameters returned ${status}`);
    return faults;
  }
  const atPath = operationsAt(document, sent.target);
  const method = sent.method === 'HEAD' ? 'GET' : sent.method;
  const operation = atPath.find((each) => each.method === method);
  if (operation === undefined) {
    const isMethodWrong = atPath.length > 0;
    if (isMethodWrong) expect(status === 405 || (method === 'OPTIONS' && status === 204), `not 405 but ${status}`);
    else if (method === 'OPTIONS' && pathAt(sent.target) === '/') expect(status === 204, `a probe got ${status}`);
    else expect(status >= 400 || pages.test(pathAt(sent.target)), `an unknown path returned ${status}`);
    if (status === 405) expect(!allowed(headers).includes(method), `${method} is refused and allowed at once`);
    return faults;
  }
  if (operation.isPrivate && sent.caller === undefined)
    expect([401, 429].includes(status), `a request without a valid token got ${status}`);
  else expect(status !== 401, 'a valid token was refused');
  const sentText = sent.body && new TextDecoder().decode(sent.body);
  faults.push(...mismatchesWith(operation, { method: sent.method, sentText, status, headers, text }));
  if (status === 200 && text !== '') faults.push(...ownershipFaults(operation, sent, JSON.parse(text)));
  return faults;
}

function allowed(headers: ReadonlyMap<string, string>): string[] {
  return (headers.get('allow') ?? '').split(', ');
}

/** An error response may contain only the path, in `instance`, and field names, in `pointer`. */
function leaksOf(sent: Sent, { text, headers }: RawResponse): string[] {
  const { instance: _, requestId: __, ...problem } = parseRecord(text);
  const errors = Array.isArray(problem.errors) ? problem.errors.map((error) => ({ ...error, pointer: '' })) : [];
  const values = [...headers.values()].filter((value) => value !== sentRequestId(sent));
  const shown = JSON.stringify([problem, values]);
  const withoutPointers = JSON.stringify([{ ...problem, errors }, values]);
  return [
    ...(shown.toLowerCase().includes(valueMark) ? ['a sent value appears'] : []),
    ...(shown.includes(String(numberMark)) ? ['a sent number appears'] : []),
    ...(withoutPointers.toLowerCase().includes(keyMark) ? ['a field name appears outside `pointer`'] : []),
    ...(ourWords.test(withoutPointers) ? ['an internal detail appears'] : []),
    ...(text.length > 40_000 ? ['the error response is too long'] : []),
  ];
}

function sentRequestId({ headers }: Sent): string | undefined {
  return headers.find(([name]) => name.toLowerCase() === 'x-request-id')?.[1];
}

function problemFaults(sent: Sent, { status, headers, text }: RawResponse, requestId: string): string[] {
  const isProblem = headers.get('content-type') === 'application/problem+json';
  if (!isProblem) return ['an error response without a problem'];
  if (sent.method === 'HEAD') return text === '' ? [] : ['a body for HEAD'];
  const parsed = v.safeParse(Problem, parseRecord(text));
  if (!parsed.success) return ['the problem is not well formed'];
  const problem = parsed.output;
  const kind = Object.entries(problemKinds).find(([slug]) => problem.type === `/problems/${slug}`)?.[1];
  const is = [problem.status, problem.http_code, problem.code, problem.title, problem.requestId];
  const shouldBe = [status, status, kind?.code, kind?.title, requestId];
  const needed = { 401: 'www-authenticate', 405: 'allow', 409: 'retry-after', 429: 'retry-after', 503: 'retry-after' };
  const missing = Object.entries(needed).filter(([each, name]) => status === Number(each) && !headers.has(name));
  return [
    ...(JSON.stringify(is) === JSON.stringify(shouldBe) ? [] : [`the problem contradicts itself: ${is} ${shouldBe}`]),
    ...missing.map(([, name]) => `${name} is missing`),
    ...(status === 422 && problem.type.endsWith('invalid-input') && !problem.errors?.length
      ? ['no field is named']
      : []),
    ...(headers.get('cache-control') === 'no-store' ? [] : ['an error response may be cached']),
  ];
}

/** Checks that a response contains only the record of the token’s user. */
function ownershipFaults({ isPrivate }: DocumentedOperation, { caller }: Sent, body: unknown): string[] {
  const user = v.safeParse(v.object({ user: v.object({ id: v.string() }) }), body);
  if (!isPrivate || !user.success) return [];
  return user.output.user.id === caller?.id ? [] : [`the record of ${user.output.user.id} was returned`];
}

function parseRecord(text: string): Record<string, unknown> {
  try {
    return v.parse(v.record(v.string(), v.unknown()), JSON.parse(text));
  } catch {
    return {};
  }
}
