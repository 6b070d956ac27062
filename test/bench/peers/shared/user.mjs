/**
 * A record with parsed sections.
 *
 * @typedef {{ id: string, profile: object | null, insurance: object | null, ltcLifetimeCare: object | null,
 *   purchase: object | null, lifeInsurance: object | null, lifetimeCare: object | null, version: number,
 *   createdAt: number, updatedAt: number }} UserRow
 */

/**
 * The body of a response with a user. A section without answers is absent.
 *
 * @param {UserRow} row
 */
export function toUserBody(row) {
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

/**
 * The headers of a response with a user.
 *
 * @param {UserRow} row
 */
export function userHeaders({ createdAt, version }) {
  return { etag: `"${createdAt}-${version}"`, 'cache-control': 'private, no-store' };
}
