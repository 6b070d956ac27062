import { createPublicKey } from 'node:crypto';
import * as v from 'valibot';

/** One setting: its schema, its description for the README's table, and its default. */
export function setting<Form extends v.GenericSchema<string, unknown>>(
  form: Form,
  meaning: string,
): v.OptionalSchema<Described<Form>, undefined>;
export function setting<Form extends v.GenericSchema<string, unknown>>(
  form: Form,
  meaning: string,
  fallback: string,
): v.OptionalSchema<Described<Form>, string>;
export function setting<Form extends v.GenericSchema<string, unknown>>(form: Form, meaning: string, fallback?: string) {
  return v.optional(v.pipe(form, v.description(meaning)), fallback);
}

type Described<Form extends v.GenericSchema<string, unknown>> = v.SchemaWithPipe<
  readonly [Form, v.DescriptionAction<v.InferOutput<Form>, string>]
>;

export const NonEmpty = v.pipe(v.string(), v.nonEmpty('must not be empty'));
export const Flag = v.pipe(
  v.picklist(['true', 'false'], 'must be true or false'),
  v.transform((text) => text === 'true'),
);

/** A setting's text form: digits only, within bounds, so that `1e3`, `0x10` and an empty value are refused. */
export function integerText(min: number, max: number) {
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

/** One in the address would not reach a replica, and be where addresses are shown. */
const withoutToken = v.check(
  (url: string) => !/[?&]authToken=/i.test(url),
  'must not hold authToken: set DATABASE_AUTH_TOKEN',
);

/** The client takes `file:` with an empty path or `:memory:` silently, and loses what is stored there. */
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

/** Addresses of files hold no ?, # and %. */
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

/** The driver takes an empty or a short one without a word. */
export const EncryptionKey = v.pipe(v.string(), v.minLength(32, 'must be at least 32 characters'));

export const HttpUrl = v.pipe(v.string(), v.check(isHttpAddress, 'must be an http or https address'));

/** Paths are appended to it, and its key has a setting of its own. */
export const BaseUrl = v.pipe(
  v.string(),
  v.check(
    (url) => isHttpAddress(url) && !/[?#]/.test(url) && new URL(url).username === '',
    'must be an http or https address without a query, a fragment and a user name',
  ),
);

/** Links are made by appending a path. */
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

export const TimeZone = v.pipe(
  v.string(),
  v.check((zone) => {
    // The default needs no table of zones, which takes longer to load than all other settings to check.
    if (zone === 'UTC') return true;
    try {
      return zone !== '' && new Intl.DateTimeFormat('en', { timeZone: zone }) !== undefined;
    } catch {
      return false;
    }
  }, 'must be an IANA time zone such as America/New_York'),
);

/** A PEM may come from an environment that cannot hold line breaks, with `\n` written out. */
export const PublicKeyPem = v.pipe(
  v.string(),
  v.transform((text) => text.replaceAll('\\n', '\n')),
  v.check(
    (pem) => signatureAlgorithm(pem) !== undefined,
    'must be an SPKI PEM of an Ed25519, P-256 or RSA key of at least 2048 bits',
  ),
);

/** The one JWT algorithm that an SPKI PEM may be used with, or undefined for a key this service does not take. */
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
