import { constants } from 'node:os';
import * as v from 'valibot';
import { type ProblemSlug, problemKinds } from './shared/problems';

const isProblemSlug = (text: unknown): text is ProblemSlug =>
  typeof text === 'string' && Object.hasOwn(problemKinds, text);

const errorNames = /^(?:[A-Z][A-Za-z]{0,40})?Error$|^J(?:OSE|W[A-Z]{1,2})[A-Za-z]{1,40}$/;
const codeFamilies =
  /^(?:SQLITE|SQL|HTTP|HRANA|ERR|CLIENT|TRANSACTION|STREAM|SERVER|RESPONSE|SCHEMA|REPLICA|QUEUE|DATABASE|TOKEN|FILE|WAL)(?:_[A-Z0-9]{1,20}){1,6}$/;
const carrierCodes = /^(?:timeout|unavailable|bad-answer)(?: [1-5]\d\d)?$/;
const otherCodes: ReadonlySet<string> = new Set([
  ...Object.keys(constants.errno),
  ...['DEADLINE_EXCEEDED', 'OVERLOADED', 'SYNC_FAILED', 'UNKNOWN', 'VALUE_OUT_OF_RANGE'],
  // Of Bun's fetch.
  ...['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN'],
  ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
  ...['ConnectionRefused', 'ConnectionClosed', 'ConnectionReset', 'FailedToOpenSocket', 'Timeout'],
]);

const ErrorName = v.pipe(v.string(), v.regex(errorNames));
/** Libraries and servers set codes, so a text that is not a known code may be a value. */
const ErrorCode = v.pipe(
  v.string(),
  v.check((code) => codeFamilies.test(code) || otherCodes.has(code) || carrierCodes.test(code)),
);
/** A place in this package or in the runtime, without the absolute path and the name of the function. */
const Frame = v.pipe(
  v.string(),
  v.maxLength(200),
  v.regex(/^(?:[\w@.+-]+\/)*[\w@.+-]+:\d+:\d+$|^(?:node|bun):[\w/.:-]+$/),
);
/** The commit of the build. */
const Commit = v.pipe(v.string(), v.regex(/^(?:[0-9a-f]{7,40}|unknown)$/));
const Identifier = v.pipe(v.string(), v.regex(/^[\w-]{8,64}$/));
/** Text from the settings of the operator. */
const Setting = v.pipe(v.string(), v.maxLength(1000));
const SchemaObject = v.pipe(
  v.string(),
  v.regex(/^(?:table|column|constraint|trigger|index|view) [\w.]{1,120} (?:is )?(?:missing|changed|extra)$/),
);
const Whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const Word = v.pipe(v.string(), v.regex(/^[a-z][a-z-]{0,39}(?:\d{3})?$/));

/** Replaces a value that must not be logged. */
const unlisted = 'unlisted';
const orUnlisted = <Schema extends v.GenericSchema<string>>(schema: Schema) => v.fallback(schema, unlisted);

/**
 * The fields of a log line in addition to its level, time and text. No schema accepts an answer, name, address, date, token
 * or query value, and the schema of a new field must be as narrow.
 */
export const logFields = {
  requestId: Identifier,
  problem: v.custom<ProblemSlug>(isProblemSlug),
  /** The validation rules that a rejected request breaks, such as `max_length`. */
  rules: v.pipe(v.array(v.pipe(v.string(), v.regex(/^[a-z][a-z0-9_]{0,39}$/))), v.maxLength(100)),
  errors: v.pipe(
    v.array(v.object({ name: orUnlisted(ErrorName), code: v.optional(orUnlisted(ErrorCode)) })),
    v.maxLength(12),
  ),
  frames: v.pipe(v.array(orUnlisted(Frame)), v.maxLength(12)),
  code: ErrorCode,
  /** Why a replica has failed or a token was rejected. */
  reason: Word,
  endpoint: v.picklist(['start', 'find']),
  /** The id of an application, which is its reference at the carrier. */
  application: Identifier,
  /** The migrations that were applied at the start. */
  migrations: v.pipe(v.array(v.pipe(v.string(), v.regex(/^\d{4}_\w{1,60}$/))), v.maxLength(1000)),
  /** An object of the schema and how it differs, such as `trigger users_profile_audited is missing`. */
  schemaObject: SchemaObject,
  /** The missing or changed objects that block all statements. */
  schemaObjects: v.pipe(v.array(SchemaObject), v.maxLength(200)),
  signal: v.picklist(['SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGVTALRM', 'SIGPROF', 'SIGIO']),
  settled: Whole,
  /** The number of deleted audit events, which were older than `days`. */
  events: Whole,
  days: Whole,
  /** The number of lines of one kind that a summary replaces. */
  count: Whole,
  /** The key of a setting; `rule` is its warning. */
  setting: v.pipe(v.string(), v.regex(/^\w{1,60}$/)),
  rule: Setting,
  durationMs: v.pipe(v.number(), v.finite(), v.minValue(0)),
  drainMs: Whole,
  address: Setting,
  docs: Setting,
  database: Setting,
  /** The copy of a lost database. */
  rescued: Setting,
  /** The open descriptors of the files of a lost database. */
  descriptors: v.pipe(v.array(Setting), v.maxLength(20)),
  timeZone: Setting,
  version: v.pipe(v.string(), v.regex(/^\d+\.\d+\.\d+$/)),
  commit: Commit,
  mode: v.picklist(['development', 'production']),
  /** The sources of the settings: the environment, and files by path. */
  settings: v.pipe(v.array(Setting), v.maxLength(20)),
  /** The working directory. */
  folder: Setting,
} as const satisfies Record<string, v.GenericSchema>;

export type LogFields = {
  readonly [Name in keyof typeof logFields]?: v.InferInput<(typeof logFields)[Name]> | undefined;
};

const schemas: ReadonlyMap<string, v.GenericSchema> = new Map(Object.entries(logFields));

/**
 * Returns the valid fields. `dropped` has the names of the invalid ones; an unknown name is not logged, because it may be
 * data too, for example if a whole body is spread.
 */
export function listedFields(fields: object): Record<string, unknown> {
  const listed: Record<string, unknown> = {};
  const dropped = new Set<string>();
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    const schema = schemas.get(name);
    const parsed = schema === undefined ? undefined : v.safeParse(schema, value);
    if (parsed?.success) listed[name] = parsed.output;
    else dropped.add(schema === undefined ? unlisted : name);
  }
  return dropped.size === 0 ? listed : { ...listed, dropped: [...dropped] };
}
