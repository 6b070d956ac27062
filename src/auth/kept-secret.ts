import { existsSync, readFileSync } from 'node:fs';

export const keptSecretPath = 'data/development-auth-secret';

/** The secret that an earlier start in development has made in this folder, if any. */
export function keptDevelopmentSecret(): string | undefined {
  return existsSync(keptSecretPath) ? readFileSync(keptSecretPath, 'utf8') : undefined;
}
