import { readdirSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { applicant } from './app';

/** A raw request, which may be invalid HTTP. Text is sent as Latin-1, so `\x80` is one byte. */
export interface RawRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: Uint8Array | undefined;
}

export interface RawResponse {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
}

/** The response deadline, generous for a busy machine. */
const deadlineMs = 20_000;

/** Sends requests over a pool of keep-alive connections. */
export function createRawClient(port: number) {
  const idle: RawConnection[] = [];
  return {
    /** Undefined when the connection was closed without a response. */
    async send(request: RawRequest): Promise<RawResponse | undefined> {
      const connection = idle.pop() ?? new RawConnection(port);
      const response = await connection.send(toBytes(request), request.method === 'HEAD');
      if (connection.isOpen) idle.push(connection);
      return response;
    },
    close(): void {
      for (const connection of idle.splice(0)) connection.close();
    },
  };
}

function toBytes({ method, target, headers, body }: RawRequest): Buffer {
  const lines = [`${method} ${target} HTTP/1.1`, ...headers.map(([name, value]) => `${name}: ${value}`)];
  const length = body === undefined ? [] : [`Content-Length: ${body.byteLength}`];
  return Buffer.concat([
    Buffer.from(`${[...lines, ...length].join('\r\n')}\r\n\r\n`, 'latin1'),
    body ?? new Uint8Array(),
  ]);
}

class RawConnection {
  isOpen = true;
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #onChange: () => void = () => undefined;

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#onChange();
    });
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => {
      this.isOpen = false;
      this.#onChange();
    });
  }

  send(bytes: Uint8Array, isHead: boolean): Promise<RawResponse | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<RawResponse | undefined>();
    const timer = setTimeout(() => {
      this.close();
      reject(
        new Error(`No response in ${deadlineMs} ms; received: ${this.#received.toString('latin1').slice(0, 500)}`),
      );
    }, deadlineMs);
    this.#onChange = () => {
      const read = parseResponse(this.#received, isHead);
      if (read === undefined && this.isOpen) return;
      clearTimeout(timer);
      this.#onChange = () => undefined;
      this.#received = this.#received.subarray(read?.end ?? this.#received.length);
      if (read?.response.headers.get('connection')?.toLowerCase() === 'close') this.close();
      resolve(read?.response);
    };
    this.#socket.write(bytes);
    return promise;
  }

  close(): void {
    this.isOpen = false;
    this.#socket.destroy();
  }
}

/** The first response in `bytes` and its end, or undefined while it is incomplete. */
function parseResponse(bytes: Buffer, isHead: boolean): { response: RawResponse; end: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(statusLine)?.[1]);
  const headers = new Map(
    lines.map((line) => [line.replace(/:.*$/s, '').toLowerCase(), line.replace(/^[^:]*: ?/, '')]),
  );
  const start = headEnd + 4;
  const hasBody = !isHead && status !== 204 && status !== 304;
  const length = hasBody ? Number(headers.get('content-length') ?? 0) : 0;
  if (bytes.length < start + length) return undefined;
  return {
    response: { status, headers, text: bytes.subarray(start, start + length).toString('utf8') },
    end: start + length,
  };
}

/**
 * A TCP connection for raw bytes. `received` is the first part of the response; `exchange` returns everything received
 * until the connection is closed.
 */
export async function connectRaw(port: number) {
  let received = '';
  const first = Promise.withResolvers<string>();
  const closed = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port,
    socket: {
      data: (_, chunk) => {
        received += chunk.toString();
        first.resolve(received);
      },
      close: () => closed.resolve(),
      error: () => closed.resolve(),
    },
  });
  return {
    socket,
    received: first.promise,
    async exchange(request: string): Promise<string> {
      socket.write(request);
      await closed.promise;
      return received;
    },
  };
}

/** A non-loopback IPv4 address of this machine, if any. */
export const lanAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;

/** CPU time of all threads of a process in microseconds; Linux only. */
function processorMicros(pid: number): number {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).reduce((sum, thread) => {
    const [nanoseconds] = readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ');
    return sum + Number(nanoseconds) / 1000;
  }, 0);
}

/** Sends a request on a new connection, closes it after the response and returns the status, or NaN without a response. */
export async function statusOf(port: number, bytes: Buffer): Promise<number> {
  const connection = new RawConnection(port);
  const response = await connection.send(bytes, bytes.subarray(0, 5).toString() === 'HEAD ');
  connection.close();
  return response?.status ?? Number.NaN;
}

/** The minimum CPU time of a request over `rounds` measurements, because other load only adds to it. */
export async function costMicros(
  { pid, port }: { readonly pid: number; readonly port: number },
  bytes: Buffer,
  { rounds, requests }: { readonly rounds: number; readonly requests: number },
): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  await statusOf(port, bytes);
  for (let round = 0; round < rounds; round += 1) {
    const before = processorMicros(pid);
    for (let sent = 0; sent < requests; sent += 1) await statusOf(port, bytes);
    least = Math.min(least, (processorMicros(pid) - before) / requests);
  }
  return least;
}

/** The bytes of one request. */
export interface SentRequest {
  readonly name: string;
  readonly bytes: Buffer;
}

const headBytes = 15_500;
const bodyBytes = 260_000;
const profile = '/v2/private/user/profile';

function request(authorization: string | undefined, method: string, target: string, headers: readonly string[] = []) {
  const token = authorization === undefined ? [] : [`Authorization: ${authorization}`];
  return [`${method} ${target} HTTP/1.1`, 'Host: localhost', ...token, ...headers, '', ''].join('\r\n');
}

function save(authorization: string, target: string, body: string | Buffer, headers: readonly string[] = []): Buffer {
  const length = `Content-Length: ${Buffer.byteLength(body)}`;
  const isTyped = headers.some((header) => header.startsWith('Content-Type:'));
  const type = isTyped ? [] : ['Content-Type: application/json'];
  const head = request(authorization, 'POST', target, [...type, ...headers, length]);
  return Buffer.concat([Buffer.from(head), Buffer.from(body)]);
}

function chunked(authorization: string, size: number, sent: string): Buffer {
  const chunks = `${size.toString(16)}\r\n${sent}\r\n`.repeat(Math.floor((bodyBytes - 10) / size));
  const headers = ['Content-Type: application/json', 'Transfer-Encoding: chunked'];
  return Buffer.from(`${request(authorization, 'POST', profile, headers)}2\r\n{}\r\n${chunks}0\r\n\r\n`);
}

/** Repeats `unit` up to `bytes`, by default the size of a request head. */
function fill(unit: string, bytes = headBytes): string {
  return unit.repeat(Math.floor(bytes / Buffer.byteLength(unit)));
}

function numbered(unit: (index: number) => string, bytes: number): string[] {
  const units: string[] = [];
  for (let length = 0; length < bytes; length += (units.at(-1)?.length ?? 0) + 1) units.push(unit(units.length));
  return units.slice(0, -1);
}

function nested(open: string, close: string, bytes = bodyBytes - 20): string {
  const depth = Math.floor(bytes / (open.length + close.length));
  return open.repeat(depth) + close.repeat(depth);
}

/** Lists and titles of maximum length in four-byte letters. */
function mostAnswers(): string {
  const items = Array.from({ length: 100 }, (_, id) => ({
    id,
    title: `${id} ${'\u{1F33B}'.repeat(98)}`.slice(0, 199),
  }));
  return JSON.stringify({ selections: items, customSelections: items.map(({ title }) => ({ title })) });
}

/** Ordinary requests of usual and maximum size, as a baseline. */
export function plainRequests(authorization: string) {
  const of = (name: string, head: string) => ({ name, bytes: Buffer.from(head) });
  return {
    head: of('a request without a token', request(undefined, 'GET', '/v2/private/user')),
    longHead: of('a long header', request(undefined, 'GET', '/v2/private/user', [`X-Long: ${fill('a')}`])),
    read: of('a read', request(authorization, 'GET', '/v2/private/user')),
    save: { name: 'a save', bytes: save(authorization, profile, '{"firstName":"Ada"}') },
    longBody: {
      name: 'a long body',
      bytes: save(authorization, profile, `{"firstName":"${'a'.repeat(bodyBytes)}"}`),
    },
  } as const satisfies Record<string, SentRequest>;
}

/** Expensive requests that need no token. */
export function anonymousRequests(): readonly SentRequest[] {
  const get = (name: string, target: string, headers: readonly string[] = [], method = 'GET') => ({
    name,
    bytes: Buffer.from(request(undefined, method, target, headers), 'latin1'),
  });
  const user = '/v2/private/user';
  const preflight = ['Origin: http://localhost:5173', 'Access-Control-Request-Method: POST'];
  const requested = 'Access-Control-Request-Headers';
  const descending = (index: number) => String(4_000_000 - index * 977);
  const critical = `{"alg":"HS256","b64":true,"crit":[${fill('"b64",', 10_400)}"b64"]}`;
  const manyKeys = `{${numbered((index) => `"${index}":1`, 10_500).join()}}`;
  const token = (header: string, payload = 'e30') =>
    `Authorization: Bearer ${Buffer.from(header).toString('base64url')}.${payload}.AAAA`;
  return [
    get('a parameter 7,700 times', `${user}?${fill('a&')}`),
    get('a parameter 7,700 times, no such path', `/nowhere?${fill('a&')}`),
    get('a parameter 7,700 times, health', `/health/live?${fill('a&')}`),
    get('3,000 parameters', `${user}?${numbered((index) => `${index.toString(36)}=`, headBytes).join('&')}`),
    get('15,000 separators', `${user}?${fill('&')}`),
    get('one parameter of percent signs', `${user}?a=${fill('%')}`),
    get('one parameter of escapes', `${user}?a=${fill('%C3%A9')}`),
    get('integer-like parameters', `${user}?${numbered(descending, headBytes).join('&')}`),
    get('a path of 7,700 segments', fill('/a')),
    get('a path of 15,000 slashes', fill('/')),
    get('a private path of 7,700 segments', `/v2/private${fill('/a')}`),
    get('a path of dot segments', `${fill('/..')}/v2/private/user`),
    get('a path of encoded dot segments', `${fill('/%2e%2e')}/v2/private/user`),
    get('a path of percent signs', `/${fill('%')}`),
    get('a path of escapes', `/icons/${fill('%C3%A9')}`),
    get('a path of backslashes', `/${fill('\\')}`),
    get('a long slug', `/problems/${fill('a')}`),
    get('a preflight request for 3,000 headers', user, [...preflight, `${requested}: ${fill('a-b,')}a`], 'OPTIONS'),
    get('a long origin', user, [`Origin: http://${fill('a.')}`]),
    get('a long host', user, [`X-Forwarded-Host: ${fill('a.')}`]),
    get('3,800 cookies', user, [`Cookie: ${fill('a=b;')}`]),
    get('190 headers', user, numbered((index) => `X-${index}: a`, headBytes).slice(0, 190)),
    get('190 cookies', user, numbered((index) => `Cookie: a${index}=b`, headBytes).slice(0, 190)),
    get('an X-Forwarded-For of 7,700 hops', user, [`X-Forwarded-For: ${fill('1,')}1`]),
    get('an Accept of 3,000 types', '/swagger', [`Accept: ${fill('a/b,')}*/*`]),
    get('an Accept-Encoding of 5,000', '/swagger/json', [`Accept-Encoding: ${fill('gz,')}gzip`]),
    get('an Accept-Encoding of spaces', '/swagger/json', [`Accept-Encoding: gzip${fill(' ')};q=0x`]),
    get('a token of 15 KB', user, [`Authorization: Bearer ${fill('a')}`]),
    get('a token of dots', user, [`Authorization: Bearer ${fill('.')}`]),
    get('a token behind spaces', user, [`Authorization: Bearer${fill(' ')}\x80`]),
    get('a token with a nested header', user, [token(nested('[', ']', 10_000))]),
    get('a token with a header of many keys', user, [token(manyKeys)]),
    get('a token with 3,000 critical names', user, [token(critical)]),
    get('a token with a signed payload of 10 KB', user, [token('{"alg":"HS256"}', fill('e30', 14_000))]),
    get('a long traceparent', user, [`traceparent: 00-${fill('a-')}`]),
    get('a baggage of 3,000', user, [`baggage: ${fill('a=b,')}a=b`]),
    get('a long request id', user, [`X-Request-Id: ${fill('a')}`]),
    get('an If-None-Match of 3,800 tags', '/v2/private/healthAndCare', [`If-None-Match: ${fill('"a",')}"b"`]),
    ...['Accept', 'Accept-Encoding', 'If-Match', 'If-None-Match', 'Origin', 'Traceparent', 'X-Forwarded-For'].map(
      (name) => get(`spaces in the header ${name}`, '/swagger/json', [`${name}: "a",${fill(' ')}x`]),
    ),
    get('a page of problems', '/problems'),
    get('a page of a problem', '/problems/invalid-input'),
    get('the documentation', '/swagger'),
    get('the OpenAPI document', '/swagger/json'),
    get('the OpenAPI document, compressed', '/swagger/json', ['Accept-Encoding: gzip']),
    get('an icon', '/icons/term-life.svg'),
    get('the readiness', '/health/ready'),
    { name: 'chunks of one byte without a token', bytes: chunked('Bearer x', 1, ' ') },
    get('an unknown method', user, [], 'PROPFIND'),
    get('a HEAD', '/v2/private/user', [], 'HEAD'),
  ];
}

/** Expensive requests that need a valid token. */
export function authenticatedRequests(authorization: string): readonly SentRequest[] {
  const body = (name: string, text: string, target = profile, headers: readonly string[] = []) => ({
    name,
    bytes: save(authorization, target, text, headers),
  });
  const members = (key: (index: number) => string, bytes = bodyBytes - 40) =>
    numbered((index) => `"${key(index)}":1`, bytes).join();
  const farApart = (index: number) => String(4_000_000_000 - index * 77_777);
  const get = (name: string, target: string, headers: readonly string[] = []) => ({
    name,
    bytes: Buffer.from(request(authorization, 'GET', target, headers)),
  });
  const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
  const coverage = '/v2/private/ltc/totalCoverage';
  const preview = '/v2/private/engine/preview';
  const item = '{"id":1,"title":"a"}';
  const tags = fill('"a",');
  return [
    body('lists in lists', `{"firstName":${nested('[', ']')}}`),
    body('objects in objects', `{"firstName":${nested('{"a":', '}').replace(':}', ':1}')}}`),
    body('lists in lists, unclosed', '['.repeat(bodyBytes)),
    body('lists of 16, side by side', `[${fill(`${'['.repeat(16)}${']'.repeat(16)},`, bodyBytes - 50)}1]`),
    body('integer keys', `{${members((index) => `${index}`)}}`),
    body('integer keys, downwards', `{${members((index) => `${99_000 - index}`)}}`),
    body('integer keys, far apart', `{${members(farApart)}}`),
    body('integer keys in items', `{"selections":[{${members((index) => `${index}`)}}]}`, lifeInsurance),
    body('integer keys, 200 an object', `[${fill(`{${members(farApart, 2_980)}},`, bodyBytes - 50)}1]`),
    body('lists in lists, 300 side by side', `[${fill(`${'['.repeat(31)}${']'.repeat(31)},`, 19_000)}1]`),
    body('distinct keys', `{${members((index) => `k${index}`)}}`),
    body('distinct keys in items', `{"selections":[{${members((index) => `k${index}`)}}]}`, lifeInsurance),
    body('one key many times', `{${fill('"firstName":1,', bodyBytes - 20)}"a":1}`),
    body('__proto__ many times', `{${fill('"__proto__":{},', bodyBytes - 20)}"a":1}`),
    body('numbers of many digits', `{"heightCm":${'9'.repeat(bodyBytes - 20)}}`),
    body('a fraction of many digits', `{"heightCm":0.${'1'.repeat(bodyBytes - 20)}}`),
    body('many numbers with exponents', `{"heightCm":[${fill('1e308,', bodyBytes - 30)}1]}`),
    body('many numbers out of range', `{"heightCm":[${fill('1e999,', bodyBytes - 30)}1]}`),
    body('many fractions', `{"heightCm":[${fill('0.1234567890123456789,', bodyBytes - 30)}1]}`),
    body('a text of escapes', `{"firstName":"${fill('\\u0041', bodyBytes - 30)}"}`),
    body('a text of surrogates', `{"firstName":"${fill('\\ud83d\\ude00', bodyBytes - 30)}"}`),
    body('a text of combining accents', `{"firstName":"a${fill('\u0315\u0300', bodyBytes - 30)}"}`),
    body('an e-mail of dots', `{"email":"${fill('a.', bodyBytes - 30)}"}`),
    body('a date of digits', `{"dateOfBirth":"${fill('1', bodyBytes - 30)}"}`),
    body('many lists', `{"insuranceCover":[${fill('[],', bodyBytes - 30)}1]}`, '/v2/private/ltc/lifetimeCare'),
    body('many objects', `{"selections":[${fill('{},', bodyBytes - 30)}1]}`, lifeInsurance),
    body('1,000 invalid items', `{"selections":[${fill('{"id":"a","title":1,"x":1},', 25_000)}{}]}`, lifeInsurance),
    body('many lists of 1,000', `{${numbered((index) => `"k${index}":[${fill('1,', 1_990)}1]`, bodyBytes - 2_500)}}`),
    body('a body of spaces', `{}${' '.repeat(bodyBytes - 4)}`),
    body('a body that is not UTF-8', `{"firstName":"${fill('\xff', bodyBytes / 2 - 30)}"}`),
    body('a preview with an item many times', `{"selections":[${fill(`${item},`, 20_000)}${item}]}`, preview),
    body('an application with a key many times', `{${fill('"firstName":1,', bodyBytes - 20)}"a":1}`, coverage),
    { name: 'chunks of one byte', bytes: chunked(authorization, 1, ' ') },
    { name: 'chunks of 16 bytes', bytes: chunked(authorization, 16, ' '.repeat(16)) },
    body('an If-Match of 3,800 tags', '{"firstName":"Ada"}', profile, [`If-Match: ${tags}"b"`]),
    body('a long Idempotency-Key', JSON.stringify(applicant), coverage, [`Idempotency-Key: ${fill('a')}`]),
    body('a Content-Type of parameters', '{}', profile, [`Content-Type: application/json${fill(';a=b')}`]),
    body('a Content-Type of quotes', '{}', profile, [`Content-Type: application/json;a="${fill('\\"')}`]),
    get('an If-None-Match of 3,800 tags, read', '/v2/private/user', [`If-None-Match: ${tags}"b"`]),
    get('an If-None-Match of spaces, read', '/v2/private/user', [`If-None-Match: "a",${fill(' ')}x`]),
    get('an If-Match of commas, read', '/v2/private/user', [`If-Match: ${fill(',')}x`]),
    get('the largest page of cemeteries', '/v2/private/cemetery/all?limit=1000'),
    get('the last page of cemeteries', '/v2/private/cemetery/all?limit=1000&page=999999999999999'),
    body('the most answers that a section takes', mostAnswers(), '/v2/private/deepDives/lifetimeCare'),
    get('the largest page of applications', '/v2/private/user/applications?limit=100'),
    body('matches', '{}', '/v2/private/engine/matches'),
  ];
}
