/** Polls until a condition is true; the deadline is generous for a busy machine. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadlineMs = performance.now() + 25_000; !(await isSo()); await Bun.sleep(20)) {
    if (performance.now() > deadlineMs) throw new Error('The condition did not become true in time');
  }
}

/** The fallback for a value that must exist. */
export function never(): never {
  throw new Error('The value is missing');
}
