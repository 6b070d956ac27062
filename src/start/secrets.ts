import type { TokenVerifier } from '../auth/token-verifier';
import { type Config, ConfigError } from '../config';
import type { Log } from '../log';
import type { SecretSetting } from '../secret-files';

/** Where each secret is in the settings, and whether a new value takes effect while the service runs. */
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

/** The secrets that a running service can replace, each as it is now. */
export function createSecrets(started: Config) {
  let current = started;
  return {
    databaseToken: () => current.database.authToken,
    carrierKey: () => current.carrier.apiKey,
    metricsToken: () => current.metricsToken,

    /**
     * Reads the secrets again, puts into use those that can be, and logs each that has changed. After a fault everything
     * stays as it is.
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
          log.error({ setting: key, rule }, 'the secrets are not read again, because this setting cannot be used');
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
