import * as v from 'valibot';
import { CemeteryRecord } from './model';

/** Made-up cemeteries for development: no such place exists. */
export const demoCemeteries: readonly CemeteryRecord[] = [
  ['Amber Hill Memorial Park', '100 Amber Hill Road', 'Springfield', 'IL', '62701'],
  ['Bluestone Gardens', '18 Quarry Lane', 'Burlington', 'VT', '05401'],
  ['Cedar Rest Cemetery', '2400 Cedar Street', 'Eugene', 'OR', '97401'],
  ['Dovecote Memorial Gardens', '77 Meadow Way', 'Savannah', 'GA', '31401'],
  ['Evergreen Ridge', '9 Summit Avenue', 'Boise', 'ID', '83702'],
  ['Fernwood Peace Park', '310 Fernwood Drive', 'Madison', 'WI', '53703'],
  ['Golden Prairie Cemetery', '', 'Salina', 'KS', '67401'],
  ['Harbor Light Memorial Park', '55 Shore Road', 'Portland', 'ME', '04101'],
  ['Ironwood Desert Gardens', '8800 Ironwood Trail', 'Tucson', 'AZ', '85701'],
  ['Juniper Valley Cemetery', '12 Valley Court', 'Santa Fe', 'NM', '87501'],
  ['Kindred Oaks', '641 Oak Hollow', 'Austin', 'TX', '78701'],
  ['Lakeview Meadow Cemetery', '4 Lakeview Circle', 'Duluth', 'MN', '55802'],
].map(([name, street, city, state, zip], index) =>
  v.parse(CemeteryRecord, { externalId: `demo-${String(index + 1).padStart(2, '0')}`, name, street, city, state, zip }),
);
