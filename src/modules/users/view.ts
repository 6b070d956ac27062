import type { UserRow } from '../../db/schema/users';
import type { UserBody } from './model';

/** The body of every answer about a user, from the row. */
export function toUserBody(row: UserRow): UserBody {
  return {
    user: {
      id: row.id,
      createdAt: new Date(row.createdAt).toISOString(),
      updatedAt: new Date(row.updatedAt).toISOString(),
      ...(row.profile && { profile: row.profile }),
      insurance: row.insurance ?? {},
      ltc: row.ltcLifetimeCare ? { lifetimeCare: row.ltcLifetimeCare } : {},
      purchase: row.purchase ?? {},
      ...(row.lifeInsurance && { lifeInsurance: row.lifeInsurance }),
      ...(row.lifetimeCare && { lifetimeCare: row.lifetimeCare }),
    },
  };
}
