/** Waits for something that comes to pass by itself, for as long as a busy machine may take. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadlineMs = performance.now() + 25_000; !(await isSo()); await Bun.sleep(20)) {
    if (performance.now() > deadlineMs) throw new Error('It did not come to pass');
  }
}

/** For a list that is known to have one. */
export function never(): never {
  throw new Error('There is none');
}
