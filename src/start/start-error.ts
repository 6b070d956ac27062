/** A start that cannot go on, for a reason that the operator can mend. */
export class StartError extends Error {
  override readonly name = 'StartError';
}

export function cannotListen(host: string, port: number, error: unknown): StartError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
  const remedy = code === 'EADDRINUSE' ? ' Another program does; set PORT to a free one.' : '';
  return new StartError(`The service cannot listen on ${host}:${port} (${code}).${remedy}`);
}
