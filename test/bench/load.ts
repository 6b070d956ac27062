import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { testToken } from '../support/app';
import { temporaryFolder } from '../support/resources';
import type { Server } from './servers';

/** The result of a comparison: one line of the table. */
export interface Figure {
  readonly name: string;
  readonly requestsPerSecond?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** CPU time of the server process for each request, user and system. */
  readonly cpuUs?: number;
  /** Responses other than 2xx, and requests without a response. */
  readonly errors?: number;
  /** The baseline measured in the same run. */
  readonly beside: string;
  /** The ratio to the baseline. */
  readonly value: number;
  readonly atLeast?: number;
  readonly atMost?: number;
}

export interface Settings {
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, because the JIT compiler needs thousands of requests. */
  readonly warmUp: number;
  readonly report: (name: string) => void;
}

export interface Request {
  readonly path: string;
  readonly method?: 'GET' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  /** Sent unchanged, except that `%d` becomes a counter, so that all bodies differ. */
  readonly body?: string;
  /** A file with one `authorization` header in each line. Each request has a random one. */
  readonly authorizations?: string;
}

export interface Measurement {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuUs: number;
  readonly errors: number;
}

export async function authorizationOf(id: string): Promise<string> {
  return `Bearer ${await testToken({ id, now: new Date() })}`;
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

/** The median of the ratios of two series that were measured alternately. */
export function ratioOf(values: readonly number[], others: readonly number[]): number {
  return median(values.map((value, round) => value / (others[round] ?? Number.NaN)));
}

/** Returns the CPU time of a process, of all its threads, in microseconds. Linux counts in steps of 10 ms. */
function cpuUsOf(pid: number): number {
  // The name of the program, in parentheses, may contain spaces.
  const [, fields = ''] = /\) (.*)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
  const [user, system] = fields.split(' ').slice(11, 13).map(Number);
  return ((user ?? 0) + (system ?? 0)) * 10_000;
}

/** Loads a server on loopback with wrk. */
export async function measure({ address, pid }: Server, request: Request, connections: number, seconds: number) {
  const script = join(temporaryFolder(), 'request.lua');
  await Bun.write(script, luaOf(request));
  const command = ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '10s', '-s', script, address];
  const cpuUsBefore = cpuUsOf(pid);
  const output = await new Response(Bun.spawn(command, { stdout: 'pipe', stderr: 'inherit' }).stdout).text();
  const line = /^RESULT (\S+) (\S+) (\S+) (\S+) (\S+)$/m.exec(output);
  if (line === null) throw new Error(`wrk printed no result:\n${output}`);
  const [sent = 0, durationUs = 0, p50Us = 0, p99Us = 0, errors = 0] = line.slice(1).map(Number);
  if (errors > sent / 100) throw new Error(`${errors} of ${sent} requests to ${request.path} failed`);
  const requestsPerSecond = sent / (durationUs / 1e6);
  const cpuUs = (cpuUsOf(pid) - cpuUsBefore) / sent;
  return { requestsPerSecond, p50Ms: p50Us / 1000, p99Ms: p99Us / 1000, cpuUs, errors } satisfies Measurement;
}

export async function rateOf(server: Server, request: Request, connections: number, seconds: number): Promise<number> {
  return (await measure(server, request, connections, seconds)).requestsPerSecond;
}

/** Measures each subject in each round, so that other load of the machine affects all of them. */
export async function alternate<Name extends string, Subject, Value = number>(
  subjects: Readonly<Record<Name, Subject>>,
  rounds: number,
  measureOne: (subject: Subject) => Promise<Value>,
  report: Settings['report'],
): Promise<Record<Name, Value[]>> {
  const entries = Object.entries<Subject>(subjects);
  const values: Record<string, Value[]> = Object.fromEntries(entries.map(([name]) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, subject] of entries) {
      report(`${name}, round ${round + 1} of ${rounds}`);
      values[name]?.push(await measureOne(subject));
    }
  }
  return values;
}

/** The figure of two series of rates. */
export function ratio(
  name: string,
  rates: readonly number[],
  other: string,
  others: readonly number[],
  atLeast?: number,
): Figure {
  const beside = `${other}, ${median(others).toFixed(0)}/s`;
  const figure = { name, requestsPerSecond: median(rates), beside, value: ratioOf(rates, others) };
  return { ...figure, ...(atLeast === undefined ? {} : { atLeast }) };
}

function luaOf({ path, method = 'GET', headers, body, authorizations }: Request): string {
  const text = JSON.stringify;
  const fields = Object.entries(headers).map(([name, value]) => `[${text(name)}]=${text(value)}`);
  const sent = body === undefined ? 'nil' : `(string.gsub(${text(body)}, "%%d", count))`;
  const file =
    authorizations === undefined ? '' : `for line in io.lines(${text(authorizations)}) do all[#all + 1] = line end`;
  return `
local count, all, headers = 0, {}, {${fields.join(',')}}
${file}
request = function()
  count = count + 1
  if #all > 0 then headers.authorization = all[math.random(#all)] end
  return wrk.format(${text(method)}, ${text(path)}, headers, ${sent})
end
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
`;
}
