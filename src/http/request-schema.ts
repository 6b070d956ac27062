import * as v from 'valibot';
import { AppError } from '../errors';
import { findFieldErrors, type Naming } from '../field-errors';

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

/** The `query` of a route without parameters. Unknown parameters are refused, as unknown fields are. */
export const noParameters = requestParameters(v.strictObject({}));

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
        const parsed = v.safeParse(schema, value, { abortPipeEarly: true });
        if (parsed.success) return { value: parsed.output };
        throw new AppError('invalid-input', { errors: findFieldErrors(schema, parsed.issues, naming) });
      },
    },
  };
}
