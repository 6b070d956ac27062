import { distance } from 'fastest-levenshtein';
import * as v from 'valibot';
import { OperatorError } from '../errors';
import { logLevels } from '../log';
import { combinationFaults, type Fault, productionFaults, productionWarnings } from './production';
import { secretFileSettings, withSecretFiles } from './secrets';
import { telemetrySettings, tracingOf } from './telemetry';
import {
  BaseUrl,
  DatabaseUrl,
  EncryptionKey,
  FilePath,
  Flag,
  HttpUrl,
  integerText,
  loopbackOrigins,
  NonEmpty,
  Origin,
  OriginList,
  PublicKeyPem,
  RemoteDatabaseUrl,
  Secret,
  setting,
  TimeZone,
} from './validators';

/**
 * Every setting with its default and meaning; the README's table is tested against it.
 * A key that is set but empty is an error, never the default.
 */
export const Settings = v.object({
  NODE_ENV: setting(
    v.picklist(['development', 'production'], 'must be development or production'),
    '`production` refuses every insecure default, naming each; without it the bundle is in production, the sources are in `development`',
  ),
  HOST: setting(NonEmpty, 'address to listen on', '127.0.0.1'),
  PORT: setting(integerText(0, 65_535), 'port to listen on; `0` takes a free one', '3000'),
  PUBLIC_URL: setting(Origin, 'base of every absolute link that the service gives; else `http://HOST:PORT`'),
  DATABASE_URL: setting(DatabaseUrl, '`file:PATH`, `http(s)://`, `libsql://` or `ws(s)://`', 'file:data/planning.db'),
  DATABASE_AUTH_TOKEN: setting(NonEmpty, 'token for a remote database'),
  DATABASE_TIMEOUT_MS: setting(
    integerText(50, 20_000),
    'longest wait for any query, a lock included; past it 503',
    '2000',
  ),
  DATABASE_READ_URL: setting(RemoteDatabaseUrl, 'a replica server to read from; writes go to a remote `DATABASE_URL`'),
  DATABASE_REPLICA_PATH: setting(FilePath, 'or a file where this process keeps a replica of a remote `DATABASE_URL`'),
  DATABASE_SYNC_INTERVAL_MS: setting(integerText(50, 3_600_000), 'how often that file is brought up to date', '1000'),
  DATABASE_MIGRATION_BACKUP: setting(Flag, 'copy a database file that has data before it is migrated', 'true'),
  DATABASE_ENCRYPTION_KEY: setting(
    EncryptionKey,
    'encrypts `file:` databases, their backups and the replica’s file; at least 32 characters',
  ),
  AUTH_SECRET: setting(
    Secret,
    'HS256 secret of tokens, at least 32 bytes; in development a key made once, kept in `data/`',
  ),
  AUTH_PUBLIC_KEY: setting(PublicKeyPem, 'or an SPKI PEM (EdDSA, ES256, RS256); line breaks may be written `\\n`'),
  AUTH_JWKS_URL: setting(HttpUrl, 'or the address of a JWKS; https in production'),
  AUTH_ISSUER: setting(NonEmpty, '`iss` that a token must have; required in production'),
  AUTH_AUDIENCE: setting(NonEmpty, 'audience that a token must name; required in production'),
  AUTH_AUDIENCE_CLAIM: setting(
    NonEmpty,
    'claim that must name the audience; `client_id` for access tokens of AWS Cognito',
    'aud',
  ),
  AUTH_ROLES_CLAIM: setting(
    NonEmpty,
    'claim that holds roles: its exact name, else a path such as `realm_access.roles`',
    'roles',
  ),
  CARRIER_URL: setting(BaseUrl, 'the partner carrier; in development the sandbox carrier inside the process'),
  CARRIER_API_KEY: setting(
    v.pipe(v.string(), v.regex(/^[\x21-\x7e]+$/, 'must be visible ASCII characters')),
    'bearer token for the carrier; required in production',
  ),
  CARRIER_TIMEOUT_MS: setting(integerText(50, 8_000), 'longest wait for one attempt at the carrier', '5000'),
  CARRIER_ATTEMPTS: setting(integerText(1, 5), 'attempts of one call, on the same reference', '3'),
  CARRIER_BREAKER_FAILURES: setting(
    integerText(1, 1000),
    'failures in a row after which the carrier is left alone',
    '5',
  ),
  CARRIER_BREAKER_MS: setting(
    integerText(50, 10_000),
    'how long it is left alone before one call tries it again',
    '5000',
  ),
  CARRIER_APPLICATIONS_PER_DAY: setting(
    integerText(0, 10_000),
    'applications of one person that may be open or were started within 24 hours; past it 429; `0` sets no limit',
    '20',
  ),
  SANDBOX_DATABASE_URL: setting(DatabaseUrl, 'the sandbox carrier’s own database', 'file:data/carrier-sandbox.db'),
  CHAT_ID: setting(NonEmpty, '`tokens.chat-id` of the lists; a demo value in development, else required'),
  CHAT_TOKEN: setting(NonEmpty, '`tokens.chat-token` of the lists; a demo value in development, else required'),
  REPORT_TIME_ZONE: setting(TimeZone, 'IANA time zone of months and of ages', 'UTC'),
  BODY_LIMIT_BYTES: setting(integerText(1024, 16_777_216), 'largest request body; 413 above', '262144'),
  AUDIT_RETENTION_DAYS: setting(integerText(31, 36_500), 'how long the audit trail is kept; six years', '2192'),
  REQUEST_TIMEOUT_MS: setting(
    integerText(100, 25_000),
    'how long a request body may take to arrive; past it 408',
    '10000',
  ),
  CORS_ORIGINS: setting(
    OriginList,
    'origins whose pages may call, with commas between; without it none, in development any of `localhost`',
  ),
  RATE_LIMIT_PER_MINUTE: setting(
    integerText(0, 1_000_000),
    'requests of one caller; `0`, as in development, switches every rate limit off; `600` in production',
  ),
  TRUSTED_PROXY_COUNT: setting(integerText(0, 10), 'proxies in front that append to `X-Forwarded-For`', '0'),
  DRAIN_MS: setting(
    integerText(0, 600_000),
    'how long after SIGTERM new requests are accepted while readiness fails; `0` in development, `15000` in production',
  ),
  SHUTDOWN_TIMEOUT_MS: setting(
    integerText(0, 600_000),
    'how long requests in flight may take to finish after `DRAIN_MS`',
    '8000',
  ),
  LOG_LEVEL: setting(
    v.picklist(logLevels, `must be one of ${logLevels.join(', ')}`),
    logLevels.map((level) => `\`${level}\``).join(', '),
    'info',
  ),
  ...telemetrySettings,
  SEED_DEMO: setting(
    Flag,
    'store demo cemeteries, a sales team and a year of its activities, but only in a database that development created; `true` in development, refused in production',
  ),
  ...secretFileSettings,
});

type Environment = Readonly<Record<string, string | undefined>>;

/** How a token's signature is checked. */
export type AuthKey =
  | { readonly kind: 'secret'; readonly secret: string }
  | { readonly kind: 'public-key'; readonly pem: string }
  | { readonly kind: 'jwks'; readonly url: string }
  /** Development only: a secret that the first start makes and keeps in `data/`. */
  | { readonly kind: 'development' };

export type Config = ReturnType<typeof readConfig>;

/** Settings that cannot be used, all at once; the message names each key and never its value. */
export class ConfigError extends OperatorError {
  override readonly name = 'ConfigError';
  readonly faults: readonly { readonly key: string; readonly rule: string }[];

  constructor(faults: readonly { readonly key: string; readonly rule: string }[]) {
    super(`These settings cannot be used:\n${faults.map(({ key, rule }) => `  ${key} ${rule}`).join('\n')}`);
    this.faults = faults;
  }
}

/**
 * Reads the settings from an environment.
 *
 * @param developmentSecret the key of development that lies in `data/`, which production refuses
 * @param used the settings that are read and checked; all without it
 * @throws ConfigError that names every bad key
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
    /** Unset: the address that the service listens on, known once it does. */
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
    /** In production longer than the health checks of common load balancers need to notice. */
    drainMs: settings.DRAIN_MS ?? (settings.NODE_ENV === 'production' ? 15_000 : 0),
    shutdownTimeoutMs: settings.SHUTDOWN_TIMEOUT_MS,
    logLevel: settings.LOG_LEVEL,
    metricsToken: settings.METRICS_TOKEN,
    tracing: tracingOf(settings),
    /** Undefined where nothing is set: a start in development then adds demo data, a command does not. */
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

/** Where to read from beside the database itself. */
function replicaOf(settings: v.InferOutput<typeof Settings>) {
  const { DATABASE_READ_URL: url, DATABASE_REPLICA_PATH: path, DATABASE_SYNC_INTERVAL_MS: intervalMs } = settings;
  if (url !== undefined) return { kind: 'server', url } as const;
  return path === undefined ? undefined : ({ kind: 'file', path, intervalMs } as const);
}

function authKey(settings: v.InferOutput<typeof Settings>): AuthKey {
  if (settings.AUTH_SECRET !== undefined) return { kind: 'secret', secret: settings.AUTH_SECRET };
  if (settings.AUTH_PUBLIC_KEY !== undefined) return { kind: 'public-key', pem: settings.AUTH_PUBLIC_KEY };
  if (settings.AUTH_JWKS_URL !== undefined) return { kind: 'jwks', url: settings.AUTH_JWKS_URL };
  return { kind: 'development' };
}
