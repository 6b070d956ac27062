const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or folder',
  EEXIST: 'it exists already; name a new file',
  EISDIR: 'it is a folder',
  EACCES: 'it may not be read or written',
  ENOSPC: 'the disk is full',
};

/** What the system refuses, by the file and the reason; undefined for any other error. */
export function systemSentence(error: unknown): string | undefined {
  if (!(error instanceof Error && 'code' in error && 'syscall' in error)) return undefined;
  const code = String(error.code);
  const file = 'path' in error ? `${error.path}: ` : '';
  return `${file}${reasons[code] ?? error.message} (${code}).`;
}
