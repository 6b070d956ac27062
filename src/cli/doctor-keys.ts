import { decodeJwt } from 'jose/jwt/decode';
import { developmentSecret } from '../auth/development-key';
import { type DescribedKey, fetchKeySet, KeySetError } from '../auth/key-set';
import { rolesIn } from '../auth/token-claims';
import { createTokenVerifier } from '../auth/token-verifier';
import type { Config } from '../config';
import { AppError, OperatorError } from '../errors';
import type { Finding } from './print';
import { counted } from './print';

const shownKeys = 20;

/** Whether tokens can be checked; for a JWKS, which of its keys are usable and why the others are not. */
export async function tokenKeysFinding({ auth: { key } }: Config): Promise<Finding> {
  const check = 'token keys';
  if (key.kind === 'development') return { check, result: 'warning', detail: 'a development key, kept in data/' };
  if (key.kind === 'secret') return { check, result: 'ok', detail: 'AUTH_SECRET' };
  if (key.kind === 'public-key') return { check, result: 'ok', detail: 'AUTH_PUBLIC_KEY' };
  try {
    const { keys } = await fetchKeySet(new URL(key.url));
    const usable = keys.filter(({ fault }) => fault === undefined);
    const remarks = [...unusableKeys(keys), ...sharedIds(usable)];
    const named = usable.slice(0, shownKeys).map((each) => `${nameOf(each)} (${each.algorithms.join(', ')})`);
    return {
      check,
      result: remarks.length === 0 ? 'ok' : 'warning',
      detail: [`AUTH_JWKS_URL has ${counted(usable.length, 'usable key')}: ${named.join(', ')}`, ...remarks].join('; '),
    };
  } catch (error) {
    if (!(error instanceof KeySetError)) throw error;
    const detail = [`AUTH_JWKS_URL ${error.message}`, ...unusableKeys(error.keys)].join('; ');
    return { check, result: 'failed', detail };
  }
}

function unusableKeys(keys: readonly DescribedKey[]): string[] {
  return keys
    .flatMap((key) => (key.fault === undefined ? [] : [`${nameOf(key)} is not usable: ${key.fault}`]))
    .slice(0, shownKeys);
}

function sharedIds(keys: readonly DescribedKey[]): string[] {
  const ids = keys.flatMap(({ kid }) => kid ?? []);
  const shared = ids.filter((kid, index) => ids.indexOf(kid) < index);
  return [...new Set(shared)].map((kid) => `several keys have the kid ${quoted(kid)}`).slice(0, shownKeys);
}

function nameOf({ kid }: DescribedKey): string {
  return kid === undefined ? 'a key without kid' : quoted(kid);
}

/** In printable ASCII: the text is from the network and goes to a terminal. */
function quoted(kid: string): string {
  return `"${kid.slice(0, 64).replace(/[^\x20-\x7e]/g, '?')}"`;
}

/** Reports the check that a token fails, or its number of roles; never its values, except a role of this service. */
export async function tokenFinding({ auth: { key, ...claims } }: Config, path: string): Promise<Finding> {
  const check = 'token';
  const file = Bun.file(path);
  if (!(await file.exists())) throw new OperatorError(`There is no file ${path}.`);
  const token = (await file.text()).trim();
  const settings = key.kind === 'development' ? { kind: 'secret' as const, secret: developmentSecret() } : key;
  const now = () => new Date();
  const verify = await createTokenVerifier({ key: settings, ...claims }, now, now);
  try {
    await verify(token);
  } catch (error) {
    if (error instanceof AppError) return { check, result: 'failed', detail: error.detail };
    throw error;
  }
  const { managerRole } = await import('../http/auth');
  const { rolesClaim } = claims;
  const roles = rolesIn(decodeJwt(token), rolesClaim);
  if (roles === undefined) {
    return { check, result: 'warning', detail: `passes; it has no claim ${rolesClaim}, so its caller has no role` };
  }
  const known = roles.includes(managerRole) ? `, ${managerRole} among them` : '';
  return { check, result: 'ok', detail: `passes; ${counted(roles.length, 'role')} in ${rolesClaim}${known}` };
}
