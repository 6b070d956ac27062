import createClient from 'openapi-fetch';
import type { paths } from 'types-of-document';

/** The journey of a frontend with generated types, from a profile to an application. */
export async function walk(baseUrl: string, token: string) {
  const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
  const saved = await client.POST('/v2/private/user/profile', {
    body: { firstName: 'Ada', dateOfBirth: '1956-12-10', heightCm: 165, weightKg: 61.5, tobacco: null },
  });
  const step = await client.POST('/v2/private/ltc/lifetimeCare', {
    body: { careFacilityType: 'inHome', relationshipStatus: 'married', propertyStatus: ['iRent'] },
  });
  const matched = await client.POST('/v2/private/engine/matches', { params: { query: { explain: true } } });
  const started = await client.POST('/v2/private/ltc/totalCoverage', {
    params: { header: { 'Idempotency-Key': 'walk' } },
    body: {
      firstName: 'Ada',
      lastName: 'Byron',
      dateOfBirth: '1956-12-10',
      gender: 'Female',
      state: 'VA',
      email: 'ada@example.com',
    },
  });
  const glance = await client.GET('/v2/private/user/salesManager/monthly-glance', {
    params: { query: { month: 'March' } },
  });
  const refused = await client.POST('/v2/private/ltc/lifetimeCare', { body: { careCosts: -1 } });
  return {
    firstName: saved.data?.user.profile?.firstName,
    relationshipStatus: step.data?.user.ltc.lifetimeCare?.relationshipStatus,
    isMatched: matched.data?.user.insurance.matches?.bestMatch?.explanation !== undefined,
    terms: started.data?.user.purchase.partner?.pricing[0]?.terms.length,
    glance: glance.error?.code,
    invalidField: refused.error?.code === 201 ? refused.error.errors[0]?.pointer : undefined,
  };
}

export async function refused(client: ReturnType<typeof createClient<paths>>) {
  // @ts-expect-error: a wrong value of an enum
  await client.POST('/v2/private/ltc/lifetimeCare', { body: { careFacilityType: 'atHome' } });
  // @ts-expect-error: an application without a name
  await client.POST('/v2/private/life/totalCoverage', { body: { firstName: 'Ada' } });
  // @ts-expect-error: no month
  await client.GET('/v2/private/user/salesManager/monthly-glance');
  // @ts-expect-error: an unknown path
  await client.GET('/v2/private/nowhere');
}

/** The `code` of an error determines its members, and the operation its possible codes. */
export async function narrowed(client: ReturnType<typeof createClient<paths>>) {
  const { error } = await client.POST('/v2/private/user/profile', { body: { firstName: 'Ada' } });
  if (error?.code === 204) {
    // @ts-expect-error: a malformed request has no list of errors
    return error.errors.length;
  }
  // @ts-expect-error: saving a profile calls no carrier
  return error?.code === 313;
}
