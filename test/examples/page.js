// The script of page.html. The token stays in memory, because every script of the origin can read stored tokens.
// @ts-check
import { createClient } from './client.js';

/** @typedef {import('./client.js').Client} Client */
/** @typedef {import('./client.js').ClientError} ClientError */
/** @typedef {import('./client.js').User} User */

const service = document.documentElement.dataset.service ?? '';
const numberNames = ['heightCm', 'weightKg'];

/** @type {Client | undefined} */
let client;
/** @type {string | undefined} The ETag of the displayed record, so that a save overwrites no newer version. */
let etag;

const signIn = element('sign-in', HTMLFormElement);
const profile = element('profile', HTMLFormElement);

let isBusy = false;

onEvent(signIn, 'submit', async () => {
  const token = element('token', HTMLInputElement);
  client = createClient({ baseUrl: service, token: token.value.trim() });
  token.value = '';
  await showRecord(client);
});

onEvent(profile, 'submit', async () => {
  if (client === undefined) return;
  const result = await client.saveProfile(formValues(), { ifMatch: etag });
  if (result.error === undefined) {
    show(result.data.user, result.etag);
    element('saved', HTMLElement).textContent = 'Saved';
  } else if ('errors' in result.error && result.error.errors.length > 0) {
    showErrors(result.error.errors);
  } else {
    if (result.error.slug === 'precondition-failed') await showRecord(client);
    refuse(result.error, result.requestId);
  }
});

onEvent(element('match', HTMLButtonElement), 'click', async () => {
  if (client === undefined) return;
  const result = await client.matchProducts({ explain: true });
  if (result.error !== undefined) return refuse(result.error, result.requestId);
  // A response with explanations has no ETag; the record has one.
  await showRecord(client);
  showMatches(result.data.user);
});

/**
 * Handles one event at a time: a second save with the same ETag would fail.
 *
 * @param {HTMLElement} target
 * @param {string} name
 * @param {() => Promise<void>} act
 */
function onEvent(target, name, act) {
  target.addEventListener(name, async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    clearErrors();
    await act().finally(() => {
      isBusy = false;
    });
  });
}

/** @param {Client} client */
async function showRecord(client) {
  const result = await client.getUser();
  if (result.error === undefined) show(result.data.user, result.etag);
  else if (result.error.slug === 'user-not-found') show(undefined, undefined);
  else refuse(result.error, result.requestId);
}

/**
 * @param {User | undefined} user
 * @param {string | undefined} tag
 */
function show(user, tag) {
  etag = tag;
  element('signed-in', HTMLElement).hidden = false;
  // Hiding the form would lose the focus.
  if (!signIn.hidden) element('firstName', HTMLInputElement).focus();
  signIn.hidden = true;
  const values = new Map(Object.entries(user?.profile ?? {}));
  for (const input of profile.querySelectorAll('input')) input.value = String(values.get(input.name) ?? '');
  const rows = Object.entries({
    Name: [user?.profile?.firstName, user?.profile?.lastName].filter(Boolean).join(' '),
    'Care wished for': user?.ltc.lifetimeCare?.careFacilityType,
    'Best match': user?.insurance.matches?.bestMatch?.productName,
    Application: user?.purchase.partner?.appNumber,
    'Last change': user === undefined ? undefined : new Date(user.updatedAt).toLocaleString(),
  });
  element('record', HTMLElement).replaceChildren(
    ...rows.flatMap(([name, value]) => [made('dt', name), made('dd', String(value || '–'))]),
  );
  showMatches(user);
}

/** @param {User | undefined} user */
function showMatches(user) {
  const matches = user?.insurance.matches;
  const all = [...(matches?.bestMatch ? [matches.bestMatch] : []), ...(matches?.remainingMatches ?? [])];
  element('matches', HTMLElement).replaceChildren(
    ...all.map(({ productName, score, explanation }) => {
      const met = explanation?.rules.filter(({ outcome }) => outcome === 'met') ?? [];
      const reasons = made('ul', '');
      reasons.append(...met.map(({ text, points }) => made('li', points === 0 ? text : `${text} (${points})`)));
      const details = made('details', '');
      details.append(made('summary', `${productName}: ${score}`), reasons);
      const item = made('li', '');
      item.append(details);
      return item;
    }),
  );
}

/** The form values for the API: an empty field becomes null, which removes the answer. */
function formValues() {
  const entries = [...new FormData(profile)].map(([name, value]) => {
    const text = String(value).trim();
    if (text === '') return [name, null];
    return [name, numberNames.includes(name) ? Number(text) : text];
  });
  return Object.fromEntries(entries);
}

/**
 * Shows each error at its field, also for screen readers, and focuses the first one.
 *
 * @param {Extract<ClientError, { errors: unknown }>['errors']} errors
 */
function showErrors(errors) {
  for (const { pointer, message } of errors) {
    const input = profile.elements.namedItem(pointer.slice(1));
    if (!(input instanceof HTMLInputElement)) continue;
    const notice = made('p', `This ${message}.`);
    notice.id = `${input.id}-error`;
    notice.className = 'field-error';
    input.setAttribute('aria-invalid', 'true');
    input.setAttribute('aria-describedby', notice.id);
    input.after(notice);
  }
  profile.querySelector('[aria-invalid]')?.closest('input')?.focus();
}

function clearErrors() {
  for (const notice of profile.querySelectorAll('.field-error')) notice.remove();
  for (const input of profile.querySelectorAll('input')) {
    input.removeAttribute('aria-invalid');
    input.removeAttribute('aria-describedby');
  }
  element('notice', HTMLElement).replaceChildren();
  element('saved', HTMLElement).textContent = '';
}

/**
 * Shows an error with a link to its page. After a 401 the user must sign in again.
 *
 * @param {ClientError} error
 * @param {string} requestId
 */
function refuse(error, requestId) {
  if (error.slug === 'unauthenticated') {
    // Personal data must not stay on the page.
    show(undefined, undefined);
    signIn.hidden = false;
    element('signed-in', HTMLElement).hidden = true;
    element('token', HTMLInputElement).focus();
  }
  const notice = element('notice', HTMLElement);
  notice.replaceChildren(made('p', `${explain(error)} (request ${requestId})`));
  if (!('type' in error)) return;
  const link = made('a', 'Read about this problem');
  link.setAttribute('href', new URL(error.type, service).href);
  notice.append(link);
}

/** @param {ClientError} error */
function explain(error) {
  switch (error.slug) {
    case 'unauthenticated':
      return 'The token is not valid or has expired. Sign in again.';
    case 'precondition-failed':
      return 'The record was changed elsewhere. The page shows the current version.';
    case 'rate-limited':
      return `Too many requests: try again in ${error.retryAfterSeconds ?? 60} seconds.`;
    case 'network-failure':
      return `The service does not respond, or does not list this page in CORS_ORIGINS: ${service}`;
    default:
      return 'title' in error ? `${error.title}. ${error.detail}` : error.slug;
  }
}

/**
 * @param {keyof HTMLElementTagNameMap} name
 * @param {string} text is shown as text, never as HTML
 */
function made(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/**
 * @template {HTMLElement} Kind
 * @param {string} id
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
function element(id, kind) {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new Error(`There is no ${id}`);
}
