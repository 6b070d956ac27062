import * as v from 'valibot';
import { AppError } from '../errors';
import { findFieldErrors, type Naming, toPointer } from '../field-errors';
import { maxItems } from '../fields';

/** A schema that throws. What it documents is known by identity. */
type RefusingSchema<Schema extends v.GenericSchema> = Omit<Schema, '~standard'> & {
  readonly documents: Schema;
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: v.InferInput<Schema>; readonly output: v.InferOutput<Schema> } | undefined;
    validate(value: unknown): { value: v.InferOutput<Schema> };
  };
};

/** The `body` of a route. Faults are named by JSON pointer. */
export function requestBody<Schema extends v.GenericSchema>(schema: Schema): RefusingSchema<Schema> {
  return refusing(schema, 'pointer');
}

/** The `query` or `params` of a route. Faults are named by the parameter. */
export function requestParameters<Schema extends v.GenericSchema>(schema: Schema): RefusingSchema<Schema> {
  return refusing(schema, 'parameter');
}

/**
 * The schema, but whatever breaks it is thrown as `invalid-input`. Left alone, Elysia would write the value and every
 * issue into its own error's message, which takes seconds of the one thread for a small body with many faults.
 */
function refusing<Schema extends v.GenericSchema>(schema: Schema, naming: Naming): RefusingSchema<Schema> {
  return {
    ...schema,
    documents: schema,
    '~standard': {
      ...schema['~standard'],
      validate(value: unknown) {
        const misplaced = findListForObject(schema, value);
        if (misplaced !== undefined) throw refusal(misplaced, 'object', 'must be a JSON object');
        const long = findLongList(value);
        if (long !== undefined) throw refusal(long, 'max_length', `must have at most ${maxItems} items`);
        const parsed = v.safeParse(schema, value, { abortPipeEarly: true });
        if (parsed.success) return { value: parsed.output };
        throw new AppError('invalid-input', { errors: findFieldErrors(schema, parsed.issues, naming) });
      },
    },
  };
}

/** How deep lists stand in any request. */
const maxListDepth = 3;

/**
 * The place of a list with too many items. A schema looks at every item before it counts them: 130,000 bad ones, in a
 * body within the limit, take a second.
 */
function findLongList(value: unknown, depth = 0): readonly string[] | undefined {
  if (Array.isArray(value)) return value.length > maxItems ? [] : undefined;
  if (!isRecord(value) || depth >= maxListDepth) return undefined;
  for (const key in value) {
    const place = findLongList(value[key], depth + 1);
    if (place !== undefined) return [key, ...place];
  }
  return undefined;
}

/** The place of a list where the schema wants an object: valibot takes one for an object in which nothing is required. */
function findListForObject(schema: unknown, value: unknown): readonly string[] | undefined {
  if (!isRecord(schema) || typeof value !== 'object' || value === null) return undefined;
  if ('wrapped' in schema) return findListForObject(schema.wrapped, value);
  const { entries } = schema;
  if (!isRecord(entries)) return undefined;
  if (!isRecord(value)) return [];
  for (const key in value) {
    if (!Object.hasOwn(entries, key)) continue;
    const place = findListForObject(entries[key], value[key]);
    if (place !== undefined) return [key, ...place];
  }
  return undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function refusal(keys: readonly string[], rule: string, message: string): AppError {
  return new AppError('invalid-input', { errors: [{ pointer: toPointer(keys, 'pointer'), rule, message }] });
}
