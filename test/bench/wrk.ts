import { join } from 'node:path';
import { temporaryFolder } from '../support/database';

export interface Request {
  readonly url: string;
  readonly method?: 'GET' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  /** Sent as it is; `%d` becomes a number that counts up, so that no two are the same. */
  readonly body?: string;
}

export interface Measurement {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers other than 2xx, and requests that got none. */
  readonly errors: number;
}

/** Loads a server on loopback with wrk for some seconds. */
export async function measure(request: Request, connections: number, seconds: number): Promise<Measurement> {
  const script = join(temporaryFolder(), 'request.lua');
  await Bun.write(script, luaOf(request));
  const command = ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '10s', '-s', script, request.url];
  const wrk = Bun.spawn(command, { stdout: 'pipe', stderr: 'inherit' });
  const output = await new Response(wrk.stdout).text();
  const line = /^RESULT (\S+) (\S+) (\S+) (\S+) (\S+)$/m.exec(output);
  if (line === null) throw new Error(`wrk printed no result:\n${output}`);
  const [requests = 0, durationUs = 0, p50Us = 0, p99Us = 0, errors = 0] = line.slice(1).map(Number);
  return {
    requestsPerSecond: requests / (durationUs / 1e6),
    p50Ms: p50Us / 1000,
    p99Ms: p99Us / 1000,
    errors,
  };
}

/** @throws when there is no wrk */
export function requireWrk(): void {
  if (Bun.which('wrk') === null) {
    throw new Error('wrk is needed to load a server: `apt-get install wrk`, or `brew install wrk`.');
  }
}

function luaOf({ method = 'GET', headers, body }: Request): string {
  const fields = Object.entries(headers).map(([name, value]) => `[${JSON.stringify(name)}]=${JSON.stringify(value)}`);
  return `
local count = 0
local headers = {${fields.join(',')}}
request = function()
  count = count + 1
  return wrk.format(${JSON.stringify(method)}, nil, headers, ${
    body === undefined ? 'nil' : `(string.gsub(${JSON.stringify(body)}, "%%d", count))`
  })
end
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
`;
}
