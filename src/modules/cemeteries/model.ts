import * as v from 'valibot';
import { line, optionalLine, StateCode } from '../../fields';
import { pageQuery } from '../../http/pagination';

export const Cemetery = v.object({
  _id: v.pipe(v.string(), v.description('24 hex digits')),
  name: v.string(),
  address: v.object({ street: v.string(), city: v.string(), state: v.string(), zip: v.string() }),
  createdBy: v.string(),
  createdAt: v.pipe(v.string(), v.description('ISO 8601, UTC')),
  updatedAt: v.pipe(v.string(), v.description('ISO 8601, UTC')),
  __v: v.pipe(v.number(), v.description('How often the record has changed')),
});
export type Cemetery = v.InferOutput<typeof Cemetery>;

export const CemeteryPage = v.object({
  data: v.object({
    cemeteries: v.array(Cemetery),
    count: v.pipe(v.number(), v.description('Cemeteries in all, not on this page')),
  }),
});
export type CemeteryPage = v.InferOutput<typeof CemeteryPage>;

export const CemeteryQuery = v.object({
  ...pageQuery,
  sort: v.optional(
    v.pipe(v.picklist(['asc', 'desc']), v.description('Direction by name, without case, then by _id')),
    'asc',
  ),
});
export type CemeteryQuery = v.InferOutput<typeof CemeteryQuery>;

/** A cemetery as it comes from outside, known by the id that its source gives it. */
export const CemeteryRecord = v.strictObject({
  externalId: line(100),
  name: line(200),
  street: v.optional(optionalLine(200), ''),
  city: line(100),
  state: StateCode,
  zip: v.optional(
    v.pipe(v.string(), v.trim(), v.regex(/^(?:\d{5}(?:-\d{4})?)?$/, 'zip: must be 5 digits, or 5 and 4, or empty')),
    '',
  ),
});
export type CemeteryRecord = v.InferOutput<typeof CemeteryRecord>;
