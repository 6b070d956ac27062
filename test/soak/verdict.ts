import type { LoadFigures } from './load';
import type { Sample } from './sample';

export interface Soak {
  /** At equal intervals. */
  readonly samples: readonly Sample[];
  readonly minutes: readonly LoadFigures[];
  /** Unexpected responses, and error lines of the log. */
  readonly errors: number;
}

export interface Finding {
  readonly name: string;
  readonly rule: string;
  readonly middle: number;
  readonly last: number;
  readonly isGood: boolean;
}

/**
 * Compares the median of the last third with that of the middle third. The first third is warm-up: caches fill and the
 * runtime compiles. The margins allow for other work on a shared machine.
 */
export function judge({ samples, minutes, errors }: Soak): Finding[] {
  const compare = (name: string, values: readonly number[], factor: number, margin: number): Finding => {
    const third = Math.trunc(values.length / 3);
    const middle = median(values.slice(third, 2 * third));
    const last = median(values.slice(-third));
    const isGood = third > 0 && last <= middle * factor + margin;
    return { name, rule: `last ≤ middle × ${factor} + ${margin}`, middle, last, isGood };
  };
  return [
    compare(
      'memory, MB',
      samples.map(({ rssMb }) => rssMb),
      1.03,
      2,
    ),
    compare(
      'descriptors',
      samples.map(({ descriptors }) => descriptors),
      1,
      3,
    ),
    compare(
      'threads',
      samples.map(({ threads }) => threads),
      1,
      2,
    ),
    compare(
      'WAL, MB',
      samples.map(({ walMb }) => walMb),
      1.5,
      4,
    ),
    compare(
      'p50, ms',
      minutes.map(({ p50Ms }) => p50Ms),
      2,
      5,
    ),
    compare(
      'p99, ms',
      minutes.map(({ p99Ms }) => p99Ms),
      2,
      20,
    ),
    { name: 'errors', rule: 'none', middle: 0, last: errors, isGood: errors === 0 },
  ];
}

/** Memory growth in MB per hour after the first third: the median slope between all pairs of samples. */
export function growthMbAnHour(samples: readonly Sample[], everyMs: number): number {
  const settled = samples.slice(Math.trunc(samples.length / 3)).map(({ rssMb }) => rssMb);
  const slopes = settled.flatMap((from, first) =>
    settled.slice(first + 1).map((to, distance) => (to - from) / ((distance + 1) * everyMs)),
  );
  return median(slopes) * 3_600_000;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}
