import { resolve } from 'node:path';
import type { DemoTokens } from '../auth/signing';
import type { TokenRefusal, TokenSettings, TokenVerifier, TokenWatch } from '../auth/verifier';
import type { SecretSetting } from '../config/secrets';
import { type Config, ConfigError } from '../config/settings';
import type { Environment } from '../config/validators';
import { keyRemedy } from '../db/database-file';
import { findDatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
import { parseAddress } from '../http/rate-limits';
import type { Log } from '../log';
import type { HttpCarrierSettings } from '../modules/coverage/http-carrier';
import { lazy } from '../shared/async';
import { type Carrier, carrierId } from '../shared/carrier';
import type { Metrics } from '../telemetry/events';
import type { Telemetry } from '../telemetry/telemetry';

/** The demo tokens of a development start, and their file. */
export interface StoredTokens {
  readonly tokens: DemoTokens;
  readonly path: string;
}

/**
 * Returns the settings of the token verifier. Without a configured key, it uses the development key in `data/` and writes
 * two demo tokens.
 *
 * @param issuedAt `iat` of the demo tokens
 * @param path the file of the demo tokens
 */
export async function tokenSettings(
  config: Config,
  { issuedAt, path = 'data/demo-tokens.json' }: { readonly issuedAt: Date; readonly path?: string },
): Promise<{ settings: TokenSettings; stored?: StoredTokens }> {
  const { key, ...claims } = config.auth;
  if (key.kind !== 'development') return { settings: { key, ...claims } };
  const { developmentSecret, writeDemoTokens } = await import('../auth/signing');
  const secret = developmentSecret();
  const stored = { tokens: await writeDemoTokens(path, { secret, ...claims }, issuedAt), path: resolve(path) };
  return { settings: { key: { kind: 'secret', secret }, ...claims }, stored };
}

/** The setting that a refused token suggests to check. Other reasons are errors of the client. */
const settingOf: Partial<Record<TokenRefusal, string>> = {
  issuer: 'AUTH_ISSUER',
  'issuer-missing': 'AUTH_ISSUER',
  audience: 'AUTH_AUDIENCE',
  'audience-missing': 'AUTH_AUDIENCE_CLAIM',
  key: 'AUTH_JWKS_URL',
};
const warnedEveryMs = 60 * 60_000;
/** Repeated failures of a fetch for the same reason are logged at this interval. */
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
      log.warn({ setting: 'AUTH_ROLES_CLAIM' }, 'none of the first tokens has this claim: no client has a role');
    },
  };
}

/** Opens the configured carrier, or in development the sandbox, on a random port and with a random key. */
export async function openCarrier(
  config: Config,
  clock: () => Date,
  { carrierObservers: observers }: Telemetry,
  carrierKey: () => string | undefined,
) {
  const { url } = config.carrier;
  if (url !== undefined) {
    return { ...createLazyCarrier({ ...config.carrier, url, apiKey: carrierKey, observers }), sandbox: undefined };
  }
  const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
  const apiKey = crypto.randomUUID();
  const sandbox = await listenCarrierSandbox({ config, clock, apiKey, port: 0 }).catch((error: unknown) => {
    const code = findDatabaseError(error)?.code ?? 'UNKNOWN';
    const setting = 'The sandbox carrier’s database SANDBOX_DATABASE_URL';
    throw new OperatorError(`${setting} cannot be used (${code}).${keyRemedy(code)}`);
  });
  return { ...createLazyCarrier({ ...config.carrier, url: sandbox.url, apiKey, observers }), sandbox };
}

/**
 * Loads the carrier modules once the service listens. The start does not wait for them, and an application does not fail
 * because no file descriptor is free to load them.
 */
function createLazyCarrier(settings: HttpCarrierSettings) {
  const load = lazy(async () => {
    const { createHttpCarrier } = await import('../modules/coverage/http-carrier');
    // Bun starts its HTTP client with the first call, and exits if no file descriptor is free then.
    await fetch('http://127.0.0.1:0').catch(() => undefined);
    return createHttpCarrier(settings);
  });
  const carrier: Carrier = {
    id: carrierId(settings.url),
    start: async (application, mayBeKnown) => (await load()).start(application, mayBeKnown),
  };
  return { carrier, loadCarrier: load };
}

/** Loopback addresses in the form of NO_PROXY. */
const loopback = ['localhost', '127.0.0.0/8', '::1', '0.0.0.0', '::'];

/**
 * Adds the loopback addresses to NO_PROXY. Bun's `fetch` sends loopback requests through `HTTP_PROXY` too; it reads these
 * variables at each request, the lower-case ones first.
 */
export function excludeLoopback(environment: Record<string, string | undefined>): void {
  const known = read(environment, 'no_proxy');
  const list = [...(known === undefined ? [] : [known]), ...loopback].join(',');
  environment.NO_PROXY = list;
  environment.no_proxy = list;
}

/**
 * Returns the host of the proxy that Bun's `fetch` uses for an http or https address, without credentials, or undefined
 * if it uses none.
 */
export function proxyHostFor(address: string, environment: Environment): string | undefined {
  const { protocol, hostname, port } = new URL(address);
  const proxy =
    read(environment, protocol === 'http:' ? 'http_proxy' : 'https_proxy') ??
    // Bun ignores other schemes in all_proxy, such as socks5.
    read(environment, 'all_proxy')?.replace(/^(?!https?:)\w+:.*/, '');
  if (!proxy) return undefined;
  const target = { host: bare(hostname), port: port || (protocol === 'http:' ? '80' : '443') };
  if ((read(environment, 'no_proxy') ?? '').split(/[\s,]+/).some((entry) => excludes(entry, target))) return undefined;
  return URL.parse(proxy.includes('://') ? proxy : `http://${proxy}`)?.host ?? 'an unreadable address';
}

/** Reads a variable as Bun does: the lower-case name first; an empty pair of quotes is empty. */
function read(environment: Environment, name: string): string | undefined {
  return [environment[name], environment[name.toUpperCase()]].find((text) => text && !/^(?:""|'')$/.test(text));
}

/** Whether an entry of NO_PROXY (a name with its subdomains, an address or a network, with or without a port) matches. */
function excludes(entry: string, target: { readonly host: string; readonly port: string }): boolean {
  if (entry === '*') return true;
  const { name = '', port = target.port } = /^(?<name>\[.*\]|[^:]*):(?<port>\d+)$/.exec(entry)?.groups ?? {
    name: entry,
  };
  const host = bare(name.replace(/^\*?\./, ''));
  if (host === '' || port !== target.port) return false;
  const address = parseAddress(target.host);
  if (address === undefined) return `.${target.host}`.endsWith(`.${host}`);
  const { network = '', length } = /^(?<network>[^/]*)\/(?<length>\d+)$/.exec(host)?.groups ?? { network: host };
  const base = parseAddress(bare(network));
  if (base === undefined || base.kind() !== address.kind()) return false;
  const width = 8 * base.toByteArray().length;
  // The length of a mapped network, such as ::ffff:10.0.0.0/104, counts the 96 bits before the IPv4 address.
  const prefix = width === 32 && network.includes(':') ? 96 : 0;
  const bits = length === undefined ? width : Number(length) - prefix;
  return bits >= 0 && bits <= width && address.match([base, bits]);
}

function bare(host: string): string {
  return host.toLowerCase().replace(/^\[|\]$|\.$/g, '');
}

/** The value of each secret in the settings, and whether a reload applies a new value. */
const secrets: Readonly<Record<SecretSetting, { of: (config: Config) => string | undefined; isLive: boolean }>> = {
  DATABASE_AUTH_TOKEN: { of: ({ database }) => database.authToken, isLive: true },
  CARRIER_API_KEY: { of: ({ carrier }) => carrier.apiKey, isLive: true },
  AUTH_SECRET: { of: ({ auth: { key } }) => (key.kind === 'secret' ? key.secret : undefined), isLive: true },
  AUTH_PUBLIC_KEY: { of: ({ auth: { key } }) => (key.kind === 'public-key' ? key.pem : undefined), isLive: true },
  METRICS_TOKEN: { of: ({ metricsToken }) => metricsToken, isLive: true },
  DATABASE_ENCRYPTION_KEY: { of: ({ database }) => database.encryptionKey, isLive: false },
  CHAT_TOKEN: { of: ({ chat }) => chat.token, isLive: false },
  OTEL_EXPORTER_OTLP_HEADERS: { of: ({ tracing }) => JSON.stringify(tracing?.headers), isLive: false },
};

/** The current values of the secrets that a reload can replace. */
export function createSecrets(started: Config) {
  let current = started;
  return {
    databaseToken: () => current.database.authToken,
    carrierKey: () => current.carrier.apiKey,
    metricsToken: () => current.metricsToken,

    /**
     * Reads the secrets again, applies those that a running service can replace, and logs each change. An invalid setting
     * leaves all values unchanged.
     */
    async reload(
      read: () => Config,
      verifier: TokenVerifier,
      log: Pick<Log, 'info' | 'warn' | 'error'>,
    ): Promise<void> {
      let next: Config;
      try {
        next = read();
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        for (const { key, rule } of error.faults) {
          log.error({ setting: key, rule }, 'the secrets are not read again: this setting is invalid');
        }
        return;
      }
      const changed = Object.entries(secrets).filter(([, { of }]) => of(next) !== of(current));
      current = next;
      const { key } = next.auth;
      if (key.kind !== 'development') await verifier.reload(key);
      for (const [setting, { isLive }] of changed) {
        if (isLive) log.info({ setting }, 'the new value is in use');
        else log.warn({ setting }, 'the new value takes effect after a restart');
      }
      if (changed.length === 0) log.info('the secrets were read again: none has changed');
    },
  };
}
