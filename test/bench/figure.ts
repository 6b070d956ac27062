/** What a comparison found, as one line of the table. */
export interface Figure {
  readonly name: string;
  readonly requestsPerSecond?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** Answers other than 2xx, and requests that got none. */
  readonly errors?: number;
  /** What it was measured beside, in the same run. */
  readonly beside?: string;
  readonly value: number;
  readonly unit: '×' | 'µs' | 'ms' | 'MB' | '/s';
  readonly atLeast?: number;
  readonly atMost?: number;
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

export function hasReached({ value, atLeast = Number.NEGATIVE_INFINITY, atMost = Number.POSITIVE_INFINITY }: Figure) {
  return value >= atLeast && value <= atMost;
}
