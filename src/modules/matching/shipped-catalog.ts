import * as v from 'valibot';
import { Catalog } from './catalog-model';
import catalog from './shipped-catalog.json' with { type: 'json' };

/** The catalogue that comes with the service, until an operator imports another. */
export const shippedCatalog = v.parse(Catalog, catalog);
