import { join } from 'node:path';
import { temporaryFolder } from '../support/resources';

export interface Request {
  readonly path: string;
  readonly method?: 'GET' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  /** Sent unchanged, except that `%d` becomes a counter, so that all bodies differ. */
  readonly body?: string;
}

interface Load {
  readonly address: string;
  /** Sent alternately. */
  readonly requests: readonly Request[];
  readonly connections: number;
  readonly seconds: number;
}

export interface Measurement {
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Responses other than 2xx, and requests without a response. */
  readonly errors: number;
}

/** Loads a server on loopback with wrk. */
export async function measure({ address, requests, connections, seconds }: Load): Promise<Measurement> {
  const script = join(temporaryFolder(), 'request.lua');
  await Bun.write(script, luaOf(requests));
  const command = ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '10s', '-s', script, address];
  const wrk = Bun.spawn(command, { stdout: 'pipe', stderr: 'inherit' });
  const output = await new Response(wrk.stdout).text();
  const line = /^RESULT (\S+) (\S+) (\S+) (\S+) (\S+)$/m.exec(output);
  if (line === null) throw new Error(`wrk printed no result:\n${output}`);
  const [sent = 0, durationUs = 0, p50Us = 0, p99Us = 0, errors = 0] = line.slice(1).map(Number);
  return {
    requests: sent,
    requestsPerSecond: sent / (durationUs / 1e6),
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

function luaOf(requests: readonly Request[]): string {
  const text = JSON.stringify;
  const makers = requests.map(({ path, method = 'GET', headers, body }) => {
    const fields = Object.entries(headers).map(([name, value]) => `[${text(name)}]=${text(value)}`);
    const format = (sent: string) => `wrk.format(${text(method)}, ${text(path)}, {${fields.join(',')}}, ${sent})`;
    if (body?.includes('%d'))
      return `function(count) return ${format(`(string.gsub(${text(body)}, "%%d", count))`)} end`;
    return `same(${format(body === undefined ? 'nil' : text(body))})`;
  });
  // wrk knows the host only after its start.
  return `
local count, makers = 0, nil
local function same(request) return function() return request end end
request = function()
  makers = makers or {${makers.join(',\n')}}
  count = count + 1
  return makers[count % #makers + 1](count)
end
done = function(summary, latency)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
`;
}
