import * as v from 'valibot';
import { AppError } from '../errors';
import { findFieldErrors, type Naming } from './field-errors';

/** The `body` of a route. Faults are named by JSON pointer. */
export function requestBody<Schema extends v.GenericSchema>(schema: Schema) {
  return refusing(schema, 'pointer');
}

/** The `query` or `params` of a route. Faults are named by the parameter. */
export function requestParameters<Schema extends v.GenericSchema>(schema: Schema) {
  return refusing(schema, 'dotted');
}

/**
 * The schema, but whatever breaks it is thrown as `invalid-input`. Left alone, Elysia would write the value and every
 * issue into its own error's message, which takes seconds of the one thread for a small body with many faults.
 */
function refusing<Schema extends v.GenericSchema>(schema: Schema, naming: Naming) {
  return {
    ...schema,
    documents: schema,
    '~standard': {
      ...schema['~standard'],
      validate(value: unknown) {
        const parsed = v.safeParse(schema, value);
        if (parsed.success) return { value: parsed.output };
        throw new AppError('invalid-input', { errors: findFieldErrors(schema, parsed.issues, naming) });
      },
    },
  };
}
