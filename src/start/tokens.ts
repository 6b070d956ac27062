import { resolve } from 'node:path';
import type { DemoTokens } from '../auth/development-key';
import type { TokenRefusal } from '../auth/token-claims';
import type { TokenSettings, TokenWatch } from '../auth/token-verifier';
import type { Config } from '../config';
import type { Log } from '../log';
import type { Metrics } from '../telemetry/observers';

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
/** A fetch that fails for the same reason is logged at most this often. */
const keysWarnedEveryMs = 60_000;

/**
 * Logs tokens that suggest a wrong setting, and each failed fetch of the JWKS. A reason to refuse tokens is logged once an
 * hour, because anyone can send tokens.
 */
export function watchTokens(log: Log, metrics?: Pick<Metrics, 'keysFetched'>): TokenWatch {
  const warnedAtMs = new Map<TokenRefusal, number>();
  let lastFailure: { readonly kind: string; readonly loggedAtMs: number } | undefined;
  return {
    onRefused(reason) {
      const setting = settingOf[reason];
      const nowMs = performance.now();
      if (setting === undefined || nowMs - (warnedAtMs.get(reason) ?? Number.NEGATIVE_INFINITY) < warnedEveryMs) return;
      warnedAtMs.set(reason, nowMs);
      log.warn({ reason, setting }, 'a token was refused; this setting may be wrong');
    },
    onKeysFetched() {
      metrics?.keysFetched();
      if (lastFailure !== undefined) log.info('the JWKS is fetched again');
      lastFailure = undefined;
    },
    onKeysFailed({ reason, code }, hasKeys) {
      const kind = `${reason} ${hasKeys}`;
      const nowMs = performance.now();
      if (lastFailure?.kind === kind && nowMs - lastFailure.loggedAtMs < keysWarnedEveryMs) return;
      lastFailure = { kind, loggedAtMs: nowMs };
      const fields = { setting: 'AUTH_JWKS_URL', reason, code: code === '' ? undefined : code };
      if (hasKeys) log.warn(fields, 'the JWKS cannot be fetched: its last keys stay in use for up to an hour');
      else log.error(fields, 'the JWKS cannot be fetched: no token can be checked');
    },
    onRolesMissing() {
      log.warn({ setting: 'AUTH_ROLES_CLAIM' }, 'none of the first tokens has this claim, so no caller has a role');
    },
  };
}
