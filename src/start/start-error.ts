/** A start that cannot go on, for a reason that the operator can mend. */
export class StartError extends Error {
  override readonly name = 'StartError';
}

/** The code of a failure of the operating system. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
}
