export { cemeteries } from './cemeteries';
export { referenceLists, referenceOptions } from './reference';
export { users } from './users';
