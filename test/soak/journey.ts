/** A request of a journey with its expected statuses. */
export interface Step {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly expected: readonly number[];
}

const states = ['VA', 'CA', 'TX', 'NY', 'FL', 'WA'];
const pick = <Item>(items: readonly Item[]): Item | undefined => items[Math.trunc(Math.random() * items.length)];
const whole = (below: number) => Math.trunc(Math.random() * below);
const isOneIn = (chances: number) => whole(chances) === 0;

const post = (name: string, path: string, body: object, expected: readonly number[] = [200]): Step => ({
  name,
  method: 'POST',
  path: `/v2/private${path}`,
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
  expected,
});
const get = (name: string, path: string, expected: readonly number[] = [200], headers = {}): Step => ({
  name,
  method: 'GET',
  path: `/v2/private${path}`,
  headers,
  expected,
});

/** The random requests of one visit of a user: mostly valid forms, sometimes invalid requests. */
export function journeyOf(person: number): Step[] {
  const identity = {
    firstName: 'Soak',
    lastName: `Person ${person}${isOneIn(20) ? ` ${whole(1e9)}` : ''}`,
    dateOfBirth: `19${40 + (person % 30)}-0${1 + (person % 9)}-1${person % 9}`,
    gender: person % 2 === 0 ? 'Female' : 'Male',
    state: states[person % states.length] ?? 'VA',
    email: `soak-${person}@example.com`,
  };
  const careFacilityType = pick(['inHome', 'assistedLiving', 'notSure']);
  const visit = [
    post('profile', '/user/profile', {
      ...identity,
      heightCm: 150 + whole(50),
      weightKg: 50 + whole(60),
      tobacco: isOneIn(4),
    }),
    post('ltc step', '/ltc/lifetimeCare', {
      careFacilityType,
      relationshipStatus: 'married',
      careCosts: whole(10_000),
      policyValue: whole(500_000),
      selections: [{ id: whole(5), title: 'An inheritance for my family' }],
    }),
    post('life deep dive', '/deepDives/lifeInsurance', {
      livingStatus: pick(['stayHome', 'rent']),
      billsAndDebt: ['mortgage', 'cc'],
      customSelections: [{ title: `Person ${whole(100)}` }],
    }),
    post('care deep dive', '/deepDives/lifetimeCare', {
      careFacilityType,
      careSafety: whole(10),
      familyHistory: ['stroke'],
      hobbies: [{ id: 0, title: 'Gardening' }, { title: 'Restoring radios' }],
    }),
    post('matches', `/engine/matches${isOneIn(3) ? '?explain=true' : ''}`, {}),
    post('preview', '/engine/preview', { ltc: { careCosts: whole(9000) }, profile: { seriousIllness: isOneIn(2) } }),
    get('read', '/user'),
    get('read, known', '/user', [304], { 'if-none-match': '*' }),
    get('lists', '/healthAndCare/'),
    get('cemeteries', `/cemetery/all?page=${1 + whole(3)}&limit=${1 + whole(20)}&sort=${pick(['asc', 'desc'])}`),
  ];
  // Two simultaneous visits of one user share an application; the second may get 409.
  if (isOneIn(3)) visit.push(post('coverage', `/${pick(['ltc', 'life'])}/totalCoverage`, identity, [200, 409]));
  if (isOneIn(3)) visit.push(get('applications', '/user/applications'));
  if (isOneIn(4)) visit.push(get('glance', `/user/salesManager/monthly-glance?month=${1 + whole(12)}`));
  if (isOneIn(2)) visit.push(pick(refused) ?? get('read', '/user'));
  return visit;
}

const refused: readonly Step[] = [
  get('no such path', '/nowhere', [404]),
  { ...get('no such method', '/user', [405]), method: 'DELETE' },
  { ...get('a bad token', '/user', [401]), headers: { authorization: 'Bearer invalid' } },
  get('a bad page', '/cemetery/all?page=0', [422]),
  post('bad fields', '/user/profile', { email: 'x', heightCm: 'tall', unknown: 1 }, [422]),
  { ...post('invalid JSON', '/ltc/lifetimeCare', {}, [400]), body: '{' },
  { ...post('another media type', '/ltc/lifetimeCare', {}, [415]), headers: { 'content-type': 'text/plain' } },
  {
    ...post('an old version', '/user/profile', {}, [412]),
    headers: { 'content-type': 'application/json', 'if-match': '"1-1"' },
  },
  { ...post('too large', '/user/profile', {}, [413]), body: JSON.stringify({ firstName: 'x'.repeat(300_000) }) },
];
