import { toJsonSchema } from '@valibot/to-json-schema';
import {
  AllOf,
  AnyOf,
  Catalog,
  CatalogCondition,
  CatalogProduct,
  CatalogRule,
  Comparison,
  Condition,
  Not,
} from './catalog-model';

const definitions = { AllOf, AnyOf, CatalogCondition, CatalogProduct, CatalogRule, Comparison, Condition, Not };
const forms = ['Comparison', 'AllOf', 'AnyOf', 'Not'].map((name) => ({ $ref: `#/$defs/${name}` }));

/** The JSON Schema of a catalogue's file, for editors. What spans several parts only an import can check. */
export function catalogJsonSchema(): object {
  return toJsonSchema(Catalog, {
    target: 'draft-2020-12',
    typeMode: 'input',
    errorMode: 'ignore',
    definitions,
    // The form of a condition is chosen by its key, which a conversion cannot see.
    overrideSchema: ({ valibotSchema }) => (valibotSchema === Condition ? { anyOf: forms } : undefined),
  });
}
