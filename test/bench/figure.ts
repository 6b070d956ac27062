/** The result of a comparison: one line of the table. */
export interface Figure {
  readonly name: string;
  readonly requestsPerSecond?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** Responses other than 2xx, and requests without a response. */
  readonly errors?: number;
  /** The baseline measured in the same run. */
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
