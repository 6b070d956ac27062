import { resolve } from 'node:path';
import type { DemoTokens } from '../auth/development-key';
import type { TokenRefusal } from '../auth/token-claims';
import type { TokenSettings, TokenWatch } from '../auth/token-verifier';
import type { Config } from '../config';
import type { Log } from '../log';

/** The tokens that a start in development has made, and the file that they are in. */
export interface KeptTokens {
  readonly tokens: DemoTokens;
  readonly path: string;
}

/**
 * How tokens are checked; where no key is configured, by one that is kept in `data/`, with two tokens to try it.
 *
 * @param issuedAt when those tokens say that they were made
 * @param path the file that they are kept in
 */
export async function tokenSettings(
  config: Config,
  { issuedAt, path = 'data/demo-tokens.json' }: { readonly issuedAt: Date; readonly path?: string },
): Promise<{ settings: TokenSettings; kept?: KeptTokens }> {
  const { key, ...claims } = config.auth;
  if (key.kind !== 'development') return { settings: { key, ...claims } };
  const { developmentSecret, writeDemoTokens } = await import('../auth/development-key');
  const secret = developmentSecret();
  const kept = { tokens: await writeDemoTokens(path, { secret, ...claims }, issuedAt), path: resolve(path) };
  return { settings: { key: { kind: 'secret', secret }, ...claims }, kept };
}

/** The setting to compare with a refused token. Other reasons are faults of the caller. */
const settingOf: Partial<Record<TokenRefusal, string>> = {
  issuer: 'AUTH_ISSUER',
  'issuer-missing': 'AUTH_ISSUER',
  audience: 'AUTH_AUDIENCE',
  'audience-missing': 'AUTH_AUDIENCE_CLAIM',
  key: 'AUTH_JWKS_URL',
};
const warnedEveryMs = 60 * 60_000;

/** Logs tokens that suggest a wrong setting. Each reason is logged once an hour, because anyone can send tokens. */
export function watchTokens(log: Log): TokenWatch {
  const warnedAtMs = new Map<TokenRefusal, number>();
  return {
    onRefused(reason) {
      const setting = settingOf[reason];
      const nowMs = performance.now();
      if (setting === undefined || nowMs - (warnedAtMs.get(reason) ?? Number.NEGATIVE_INFINITY) < warnedEveryMs) return;
      warnedAtMs.set(reason, nowMs);
      log.warn({ reason, setting }, 'a token was refused; this setting may be wrong');
    },
    onRolesMissing() {
      log.warn({ setting: 'AUTH_ROLES_CLAIM' }, 'none of the first tokens has this claim, so no caller has a role');
    },
  };
}
