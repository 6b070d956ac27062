import * as v from 'valibot';
import { Catalog } from './catalog-model';
import catalog from './shipped-catalog.json' with { type: 'json' };

/** What the file holds: the same as is read from it, so that a start which need not store it need not read it. */
export const shippedFile: object = catalog;

/** The catalogue that comes with the service, until an operator imports another. */
export function readShippedCatalog(): Catalog {
  return v.parse(Catalog, shippedFile);
}
