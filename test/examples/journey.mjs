// The whole journey with the typed client: profile, long-term-care step, both deep dives, matches and application.
//
//   npm run build:client && node test/examples/journey.mjs        (or: bun test/examples/journey.mjs)
//   BASE=https://planning.example.com TOKEN=... node test/examples/journey.mjs
//
// Without TOKEN it uses the demo user's token of the latest start in this folder (npm start).
// @ts-check
import { readFile, stat } from 'node:fs/promises';

/** @typedef {import('personal-planning-service/client').ClientError} ClientError */
/** @template Data @typedef {import('personal-planning-service/client').Result<Data>} Result */

// In a frontend: import { createClient } from 'personal-planning-service/client';
const { createClient } = await import('personal-planning-service/client').catch(() =>
  stop('The client is not built: npm run build:client'),
);

const baseUrl = process.env.BASE ?? 'http://127.0.0.1:3000';
const client = createClient({
  baseUrl,
  // Called for each attempt, so that an expired token can be replaced.
  token: async () => process.env.TOKEN ?? (await demoToken()),
});

const saved = await client.saveProfile({
  firstName: 'Ada',
  dateOfBirth: '1956-12-10',
  state: 'VA',
  heightCm: 165,
  weightKg: 61.5,
});
print('Save the profile', dataOf(saved).user.profile);

const refused = await client.saveProfile({ heightCm: 20 });
if (refused.error === undefined) stop('A height of 20 cm was saved');
print('An invalid field is rejected, and nothing is stored', explain(refused.error));

const ltc = await client.saveLtcLifetimeCare(
  { careFacilityType: 'inHome', relationshipStatus: 'married', careCosts: 4500, policyValue: 250_000 },
  { ifMatch: saved.etag },
);
print('Save the long-term-care step, unless the record has changed since (ifMatch)', dataOf(ltc).user.ltc.lifetimeCare);

const life = await client.saveLifeInsurance({
  livingStatus: 'stayHome',
  billsAndDebt: ['mortgage', 'cc'],
  customSelections: [{ title: 'My niece' }],
});
print('Save the life-insurance deep dive', dataOf(life).user.lifeInsurance);

const care = await client.saveLifetimeCare({
  careFacilityType: 'assistedLiving',
  familyHistory: ['stroke'],
  hobbies: [{ id: 0, title: 'Gardening' }],
});
print('Save the lifetime-care deep dive', dataOf(care).user.lifetimeCare);

// The signal aborts the call after ten seconds; a page would abort it when the user leaves.
const matched = await client.matchProducts({ explain: true }, { signal: AbortSignal.timeout(10_000) });
const { bestMatch, remainingMatches } = dataOf(matched).user.insurance.matches ?? stop('There are no matches');
print('Match products with reasons', {
  bestMatch: bestMatch?.productName,
  score: bestMatch?.score,
  because: bestMatch?.explanation?.rules.filter(({ outcome }) => outcome === 'met').map(({ text }) => text),
  others: remainingMatches.map(({ productName, score }) => `${productName} (${score})`),
});

const applicant = /** @type {const} */ ({
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1956-12-10',
  gender: 'Female',
  state: 'VA',
  email: 'ada@example.com',
});
// One key for each application. Store it across page reloads: a repeat with the same key starts no second application.
const idempotencyKey = crypto.randomUUID();
const first = dataOf(await client.startLtcApplication(applicant, { idempotencyKey }));
const again = dataOf(await client.startLtcApplication(applicant, { idempotencyKey }));
print('Start an application at the carrier, once for repeated requests', {
  appNumber: first.user.purchase.partner?.appNumber,
  sentAgain: again.user.purchase.partner?.appNumber,
});

print('List the applications', dataOf(await client.listApplications()).data.applications);

const read = await client.getUser();
print('Read it all back', dataOf(read).user);

if (read.etag !== undefined) {
  const newer = await client.getUser({ ifNoneMatch: read.etag });
  print('Read it again only if it has changed (ifNoneMatch)', { isNotModified: newer.isNotModified });
}

/**
 * Returns the data of a successful call and exits otherwise.
 *
 * @template Data
 * @param {Result<Data>} result
 * @returns {Data}
 */
function dataOf(result) {
  if (result.error === undefined) return result.data;
  return stop(`${explain(result.error)} (request ${result.requestId})`);
}

/**
 * Returns a message for the user. `slug` determines the kind of error and its members.
 *
 * @param {ClientError} error
 * @returns {string}
 */
function explain(error) {
  switch (error.slug) {
    case 'invalid-input':
      return error.errors.map(({ pointer, rule, message }) => `${pointer} ${message} (${rule})`).join('\n');
    case 'unauthenticated':
      return 'Sign in again: the token is not valid or has expired.';
    case 'precondition-failed':
      return 'The record was changed elsewhere: read it again.';
    case 'carrier-unavailable':
    case 'carrier-timeout':
      return `The carrier cannot be reached: try again in ${error.retryAfterSeconds ?? 60} seconds.`;
    case 'network-failure':
    case 'timed-out':
      return 'The service cannot be reached. Start it with: npm start';
    default:
      return 'title' in error ? `${error.title}: ${error.detail}` : error.slug;
  }
}

/** @returns {Promise<string>} */
async function demoToken() {
  // A demo writes a token file with its port in the name.
  const names = ['demo-tokens.json', `demo-${new URL(baseUrl).port}-tokens.json`];
  const found = [];
  for (const name of names) {
    const file = new URL(`../../data/${name}`, import.meta.url);
    const writtenAtMs = await stat(file)
      .then(({ mtimeMs }) => mtimeMs)
      .catch(() => undefined);
    if (writtenAtMs !== undefined) found.push({ file, writtenAtMs });
  }
  const [newest] = found.sort((one, other) => other.writtenAtMs - one.writtenAtMs);
  if (newest === undefined) stop('Set TOKEN, or start the service in this folder first: npm start');
  return JSON.parse(await readFile(newest.file, 'utf8'))['demo-user'];
}

/**
 * @param {string} title
 * @param {unknown} value
 */
function print(title, value) {
  console.log(`\n== ${title}\n${typeof value === 'string' ? value : JSON.stringify(value, null, 2)}`);
}

/**
 * @param {string} reason
 * @returns {never}
 */
function stop(reason) {
  console.error(`\n${reason}`);
  process.exit(1);
}
