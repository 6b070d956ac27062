import { documentOfSources } from './traffic';

/** The routes that save answers; each returns the whole user. */
export const saveRoutes = [
  { method: 'POST', path: '/v2/private/ltc/lifetimeCare' },
  { method: 'POST', path: '/v2/private/deepDives/lifeInsurance' },
  { method: 'POST', path: '/v2/private/deepDives/lifetimeCare' },
  { method: 'POST', path: '/v2/private/user/profile' },
] as const;

/** The private routes that frontends rely on. A route that is added later need not be listed. */
export const contractRoutes = [
  ...saveRoutes,
  { method: 'GET', path: '/v2/private/user' },
  { method: 'POST', path: '/v2/private/engine/matches' },
  { method: 'POST', path: '/v2/private/engine/preview' },
  { method: 'POST', path: '/v2/private/ltc/totalCoverage' },
  { method: 'POST', path: '/v2/private/life/totalCoverage' },
  { method: 'GET', path: '/v2/private/user/applications' },
  { method: 'GET', path: '/v2/private/cemetery/all' },
  { method: 'GET', path: '/v2/private/user/salesManager/monthly-glance' },
  { method: 'GET', path: '/v2/private/healthAndCare/' },
] as const;

/** Every private operation of the OpenAPI document. */
export const privateRoutes = (await documentOfSources()).operations.filter(({ isPrivate }) => isPrivate);
