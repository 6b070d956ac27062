import { CemeteryRecord } from '../modules/cemeteries/model';
import { createCemeteryStore } from '../modules/cemeteries/store';
import { identifier } from './arguments';
import type { RowsImport } from './import-rows';

const cemeteriesColumns = { columns: ['externalId', 'name', 'street', 'city', 'state', 'zip'] };

export const cemeteriesImport: RowsImport<typeof CemeteryRecord> = {
  name: 'cemeteries',
  columns: cemeteriesColumns,
  help: `Cemeteries are known by externalId. street and zip may be empty; a zip has 5 digits, or 5 and 4 with a
hyphen; externalId and city have at most 100 characters, name and street 200.`,
  configure: (command) =>
    command.option('--as <id>', 'who is named as the creator of new cemeteries', identifier, 'operator'),
  format: async () => ({ ...cemeteriesColumns, row: CemeteryRecord, keyOf: ({ externalId }) => externalId }),
  store(db, { as: createdBy = 'operator' }) {
    const store = createCemeteryStore(db);
    return (rows) => store.upsert(rows, { createdBy, now: new Date() });
  },
};
