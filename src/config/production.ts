import { type Environment, type Fault, isLoopback } from './validators';

const authKeys = ['AUTH_SECRET', 'AUTH_PUBLIC_KEY', 'AUTH_JWKS_URL'] as const;

const required = ['AUTH_ISSUER', 'AUTH_AUDIENCE', 'CARRIER_URL', 'CARRIER_API_KEY', 'CHAT_ID', 'CHAT_TOKEN'] as const;
/** Settings that must not have a value from a document or from this repository. */
const own = [...required, 'AUTH_SECRET', 'DATABASE_AUTH_TOKEN', 'DATABASE_ENCRYPTION_KEY', 'METRICS_TOKEN'] as const;
const withTls = ['PUBLIC_URL', 'AUTH_JWKS_URL', 'CARRIER_URL'] as const;
const random: ReadonlySet<string> = new Set(['AUTH_SECRET', 'DATABASE_ENCRYPTION_KEY', 'METRICS_TOKEN']);
/** Secrets that are shared with different parties, so no two may be equal. */
const secrets = [
  'AUTH_SECRET',
  'DATABASE_ENCRYPTION_KEY',
  'METRICS_TOKEN',
  'CARRIER_API_KEY',
  'DATABASE_AUTH_TOKEN',
  'CHAT_TOKEN',
] as const;

const placeholder =
  /^(?:[<$%{[].*|(?:change|replace)[-_ ]?(?:me|this|it).*|(?:your|example|dummy|placeholder)(?:[-_ ].*)?|demo(?:-chat(?:-token)?)?|secret|password|test|todo|tbd|x+|\*+|\.+|…)$/i;
/** Settings that name a host, or that must equal a claim of a token. */
const withHosts = ['PUBLIC_URL', 'AUTH_JWKS_URL', 'AUTH_ISSUER', 'AUTH_AUDIENCE', 'CARRIER_URL'] as const;
/** RFC 2606 and RFC 6761 reserve these names, and no public server has one. */
const reservedName = /(?:^|\.)(?:example|invalid|test|example\.(?:com|net|org))\.?$/i;
const leastDifferentCharacters = 10;

/** Faults of settings that exclude or need each other, in any mode. */
export function combinationFaults(environment: Environment): Fault[] {
  return [...authFaults(environment), ...replicaFaults(environment), ...encryptionFaults(environment)];
}

function authFaults(environment: Environment) {
  const present = authKeys.filter((key) => environment[key] !== undefined);
  return present.length > 1
    ? present.map((key) => ({ key, rule: `excludes the others: set exactly one of ${authKeys.join(', ')}` }))
    : [];
}

function replicaFaults(environment: Environment) {
  const present = (['DATABASE_READ_URL', 'DATABASE_REPLICA_PATH'] as const).filter((key) => environment[key]);
  if (present.length > 1) return present.map((key) => ({ key, rule: 'excludes the other: set at most one of both' }));
  if (environment.DATABASE_READ_URL !== undefined && environment.DATABASE_READ_URL === environment.DATABASE_URL) {
    return [{ key: 'DATABASE_READ_URL', rule: 'must be another server than DATABASE_URL' }];
  }
  const isLocal = environment.DATABASE_URL?.startsWith('file:') ?? true;
  return isLocal ? present.map((key) => ({ key, rule: 'needs a DATABASE_URL that is a libSQL server' })) : [];
}

function encryptionFaults(environment: Environment) {
  const { DATABASE_ENCRYPTION_KEY, DATABASE_URL = 'file:', DATABASE_REPLICA_PATH } = environment;
  if (!DATABASE_ENCRYPTION_KEY || DATABASE_URL.startsWith('file:') || DATABASE_REPLICA_PATH !== undefined) return [];
  const rule = 'has no effect: a libSQL server encrypts its own files, and there is no replica file';
  return [{ key: 'DATABASE_ENCRYPTION_KEY', rule }];
}

/** The headers contain the key of the receiver. */
function telemetryFaults({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_HEADERS: headers }: Environment) {
  return headers !== undefined && endpoint?.startsWith('http:') && !isLoopback(endpoint)
    ? [{ key: 'OTEL_EXPORTER_OTLP_ENDPOINT', rule: 'must be an https address in production, as there are headers' }]
    : [];
}

/** Faults in production only. The schema reports invalid values. */
export function productionFaults(environment: Environment, developmentSecret: string | undefined): Fault[] {
  const faults: Fault[] = required
    .filter((key) => environment[key] === undefined)
    .map((key) => ({ key, rule: 'must be set in production' }));
  if (authKeys.every((key) => environment[key] === undefined)) {
    faults.push({ key: authKeys.join(' or '), rule: 'must be set in production' });
  }
  for (const key of own) {
    const text = environment[key] ?? '';
    if (placeholder.test(text.trim())) {
      faults.push({ key, rule: 'must not be a demo value or a placeholder in production' });
    } else if (random.has(key) && text.length >= 32 && new Set(text).size < leastDifferentCharacters) {
      faults.push({ key, rule: 'must be random in production: it repeats a few characters' });
    }
  }
  if (developmentSecret !== undefined && environment.AUTH_SECRET === developmentSecret) {
    faults.push({ key: 'AUTH_SECRET', rule: 'must not be the development key, which signed the tokens in data/' });
  }
  for (const [index, key] of secrets.entries()) {
    const other = secrets.slice(0, index).find((earlier) => environment[earlier] === environment[key]);
    if (environment[key] && other !== undefined) faults.push({ key, rule: `must differ from ${other}` });
  }
  for (const key of withTls) {
    const address = environment[key];
    if (address !== undefined && isUnencrypted(address)) {
      faults.push({ key, rule: 'must be an https address in production' });
    }
  }
  faults.push(...telemetryFaults(environment));
  if (environment.SEED_DEMO === 'true') faults.push({ key: 'SEED_DEMO', rule: 'must not be true in production' });
  return faults;
}

/** Settings that are right in some deployments only. */
export function productionWarnings(environment: Environment, developmentSecret: string | undefined): Fault[] {
  const { DATABASE_URL, DATABASE_AUTH_TOKEN, DATABASE_ENCRYPTION_KEY, DATABASE_REPLICA_PATH, PUBLIC_URL } = environment;
  const isRemote = DATABASE_URL !== undefined && !DATABASE_URL.startsWith('file:');
  const warnings: Fault[] = [];
  if (DATABASE_ENCRYPTION_KEY === undefined && (!isRemote || DATABASE_REPLICA_PATH !== undefined)) {
    warnings.push({
      key: 'DATABASE_ENCRYPTION_KEY',
      rule: 'is not set: the file and its backups are readable, unless the disk is encrypted',
    });
  }
  for (const key of ['DATABASE_URL', 'DATABASE_READ_URL'] as const) {
    const address = environment[key];
    if (address !== undefined && isUnencrypted(address)) {
      warnings.push({ key, rule: 'is reached without TLS: use it in a private network only' });
    }
  }
  if (isRemote && DATABASE_AUTH_TOKEN === undefined && !isLoopback(DATABASE_URL)) {
    warnings.push({
      key: 'DATABASE_AUTH_TOKEN',
      rule: 'is not set: any client that reaches the database can change it',
    });
  }
  if (PUBLIC_URL === undefined) {
    warnings.push({ key: 'PUBLIC_URL', rule: 'is not set: links lead to the address that the service listens on' });
  }
  for (const key of withHosts) {
    if (reservedName.test(hostOf(environment[key] ?? ''))) {
      warnings.push({ key, rule: 'has a name that is reserved for examples and tests' });
    }
  }
  if (environment.TRUSTED_PROXY_COUNT === undefined && Number(environment.RATE_LIMIT_PER_MINUTE ?? 1) > 0) {
    warnings.push({
      key: 'TRUSTED_PROXY_COUNT',
      rule: 'is not set: behind a proxy, all clients without a valid token share one rate limit',
    });
  }
  if (developmentSecret !== undefined) {
    warnings.push({
      key: 'NODE_ENV',
      rule: 'is production, and data/ contains a development key and its tokens: remove them',
    });
  }
  return warnings;
}

/** Returns the host of an address, or the text itself if it is not an address. */
function hostOf(text: string): string {
  return URL.canParse(text) ? new URL(text).hostname : text;
}

/** Returns whether requests to an address leave the machine without TLS. */
function isUnencrypted(address: string): boolean {
  if (!URL.canParse(address) || isLoopback(address)) return false;
  const { protocol, searchParams } = new URL(address);
  return protocol === 'http:' || protocol === 'ws:' || (protocol === 'libsql:' && searchParams.get('tls') === '0');
}
