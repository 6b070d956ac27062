import type { UserRow } from '../../db/schema/users';

/**
 * The body of every answer about a user, as JSON. The sections are stored as the JSON that is answered, and go into it as
 * they are: to parse and print them takes longer than to read them.
 */
export function toUserJson(row: UserRow): string {
  const { id, createdAt, updatedAt, profile, insurance, ltcLifetimeCare, purchase, lifeInsurance, lifetimeCare } = row;
  const ltc = ltcLifetimeCare === null ? '{}' : `{"lifetimeCare":${ltcLifetimeCare}}`;
  return (
    `{"user":{"id":${JSON.stringify(id)},"createdAt":${toJsonInstant(createdAt)},"updatedAt":${toJsonInstant(updatedAt)}` +
    `${profile === null ? '' : `,"profile":${profile}`},"insurance":${insurance ?? '{}'},"ltc":${ltc}` +
    `,"purchase":${purchase ?? '{}'}${lifeInsurance === null ? '' : `,"lifeInsurance":${lifeInsurance}`}` +
    `${lifetimeCare === null ? '' : `,"lifetimeCare":${lifetimeCare}`}}}`
  );
}

function toJsonInstant(epochMs: number): string {
  return `"${new Date(epochMs).toISOString()}"`;
}
