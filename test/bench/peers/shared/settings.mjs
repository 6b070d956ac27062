/** The arguments and settings of every peer: `<runtime> <server> <databasePath> <listsPath>` and AUTH_SECRET. */
export function readSettings() {
  const [databasePath, listsPath] = process.argv.slice(2);
  const secret = process.env.AUTH_SECRET;
  if (databasePath === undefined || listsPath === undefined || !secret) {
    throw new Error('Give the paths of the database and of the lists, and AUTH_SECRET');
  }
  return { databasePath, listsPath, secret };
}

/** The largest request body. */
export const bodyLimitBytes = 262_144;
/** How long a statement may wait for a lock that another process holds. */
export const lockTimeoutMs = 5_000;
