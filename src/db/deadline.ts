import { DatabaseError } from './errors';

/** What `work` comes to, or DatabaseError `DEADLINE_EXCEEDED` once it has taken too long; it goes on unheard then. */
export async function beforeDeadline<Result>(work: Promise<Result>, timeoutMs: number): Promise<Result> {
  let timer: Timer | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new DatabaseError('DEADLINE_EXCEEDED', true)), timeoutMs);
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Waits for the end of something, good or bad.
 *
 * @throws DatabaseError `DEADLINE_EXCEEDED` once it has taken too long
 */
export async function endOf(work: Promise<unknown>, timeoutMs: number): Promise<void> {
  await beforeDeadline(
    work.catch(() => undefined),
    timeoutMs,
  );
}
