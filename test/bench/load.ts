import { join } from 'node:path';
import { testToken } from '../support/app';
import { temporaryFolder } from '../support/resources';

/** The result of a comparison: one line of the table. */
export interface Figure {
  readonly name: string;
  readonly requestsPerSecond?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
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
}

export interface Measurement {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
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

/** Loads a server on loopback with wrk. */
export async function measure(address: string, request: Request, connections: number, seconds: number) {
  const script = join(temporaryFolder(), 'request.lua');
  await Bun.write(script, luaOf(request));
  const command = ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '10s', '-s', script, address];
  const output = await new Response(Bun.spawn(command, { stdout: 'pipe', stderr: 'inherit' }).stdout).text();
  const line = /^RESULT (\S+) (\S+) (\S+) (\S+) (\S+)$/m.exec(output);
  if (line === null) throw new Error(`wrk printed no result:\n${output}`);
  const [sent = 0, durationUs = 0, p50Us = 0, p99Us = 0, errors = 0] = line.slice(1).map(Number);
  const requestsPerSecond = sent / (durationUs / 1e6);
  return { requestsPerSecond, p50Ms: p50Us / 1000, p99Ms: p99Us / 1000, errors } satisfies Measurement;
}

function luaOf({ path, method = 'GET', headers, body }: Request): string {
  const text = JSON.stringify;
  const fields = Object.entries(headers).map(([name, value]) => `[${text(name)}]=${text(value)}`);
  const sent = body === undefined ? 'nil' : `(string.gsub(${text(body)}, "%%d", count))`;
  return `
local count = 0
request = function()
  count = count + 1
  return wrk.format(${text(method)}, ${text(path)}, {${fields.join(',')}}, ${sent})
end
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
`;
}
