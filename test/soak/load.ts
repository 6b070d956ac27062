import { journeyOf, type Step, tokensOf } from './journey';

export interface LoadFigures {
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface Load {
  /** Returns the figures since the last call. */
  take(): LoadFigures;
  /** Counts of unexpected outcomes by description. */
  readonly errors: ReadonlyMap<string, number>;
  /** Waits for the requests in flight. */
  stop(): Promise<void>;
}

/** Visits of one user sometimes overlap, and the load does not saturate two cores. */
const people = 400;
const concurrentUsers = 12;
const pauseMs = 15;
const timeoutMs = 20_000;

/** Runs `concurrentUsers` journeys at a time, with a pause after each request. */
export async function startLoad(address: string): Promise<Load> {
  const tokens = await tokensOf(people);
  const errors = new Map<string, number>();
  let timesMs: number[] = [];
  let isStopping = false;

  const send = async (step: Step, token: string): Promise<void> => {
    const { name, method, path, headers, body, expected } = step;
    const startedAtMs = performance.now();
    let outcome: string | undefined;
    try {
      const response = await fetch(`${address}${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, ...headers },
        ...(body === undefined ? {} : { body }),
        signal: AbortSignal.timeout(timeoutMs),
      });
      const text = await response.text();
      if (!expected.includes(response.status))
        outcome = `${response.status} ${/"type":"([^"]+)"/.exec(text)?.[1] ?? ''}`;
    } catch (error) {
      outcome = error instanceof Error ? error.name : 'unknown';
    }
    timesMs.push(performance.now() - startedAtMs);
    if (outcome !== undefined) errors.set(`${name}: ${outcome}`, (errors.get(`${name}: ${outcome}`) ?? 0) + 1);
  };
  const visit = async () => {
    while (!isStopping) {
      const person = Math.trunc(Math.random() * people);
      for (const step of journeyOf(person)) {
        const token = step.name === 'glance' ? tokens.manager : (tokens.person[person] ?? '');
        await send(step, token);
        if (isStopping) return;
        await Bun.sleep(Math.random() * 2 * pauseMs);
      }
    }
  };
  const visits = Array.from({ length: concurrentUsers }, visit);

  return {
    take() {
      const sorted = timesMs.toSorted((a, b) => a - b);
      timesMs = [];
      const at = (share: number) => sorted[Math.trunc(sorted.length * share)] ?? Number.NaN;
      return { requests: sorted.length, p50Ms: at(0.5), p99Ms: at(0.99) };
    },
    errors,
    async stop() {
      isStopping = true;
      await Promise.all(visits);
    },
  };
}
