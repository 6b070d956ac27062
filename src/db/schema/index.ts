export { applicationAttempts, applications, idempotencyKeys, leases } from './applications';
export { auditEvents, auditRetention } from './audit';
export { catalogVersions, conditions, productDisqualifiers, productRules, products } from './catalog';
export { cemeteries } from './cemeteries';
export { referenceLists, referenceOptions } from './reference';
export { completedTasks, rowCounts } from './row-counts';
export { activities, activitySums, activitySumsProgress, staff } from './sales';
export { schemaCompatibility } from './schema-compatibility';
export { users } from './users';
