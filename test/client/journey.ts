import type * as Library from '../../src/client';

/**
 * The calls of a frontend from the first read to the application, with every error that one user can cause. Runs in any
 * runtime and returns the outcome, which must be equal in all.
 */
export async function journey({ createClient, dataOf, CallFailure }: typeof Library, baseUrl: string, token: string) {
  const client = createClient({ baseUrl, token: async () => token });
  const applicant = {
    firstName: 'Ada',
    lastName: 'Byron',
    dateOfBirth: '1956-12-10',
    gender: 'Female',
    state: 'VA',
    email: 'ada@example.com',
  } as const;

  const before = await client.getUser();
  const saved = await client.saveProfile({
    firstName: 'Ada',
    dateOfBirth: '1956-12-10',
    heightCm: 165,
    weightKg: 61.5,
  });
  const etag = saved.etag ?? '';
  const unchanged = await client.getUser({ ifNoneMatch: etag });
  const moved = await client.saveLtcLifetimeCare({ relationshipStatus: 'married', careCosts: 4500 }, { ifMatch: etag });
  const late = await client.saveProfile({ lastName: 'Late' }, { ifMatch: etag });
  const bad = await client.saveProfile({ heightCm: 1, weightKg: 1 });
  const { user } = await dataOf(client.matchProducts({ explain: true }));
  const preview = await dataOf(client.previewMatches({ profile: { seriousIllness: true } }));
  const first = await dataOf(client.startLtcApplication(applicant));
  const again = await dataOf(client.startLtcApplication({ ...applicant, email: 'ADA@example.com' }));
  const busy = await client.startLifeApplication({ ...applicant, lastName: 'Busy' }, { attempts: 1 });
  const { data } = await dataOf(client.listApplications());
  const cemeteries = await dataOf(client.listCemeteries({ page: 1, limit: 3 }));
  const lists = await dataOf(client.getHealthAndCare());
  const glance = await client.getMonthlyGlance({ month: 'March' });
  const aborted = await client.getUser({ signal: abortedSignal() });
  const unauthenticated = await createClient({ baseUrl, token: 'unknown' }).getUser();
  const nowhere = await createClient({ baseUrl: 'http://127.0.0.1:1', token, attempts: 1 }).getUser();
  const thrown = await dataOf(client.getMonthlyGlance({ month: 'Smarch' })).catch((error: unknown) => error);

  return {
    before: before.error?.slug,
    firstName: saved.error === undefined ? saved.data.user.profile?.firstName : saved.error,
    hasRequestId: /^[\w-]{8,64}$/.test(saved.requestId),
    unchanged: unchanged.isNotModified,
    moved: moved.error === undefined ? moved.data.user.ltc.lifetimeCare?.relationshipStatus : moved.error,
    late: late.error?.slug,
    badFields: bad.error?.slug === 'invalid-input' ? bad.error.errors.map(({ pointer }) => pointer) : bad.error,
    hasExplanation: user.insurance.matches?.remainingMatches[0]?.explanation !== undefined,
    previewed: preview.data.matches.remainingMatches.length > 0,
    isSameApplication:
      first.user.purchase.partner?.appNumber !== undefined &&
      first.user.purchase.partner.appNumber === again.user.purchase.partner?.appNumber,
    busy: busy.error?.slug,
    busyAgainIn: busy.error?.slug === 'carrier-unavailable' ? busy.error.retryAfterSeconds : undefined,
    applications: data.applications.map(({ flow }) => flow),
    cemeteries: cemeteries.data.cemeteries.length,
    hobbies: lists.data.hobbies.length,
    glance: glance.error?.slug,
    aborted: aborted.error?.slug,
    unauthenticated: unauthenticated.error?.slug,
    nowhere: nowhere.error?.slug,
    thrown: thrown instanceof CallFailure ? thrown.error.slug : thrown,
  };
}

/** A minimal signal on platforms without AbortController. */
function abortedSignal(): AbortSignal {
  if (typeof AbortController === 'function') {
    const controller = new AbortController();
    controller.abort();
    return controller.signal;
  }
  const ignore = () => undefined;
  return { aborted: true, addEventListener: ignore, removeEventListener: ignore } as never;
}

export const journeyOutcome = {
  before: 'user-not-found',
  firstName: 'Ada',
  hasRequestId: true,
  unchanged: true,
  moved: ['married'],
  late: 'precondition-failed',
  badFields: ['/heightCm', '/weightKg'],
  hasExplanation: true,
  previewed: true,
  isSameApplication: true,
  busy: 'carrier-unavailable',
  busyAgainIn: 1,
  applications: ['life', 'ltc'],
  cemeteries: 3,
  hobbies: 55,
  glance: 'forbidden',
  aborted: 'aborted',
  unauthenticated: 'unauthenticated',
  nowhere: 'network-failure',
  thrown: 'forbidden',
};

/** Removes features that older platforms lack from a realm. Its source text also runs on a page and in Node.js. */
export function makeOlder(): void {
  const missing: readonly (readonly [holder: object, names: readonly string[]])[] = [
    [globalThis, ['crypto', 'AbortController', 'AbortSignal', 'URLSearchParams', 'structuredClone']],
    [globalThis.URL ?? {}, ['canParse', 'parse']],
    [Object, ['hasOwn', 'groupBy']],
    [Promise, ['withResolvers', 'try', 'any']],
    [Array, ['fromAsync']],
    [Array.prototype, ['at', 'findLast', 'findLastIndex', 'toSorted', 'toReversed', 'toSpliced', 'with']],
    [String.prototype, ['at', 'replaceAll', 'isWellFormed', 'toWellFormed']],
  ];
  for (const [holder, names] of missing) {
    for (const name of names) {
      Reflect.deleteProperty(holder, name);
      if (name in holder) throw new Error(`${name} cannot be removed`);
    }
  }
}
