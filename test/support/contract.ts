/** The routes that save answers; each returns the whole user. */
export const saveRoutes = [
  { method: 'POST', path: '/v2/private/ltc/lifetimeCare' },
  { method: 'POST', path: '/v2/private/deepDives/lifeInsurance' },
  { method: 'POST', path: '/v2/private/deepDives/lifetimeCare' },
  { method: 'POST', path: '/v2/private/user/profile' },
] as const;

/** Every private route of the contract. */
export const privateRoutes = [
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
