import { distance } from 'fastest-levenshtein';
import * as v from 'valibot';
import { OperatorError } from '../errors';
import { logLevels } from '../log';
import { combinationFaults, productionFaults, productionWarnings } from './production';
import { secretFileSettings, withSecretFiles } from './secrets';
import {
  BaseUrl,
  DatabaseUrl,
  EncryptionKey,
  type Environment,
  ExporterHeaders,
  type Fault,
  FilePath,
  Flag,
  HttpUrl,
  integer,
  loopbackOrigins,
  MetricsToken,
  Mode,
  NonEmpty,
  Origin,
  OriginList,
  PublicKeyPem,
  Ratio,
  RemoteDatabaseUrl,
  Secret,
  setting,
  TimeZone,
  VisibleAscii,
} from './validators';

const LogLevel = v.picklist(logLevels, `must be one of ${logLevels.join(', ')}`);

/** All settings. An empty value is an error, never the default. docs/settings.md is tested against this table. */
export const Settings = v.object({
  NODE_ENV: setting(Mode, '`production` refuses insecure settings; the default is `production` in the bundle only'),
  HOST: setting(NonEmpty, 'address to listen on', '127.0.0.1'),
  PORT: setting(integer(0, 65_535), 'port to listen on; `0` takes a free one', '3000'),
  PUBLIC_URL: setting(Origin, 'base of absolute links; the default is `http://HOST:PORT`'),
  DATABASE_URL: setting(DatabaseUrl, '`file:PATH`, `http(s)://`, `libsql://` or `ws(s)://`', 'file:data/planning.db'),
  DATABASE_AUTH_TOKEN: setting(NonEmpty, 'token for a remote database'),
  DATABASE_TIMEOUT_MS: setting(integer(50, 20_000), 'time limit of a query, lock wait included; then 503', '2000'),
  DATABASE_READ_URL: setting(RemoteDatabaseUrl, 'replica server to read from; writes go to a remote `DATABASE_URL`'),
  DATABASE_REPLICA_PATH: setting(FilePath, 'or a file for a replica of a remote `DATABASE_URL` in this process'),
  DATABASE_SYNC_INTERVAL_MS: setting(integer(50, 3_600_000), 'interval between the syncs of that file', '1000'),
  DATABASE_MIGRATION_BACKUP: setting(Flag, 'copy a database file with data before its migration', 'true'),
  DATABASE_ENCRYPTION_KEY: setting(EncryptionKey, 'encrypts files and backups of the database; 32 characters or more'),
  AUTH_SECRET: setting(Secret, 'HS256 secret of tokens, 32 bytes or more; in development generated in `data/`'),
  AUTH_PUBLIC_KEY: setting(PublicKeyPem, 'or an SPKI PEM (EdDSA, ES256, RS256); line breaks may be written `\\n`'),
  AUTH_JWKS_URL: setting(HttpUrl, 'or the address of a JWKS; https in production'),
  AUTH_ISSUER: setting(NonEmpty, '`iss` that a token must have; required in production'),
  AUTH_AUDIENCE: setting(NonEmpty, 'audience that a token must have; required in production'),
  AUTH_AUDIENCE_CLAIM: setting(NonEmpty, 'claim with the audience; `client_id` for AWS Cognito access tokens', 'aud'),
  AUTH_ROLES_CLAIM: setting(NonEmpty, 'claim with the roles: its name, else a path as `realm_access.roles`', 'roles'),
  CARRIER_URL: setting(BaseUrl, 'the partner carrier; in development the sandbox carrier of the process'),
  CARRIER_API_KEY: setting(VisibleAscii, 'bearer token for the carrier; required in production'),
  CARRIER_TIMEOUT_MS: setting(integer(50, 8_000), 'time limit of one attempt at the carrier', '5000'),
  CARRIER_ATTEMPTS: setting(integer(1, 5), 'attempts of one call, with the same client reference', '3'),
  CARRIER_BREAKER_FAILURES: setting(integer(1, 1000), 'consecutive failures that open the circuit breaker', '5'),
  CARRIER_BREAKER_MS: setting(integer(50, 10_000), 'time until an open circuit breaker allows one call', '5000'),
  CARRIER_APPLICATIONS_PER_DAY: setting(
    integer(0, 10_000),
    'applications of a user that are open or started within 24 hours; beyond it 429; `0`: any',
    '20',
  ),
  SANDBOX_DATABASE_URL: setting(DatabaseUrl, 'database of the sandbox carrier', 'file:data/carrier-sandbox.db'),
  CHAT_ID: setting(NonEmpty, '`tokens.chat-id` of the lists; required in production'),
  CHAT_TOKEN: setting(NonEmpty, '`tokens.chat-token` of the lists; required in production'),
  REPORT_TIME_ZONE: setting(TimeZone, 'IANA time zone of months and ages', 'UTC'),
  BODY_LIMIT_BYTES: setting(integer(1024, 16_777_216), 'largest request body; 413 above', '262144'),
  AUDIT_RETENTION_DAYS: setting(integer(31, 36_500), 'retention of the audit log; the default is six years', '2192'),
  REQUEST_TIMEOUT_MS: setting(integer(100, 25_000), 'time limit for a request body to arrive; then 408', '10000'),
  CORS_ORIGINS: setting(OriginList, 'allowed origins, comma-separated; in development by default any of `localhost`'),
  RATE_LIMIT_PER_MINUTE: setting(integer(0, 1_000_000), 'limit per client; `0`: none, as in development; else `600`'),
  TRUSTED_PROXY_COUNT: setting(integer(0, 10), 'proxies in front that append to `X-Forwarded-For`', '0'),
  DRAIN_MS: setting(
    integer(0, 600_000),
    'delay of the stop after readiness fails; `0` in development, `15000` in production',
  ),
  SHUTDOWN_TIMEOUT_MS: setting(integer(0, 600_000), 'time limit for open requests after `DRAIN_MS`', '8000'),
  LOG_LEVEL: setting(LogLevel, logLevels.map((level) => `\`${level}\``).join(', '), 'info'),
  METRICS_TOKEN: setting(MetricsToken, 'bearer token of `GET /metrics`, 32 characters or more; without it 404'),
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(BaseUrl, 'OTLP receiver over HTTP, without `/v1/traces`; without it no traces'),
  OTEL_EXPORTER_OTLP_HEADERS: setting(ExporterHeaders, '`name=value,…` for it, percent-encoded; needs https'),
  OTEL_SERVICE_NAME: setting(NonEmpty, 'name of the service in traces', 'personal-planning-service'),
  OTEL_TRACES_SAMPLER_ARG: setting(Ratio, 'ratio of exported traces, unless the client decides; `0` to `1`', '1'),
  SEED_DEMO: setting(Flag, 'store demo data in a new database of development, by default; refused in production'),
  ...secretFileSettings,
});

/** How a token's signature is checked. */
export type AuthKey =
  | { readonly kind: 'secret'; readonly secret: string }
  | { readonly kind: 'public-key'; readonly pem: string }
  | { readonly kind: 'jwks'; readonly url: string }
  /** Development only: a secret in `data/`, generated by the first start. */
  | { readonly kind: 'development' };

export type Config = ReturnType<typeof readConfig>;

/** All invalid settings. The message names each key and never its value. */
export class ConfigError extends OperatorError {
  override readonly name = 'ConfigError';
  readonly faults: readonly Fault[];

  constructor(faults: readonly Fault[]) {
    super(`These settings cannot be used:\n${faults.map(({ key, rule }) => `  ${key} ${rule}`).join('\n')}`);
    this.faults = faults;
  }
}

/**
 * Reads the settings from an environment.
 *
 * @param developmentSecret the development key in `data/`, which production refuses
 * @param used the settings to read and check; all by default
 * @throws ConfigError that names every invalid key
 */
export function readConfig(given: Environment, developmentSecret?: string, used?: readonly string[]) {
  const isUsed = (key: string) =>
    used === undefined || key === 'NODE_ENV' || used.includes(key) || used.includes(key.replace(/_FILE$/, ''));
  const { environment, ...files } = withSecretFiles(given, isUsed);
  const parsed = v.safeParse(Settings, Object.fromEntries(Object.entries(environment).filter(([key]) => isUsed(key))));
  const found = [
    ...(parsed.issues ?? []).map((issue) => ({ key: v.getDotPath(issue) ?? '', rule: issue.message })),
    ...files.faults,
    ...combinationFaults(environment),
    ...(environment.NODE_ENV === 'production' ? productionFaults(environment, developmentSecret) : []),
  ];
  const faults = found.filter(({ key }) => {
    const keys = key.split(' or ');
    return keys.some(isUsed) && !keys.some(files.isUnreadable);
  });
  if (!parsed.success || faults.length > 0) throw new ConfigError(faults);

  const settings = parsed.output;
  return {
    isProduction: settings.NODE_ENV === 'production',
    /** Settings that need attention but do not prevent a start. */
    warnings: [
      ...mistypedSettings(environment),
      ...files.warnings,
      ...(settings.NODE_ENV === 'production' ? productionWarnings(environment, developmentSecret) : []),
    ],
    host: settings.HOST,
    port: settings.PORT,
    /** The default is the address of the listening service. */
    publicUrl: settings.PUBLIC_URL?.replace(/\/+$/, ''),
    database: {
      url: settings.DATABASE_URL,
      authToken: settings.DATABASE_AUTH_TOKEN,
      encryptionKey: settings.DATABASE_ENCRYPTION_KEY,
      isBackedUpBeforeMigration: settings.DATABASE_MIGRATION_BACKUP,
      timeoutMs: settings.DATABASE_TIMEOUT_MS,
    },
    replica: replicaOf(settings),
    auth: {
      key: authKey(settings),
      issuer: settings.AUTH_ISSUER,
      audience: settings.AUTH_AUDIENCE,
      audienceClaim: settings.AUTH_AUDIENCE_CLAIM,
      rolesClaim: settings.AUTH_ROLES_CLAIM,
    },
    carrier: {
      url: settings.CARRIER_URL?.replace(/\/+$/, ''),
      apiKey: settings.CARRIER_API_KEY,
      timeoutMs: settings.CARRIER_TIMEOUT_MS,
      attempts: settings.CARRIER_ATTEMPTS,
      breakerFailures: settings.CARRIER_BREAKER_FAILURES,
      breakerMs: settings.CARRIER_BREAKER_MS,
      applicationsPerDay: settings.CARRIER_APPLICATIONS_PER_DAY,
    },
    sandboxDatabaseUrl: settings.SANDBOX_DATABASE_URL,
    chat: { id: settings.CHAT_ID ?? 'demo-chat', token: settings.CHAT_TOKEN ?? 'demo-chat-token' },
    reportTimeZone: settings.REPORT_TIME_ZONE,
    bodyLimitBytes: settings.BODY_LIMIT_BYTES,
    auditRetentionDays: settings.AUDIT_RETENTION_DAYS,
    requestTimeoutMs: settings.REQUEST_TIMEOUT_MS,
    corsOrigins: settings.CORS_ORIGINS ?? (settings.NODE_ENV === 'production' ? [] : loopbackOrigins),
    rateLimit: {
      perMinute: settings.RATE_LIMIT_PER_MINUTE ?? (settings.NODE_ENV === 'production' ? 600 : 0),
      trustedProxyCount: settings.TRUSTED_PROXY_COUNT,
    },
    /** Long enough for the health checks of common load balancers. */
    drainMs: settings.DRAIN_MS ?? (settings.NODE_ENV === 'production' ? 15_000 : 0),
    shutdownTimeoutMs: settings.SHUTDOWN_TIMEOUT_MS,
    logLevel: settings.LOG_LEVEL,
    metricsToken: settings.METRICS_TOKEN,
    tracing: tracingOf(settings),
    /** If undefined, a start in development adds demo data, and a command does not. */
    seedDemo: settings.SEED_DEMO,
  };
}

/** Kubernetes sets variables of these forms for each of its services, such as one named `auth`. */
const ofAnotherService = /_(?:SERVICE_HOST|SERVICE_PORT|PORT)(?:_|$)/;
/** OpenTelemetry variables may be meant for other programs. */
const families = /^(?:AUDIT|AUTH|CARRIER|CHAT|CORS|DATABASE|RATE_LIMIT)_/;

/** Lists variables that resemble a setting or share a prefix with one, with the nearest setting. */
export function mistypedSettings(environment: Environment): Fault[] {
  const keys = Object.keys(Settings.entries);
  return Object.keys(environment).flatMap((name): Fault[] => {
    if (keys.includes(name) || name === 'NEW_DATABASE_ENCRYPTION_KEY' || ofAnotherService.test(name)) return [];
    const upper = name.toUpperCase();
    const [nearest] = keys
      .filter((key) => key.endsWith('_FILE') === upper.endsWith('_FILE'))
      .filter((key) => families.test(upper) || Math.abs(key.length - upper.length) <= 2)
      .map((key) => ({ key, edits: distance(upper, key) }))
      .toSorted((one, other) => one.edits - other.edits);
    if (nearest === undefined) return [];
    // PATH and HOME are two edits from PORT and HOST.
    const isNear = nearest.edits <= (nearest.key.length < 8 ? 1 : 2);
    return isNear || families.test(upper)
      ? [{ key: name, rule: `is not a setting of this service; the nearest is ${nearest.key}` }]
      : [];
  });
}

function replicaOf(settings: v.InferOutput<typeof Settings>) {
  const { DATABASE_READ_URL: url, DATABASE_REPLICA_PATH: path, DATABASE_SYNC_INTERVAL_MS: intervalMs } = settings;
  if (url !== undefined) return { kind: 'server', url } as const;
  return path === undefined ? undefined : ({ kind: 'file', path, intervalMs } as const);
}

function tracingOf(settings: v.InferOutput<typeof Settings>) {
  const endpoint = settings.OTEL_EXPORTER_OTLP_ENDPOINT?.replace(/\/+$/, '');
  if (endpoint === undefined) return undefined;
  const { OTEL_EXPORTER_OTLP_HEADERS: headers = {}, OTEL_SERVICE_NAME: serviceName } = settings;
  return { endpoint, headers, serviceName, ratio: settings.OTEL_TRACES_SAMPLER_ARG };
}

function authKey(settings: v.InferOutput<typeof Settings>): AuthKey {
  if (settings.AUTH_SECRET !== undefined) return { kind: 'secret', secret: settings.AUTH_SECRET };
  if (settings.AUTH_PUBLIC_KEY !== undefined) return { kind: 'public-key', pem: settings.AUTH_PUBLIC_KEY };
  if (settings.AUTH_JWKS_URL !== undefined) return { kind: 'jwks', url: settings.AUTH_JWKS_URL };
  return { kind: 'development' };
}
