import * as v from 'valibot';

/** The contract's envelope `{code, http_code, data, tokens}`, which the reference options alone are wrapped in. */
export function Envelope<Data extends v.GenericSchema, Tokens extends v.GenericSchema>(data: Data, tokens: Tokens) {
  return v.object({ code: v.number(), http_code: v.number(), data, tokens });
}

/** Wraps a success. 100 is the contract's code for it. */
export function envelope<Data, Tokens>(data: Data, tokens: Tokens) {
  return { code: 100, http_code: 200, data, tokens };
}
