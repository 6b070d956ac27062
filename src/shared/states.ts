/**
 * USPS codes of the 50 states, the District of Columbia, the territories, the freely associated states and the armed
 * forces (Publication 28, appendix B), with their names there.
 */
const states = {
  AL: 'Alabama',
  AK: 'Alaska',
  AZ: 'Arizona',
  AR: 'Arkansas',
  CA: 'California',
  CO: 'Colorado',
  CT: 'Connecticut',
  DE: 'Delaware',
  FL: 'Florida',
  GA: 'Georgia',
  HI: 'Hawaii',
  ID: 'Idaho',
  IL: 'Illinois',
  IN: 'Indiana',
  IA: 'Iowa',
  KS: 'Kansas',
  KY: 'Kentucky',
  LA: 'Louisiana',
  ME: 'Maine',
  MD: 'Maryland',
  MA: 'Massachusetts',
  MI: 'Michigan',
  MN: 'Minnesota',
  MS: 'Mississippi',
  MO: 'Missouri',
  MT: 'Montana',
  NE: 'Nebraska',
  NV: 'Nevada',
  NH: 'New Hampshire',
  NJ: 'New Jersey',
  NM: 'New Mexico',
  NY: 'New York',
  NC: 'North Carolina',
  ND: 'North Dakota',
  OH: 'Ohio',
  OK: 'Oklahoma',
  OR: 'Oregon',
  PA: 'Pennsylvania',
  RI: 'Rhode Island',
  SC: 'South Carolina',
  SD: 'South Dakota',
  TN: 'Tennessee',
  TX: 'Texas',
  UT: 'Utah',
  VT: 'Vermont',
  VA: 'Virginia',
  WA: 'Washington',
  WV: 'West Virginia',
  WI: 'Wisconsin',
  WY: 'Wyoming',
  DC: 'District of Columbia',
  AS: 'American Samoa',
  GU: 'Guam',
  MP: 'Northern Mariana Islands',
  PR: 'Puerto Rico',
  VI: 'Virgin Islands',
  FM: 'Federated States of Micronesia',
  MH: 'Marshall Islands',
  PW: 'Palau',
  AA: 'Armed Forces Americas',
  AE: 'Armed Forces Europe',
  AP: 'Armed Forces Pacific',
} as const;

/** Alternative names, as browsers and spreadsheets write them. */
const otherNames: readonly (readonly [name: string, code: string])[] = [
  ['Washington DC', 'DC'],
  ['Commonwealth of the Northern Mariana Islands', 'MP'],
  ['US Virgin Islands', 'VI'],
  ['United States Virgin Islands', 'VI'],
  ['Virgin Islands US', 'VI'],
  ['Micronesia', 'FM'],
  ['Republic of the Marshall Islands', 'MH'],
  ['Republic of Palau', 'PW'],
];

/** Longer texts are rejected without a lookup. */
const maxCharacters = 200;

export const stateCodes = Object.keys(states);
export const stateNames: readonly string[] = Object.values(states);

const codes = new Map(
  [
    ...Object.entries(states).flatMap(([code, name]) => [[code, code] as const, [name, code] as const]),
    ...otherNames,
  ].map(([spelling, code]) => [spelling.toLowerCase(), code]),
);

/**
 * Finds a state by its code or name, in any case, with or without full stops and commas. Only ASCII is accepted: letters of
 * other scripts may have an upper case of A to Z.
 */
export function findStateCode(text: string): string | undefined {
  if (text.length > maxCharacters) return undefined;
  const spelling = text.replace(/[.,]/g, '').trim().replace(/\s+/g, ' ');
  return /^[A-Za-z ]+$/.test(spelling) ? codes.get(spelling.toLowerCase()) : undefined;
}
