import { createPublicKey } from 'node:crypto';
import * as v from 'valibot';

export type Environment = Readonly<Record<string, string | undefined>>;

/** A fault or a warning of a setting. */
export interface Fault {
  readonly key: string;
  readonly rule: string;
}

/** A setting: its schema, its description in docs/settings.md, and its default. */
export function setting<Schema extends v.GenericSchema<string, unknown>>(
  schema: Schema,
  description: string,
): v.OptionalSchema<Described<Schema>, undefined>;
export function setting<Schema extends v.GenericSchema<string, unknown>>(
  schema: Schema,
  description: string,
  fallback: string,
): v.OptionalSchema<Described<Schema>, string>;
export function setting<Schema extends v.GenericSchema<string, unknown>>(
  schema: Schema,
  description: string,
  fallback?: string,
) {
  return v.optional(v.pipe(schema, v.description(description)), fallback);
}

type Described<Schema extends v.GenericSchema<string, unknown>> = v.SchemaWithPipe<
  readonly [Schema, v.DescriptionAction<v.InferOutput<Schema>, string>]
>;

export const Mode = v.picklist(['development', 'production'], 'must be development or production');
export const NonEmpty = v.pipe(v.string(), v.nonEmpty('must not be empty'));
export const Flag = v.pipe(
  v.picklist(['true', 'false'], 'must be true or false'),
  v.transform((text) => text === 'true'),
);

/** Decimal digits only: refuses `1e3`, `0x10` and an empty value. */
export function integer(min: number, max: number) {
  const rule = `must be a whole number from ${min} to ${max}`;
  return v.pipe(
    v.string(rule),
    v.regex(/^\d{1,15}$/, rule),
    v.transform(Number),
    v.minValue(min, rule),
    v.maxValue(max, rule),
  );
}

function isRemoteDatabase(url: string): boolean {
  return /^(https?|wss?|libsql):\/\/./.test(url) && URL.canParse(url);
}

/** The service shows addresses, and a replica would not receive a token from one. */
const withoutToken = v.check(
  (url: string) => !/[?&]authToken=/i.test(url),
  'must not hold authToken: set DATABASE_AUTH_TOKEN',
);

/** The client accepts `file:` with an empty path or `:memory:`, and loses the data. */
export const DatabaseUrl = v.pipe(
  v.string(),
  v.check(
    (url) => /^file:(?!:|\/\/[^/])[^?#%]*[^?#%/]$/.test(url) || isRemoteDatabase(url),
    'must be file:PATH (a path without ?, # and %), http(s)://, ws(s):// or libsql:// with a host',
  ),
  withoutToken,
);

export const RemoteDatabaseUrl = v.pipe(
  v.string(),
  v.check(isRemoteDatabase, 'must be http(s)://, ws(s):// or libsql:// with a host'),
  withoutToken,
);

export const FilePath = v.pipe(
  v.string(),
  v.check((path) => /^(?![a-z]+:)[^?#%:][^?#%]*[^?#%/]$/i.test(path), 'must be the path of a file, without ?, # and %'),
);

function isHttpAddress(url: string): boolean {
  return /^https?:\/\/./.test(url) && URL.canParse(url);
}

export const Secret = v.pipe(
  v.string(),
  v.check((text) => new TextEncoder().encode(text).byteLength >= 32, 'must be at least 32 bytes'),
);

/** The driver accepts an empty or short key. */
export const EncryptionKey = v.pipe(v.string(), v.minLength(32, 'must be at least 32 characters'));

export const HttpUrl = v.pipe(v.string(), v.check(isHttpAddress, 'must be an http or https address'));

/** A base to which paths are appended. Credentials have their own settings. */
export const BaseUrl = v.pipe(
  v.string(),
  v.check(
    (url) => isHttpAddress(url) && !/[?#]/.test(url) && new URL(url).username === '',
    'must be an http or https address without a query, a fragment and a user name',
  ),
);

export const Origin = v.pipe(
  v.string(),
  v.check(
    (url) => isHttpAddress(url) && new URL(url).pathname === '/' && !/[?#]/.test(url) && new URL(url).username === '',
    'must be an http or https address without a path and a user name',
  ),
);

/** Development servers take the next free port. */
const loopbackWithAnyPort = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\]):\*$/;
export const loopbackOrigins = ['http', 'https'].flatMap((scheme) =>
  ['localhost', '127.0.0.1', '[::1]'].map((host) => `${scheme}://${host}:*`),
);

/** Normalised to the form that browsers send. A copied address may end with a slash. */
export const OriginList = v.pipe(
  v.string(),
  v.transform((text) => text.split(',').map((origin) => originOf(origin.trim()))),
  v.check(
    (origins) => !origins.includes(undefined),
    'must be origins such as https://app.example.com, with commas between, without paths; only the port of localhost may be *',
  ),
  v.transform((origins) => origins.filter((origin) => origin !== undefined)),
);

function originOf(text: string): string | undefined {
  if (loopbackWithAnyPort.test(text.replace(/\/$/, ''))) return text.replace(/\/$/, '');
  return v.is(Origin, text) && !text.includes('*') ? new URL(text).origin : undefined;
}

export const VisibleAscii = v.pipe(v.string(), v.regex(/^[\x21-\x7e]+$/, 'must be visible ASCII characters'));
export const MetricsToken = v.pipe(
  v.string(),
  v.regex(/^[\x21-\x7e]{32,}$/, 'must be at least 32 visible ASCII characters'),
);
export const Ratio = v.pipe(
  v.string(),
  v.regex(/^(?:0|1|0\.\d{1,9}|1\.0{1,9})$/, 'must be a number from 0 to 1'),
  v.transform(Number),
);

const headersShape = /^[\w.-]+=[\x21-\x2b\x2d-\x7e]*(?:,[\w.-]+=[\x21-\x2b\x2d-\x7e]*)*$/;

/** The form of the OpenTelemetry specification. */
export const ExporterHeaders = v.pipe(
  v.string(),
  v.check((text) => {
    try {
      return headersShape.test(text) && /^[\x20-\x7e]*$/.test(decodeURIComponent(text));
    } catch {
      return false;
    }
  }, 'must be name=value pairs with commas between, values percent-encoded'),
  v.transform((text) =>
    Object.fromEntries(
      text.split(',').map((pair) => {
        const end = pair.indexOf('=');
        return [pair.slice(0, end), decodeURIComponent(pair.slice(end + 1))];
      }),
    ),
  ),
);

export const TimeZone = v.pipe(
  v.string(),
  v.check((zone) => {
    // Spares the default the slow load of the time zones.
    if (zone === 'UTC') return true;
    try {
      return zone !== '' && new Intl.DateTimeFormat('en', { timeZone: zone }) !== undefined;
    } catch {
      return false;
    }
  }, 'must be an IANA time zone such as America/New_York'),
);

/** Accepts `\n` for line breaks, which some environments cannot contain. */
export const PublicKeyPem = v.pipe(
  v.string(),
  v.transform((text) => text.replaceAll('\\n', '\n')),
  v.check(
    (pem) => signatureAlgorithm(pem) !== undefined,
    'must be an SPKI PEM of an Ed25519, P-256 or RSA key of at least 2048 bits',
  ),
);

/** Returns the only JWT algorithm for an SPKI PEM, or undefined for an unsupported key. */
export function signatureAlgorithm(pem: string): 'EdDSA' | 'ES256' | 'RS256' | undefined {
  try {
    if (!pem.includes('BEGIN PUBLIC KEY')) return undefined;
    const key = createPublicKey(pem);
    const details = key.asymmetricKeyDetails;
    if (key.asymmetricKeyType === 'ed25519') return 'EdDSA';
    if (key.asymmetricKeyType === 'ec' && details?.namedCurve === 'prime256v1') return 'ES256';
    if (key.asymmetricKeyType === 'rsa' && (details?.modulusLength ?? 0) >= 2048) return 'RS256';
    return undefined;
  } catch {
    return undefined;
  }
}

export function isLoopback(address: string): boolean {
  if (!URL.canParse(address)) return false;
  const { hostname } = new URL(address);
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}
