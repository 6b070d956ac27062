import type * as v from 'valibot';

/** Elysia's own types lose that a route's schemas are valibot's. */
export function isValibotSchema(value: unknown): value is v.GenericSchema {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'schema' && '~run' in value;
}
