import type { AnsweredRecord } from './store';

/**
 * The body of every answer about a user, as JSON. The sections are stored as the JSON that is answered, and go into it as
 * they are: to parse and print them takes longer than to read them.
 */
export function toUserJson({ id, createdAt, updatedAt, sections }: AnsweredRecord): string {
  const instants = `"createdAt":"${toIso(createdAt)}","updatedAt":"${toIso(updatedAt)}"`;
  return `{"user":{"id":${JSON.stringify(id)},${instants},${sections}}}`;
}

function toIso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
