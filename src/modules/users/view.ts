import type { UserRow } from '../../db/schema/users';

/**
 * The body of every answer about a user, as JSON. The sections are stored as the JSON that is answered, and go into it as
 * they are: to parse and print them takes longer than to read them.
 */
export function toUserJson(row: UserRow): string {
  const members = [
    ['id', JSON.stringify(row.id)],
    ['createdAt', toJsonInstant(row.createdAt)],
    ['updatedAt', toJsonInstant(row.updatedAt)],
    ['profile', row.profile],
    ['insurance', row.insurance ?? '{}'],
    ['ltc', row.ltcLifetimeCare === null ? '{}' : `{"lifetimeCare":${row.ltcLifetimeCare}}`],
    ['purchase', row.purchase ?? '{}'],
    ['lifeInsurance', row.lifeInsurance],
    ['lifetimeCare', row.lifetimeCare],
  ] as const;
  const present = members.flatMap(([name, json]) => (json === null ? [] : [`"${name}":${json}`]));
  return `{"user":{${present.join(',')}}}`;
}

function toJsonInstant(epochMs: number): string {
  return `"${new Date(epochMs).toISOString()}"`;
}
