export {
  activities,
  activitySums,
  activitySumsProgress,
  cemeteries,
  completedTasks,
  referenceLists,
  referenceOptions,
  rowCounts,
  schemaCompatibility,
  staff,
} from './directory';
export {
  applicationAttempts,
  applications,
  auditEvents,
  auditRetention,
  idempotencyKeys,
  leases,
  users,
} from './people';
export { catalogVersions, conditions, productDisqualifiers, productRules, products } from './products';
