import type { InArgs, InStatement } from '@libsql/client';

/** Whether a statement reads, writes, or is neither, such as a PRAGMA, and stands alone. */
export function kindOf(statement: InStatement): 'read' | 'write' | 'other' {
  const sql = typeof statement === 'string' ? statement : statement.sql;
  if (/^\s*select\b/i.test(sql)) return 'read';
  if (/^\s*with\b/i.test(sql)) return /\b(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'read';
  return /^\s*(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'other';
}

/** One statement of any of the forms that a client of libSQL takes. */
export function toStatement(statement: InStatement | readonly [string, InArgs?], args?: InArgs): InStatement {
  if (isPair(statement)) return toStatement(...statement);
  return typeof statement === 'string' && args !== undefined ? { sql: statement, args } : statement;
}

function isPair(statement: InStatement | readonly [string, InArgs?]): statement is readonly [string, InArgs?] {
  return Array.isArray(statement);
}
