/** Whether a statement reads, writes, or is neither, such as a PRAGMA, and stands alone. */
export function kindOf(sql: string): 'read' | 'write' | 'other' {
  if (/^\s*select\b/i.test(sql)) return 'read';
  if (/^\s*with\b/i.test(sql)) return /\b(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'read';
  return /^\s*(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'other';
}
