/** The paths of the contract that this service answers, and what each needs; the tests of the whole table walk it. */
export const privateRoutes = [
  { method: 'POST', path: '/v2/private/ltc/lifetimeCare' },
  { method: 'POST', path: '/v2/private/deepDives/lifeInsurance' },
  { method: 'POST', path: '/v2/private/deepDives/lifetimeCare' },
  { method: 'POST', path: '/v2/private/user/profile' },
  { method: 'GET', path: '/v2/private/user' },
  { method: 'GET', path: '/v2/private/cemetery/all' },
  { method: 'GET', path: '/v2/private/healthAndCare/' },
] as const;

export const saveRoutes = privateRoutes.filter(({ method }) => method === 'POST');
