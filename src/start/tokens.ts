import { resolve } from 'node:path';
import type { DemoTokens } from '../auth/development-key';
import type { TokenSettings } from '../auth/token-verifier';
import type { Config } from '../config';

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
