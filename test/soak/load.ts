import { journeyOf, type Step, tokensOf } from './journey';

export interface LoadFigures {
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface Load {
  /** What was measured since it was asked last. */
  take(): LoadFigures;
  /** Answers that were not as expected, by what they were, and how often. */
  readonly errors: ReadonlyMap<string, number>;
  /** Lets the journeys that are under way end. */
  stop(): Promise<void>;
}

/** So that one person's visits overlap now and then, and two cores are not all that is measured. */
const people = 400;
const visitors = 12;
const pauseMs = 15;
const timeoutMs = 20_000;

/** Sends people on their journeys, as many at a time as `visitors`, with a pause after each request. */
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
      const answer = await fetch(`${address}${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, ...headers },
        ...(body === undefined ? {} : { body }),
        signal: AbortSignal.timeout(timeoutMs),
      });
      const text = await answer.text();
      if (!expected.includes(answer.status)) outcome = `${answer.status} ${/"type":"([^"]+)"/.exec(text)?.[1] ?? ''}`;
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
  const visits = Array.from({ length: visitors }, visit);

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
