import { afterAll, beforeEach, describe, expect, test } from 'bun:test';
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT } from 'jose';
import { createRemoteKeys } from '../../src/auth/key-set';

const minute = 60_000;
const first = await generateKeyPair('ES256');
const second = await generateKeyPair('ES256');
let published: { kid: string; key: CryptoKey }[] = [];
let isDown = false;
let fetches = 0;
let hangsMs = 0;
let nowMs = 1;

const server = Bun.serve({
  port: 0,
  async fetch() {
    fetches += 1;
    await Bun.sleep(hangsMs);
    if (isDown) return new Response('no', { status: 500 });
    const keys = await Promise.all(
      published.map(async ({ kid, key }) => ({ ...(await exportJWK(key)), kid, alg: 'ES256' })),
    );
    return Response.json({ keys });
  },
});
afterAll(() => server.stop(true));

beforeEach(() => {
  published = [{ kid: 'first', key: first.publicKey }];
  isDown = false;
  fetches = 0;
  hangsMs = 0;
});

const verifier = () => createRemoteKeys(server.url, () => nowMs);
const token = (kid: string, key: CryptoKey) =>
  new SignJWT({}).setProtectedHeader({ alg: 'ES256', kid }).setExpirationTime('10y').sign(key);
const later = (ms: number) => {
  nowMs += ms;
};

/** Waits for the background refresh. */
async function fetched(count: number) {
  const deadline = performance.now() + 2000;
  while (fetches < count && performance.now() < deadline) await Bun.sleep(1);
  expect(fetches).toBe(count);
}

describe('keys from a JWKS URL', () => {
  test('load once for many tokens, and again after ten minutes', async () => {
    const keys = verifier();
    const jwt = await token('first', first.privateKey);
    for (let count = 0; count < 5; count += 1) await keys(jwt, {});
    expect(fetches).toBe(1);
    later(10 * minute);
    await keys(jwt, {});
    await fetched(2);
  });

  test('load only once for unknown key ids within the cooldown', async () => {
    const keys = verifier();
    await keys(await token('first', first.privateKey), {});
    for (let count = 0; count < 5; count += 1) {
      await expect(keys(await token(`unknown-${count}`, second.privateKey), {})).rejects.toThrow();
    }
    expect(fetches).toBe(1);
  });

  test('include a rotated key after the cooldown', async () => {
    const keys = verifier();
    await keys(await token('first', first.privateKey), {});
    published = [{ kid: 'second', key: second.publicKey }];
    later(31_000);
    expect((await keys(await token('second', second.privateKey), {})).protectedHeader.kid).toBe('second');
  });

  test('stay valid for an hour while the URL fails, with one request every five seconds at most', async () => {
    const keys = verifier();
    const jwt = await token('first', first.privateKey);
    await keys(jwt, {});
    isDown = true;
    later(59 * minute);
    for (let count = 0; count < 5; count += 1) await keys(jwt, {});
    await fetched(2);
    later(2 * minute);
    await expect(keys(jwt, {})).rejects.toMatchObject({ slug: 'auth-keys-unavailable' });
  });

  test('refresh in the background while the cached keys are valid', async () => {
    const keys = verifier();
    const jwt = await token('first', first.privateKey);
    await keys(jwt, {});
    hangsMs = 2000;
    later(11 * minute);
    const startedAtMs = performance.now();
    await keys(jwt, {});
    expect(performance.now() - startedAtMs).toBeLessThan(1000);
    await fetched(2);
  });

  test('fail at once when none was ever loaded, and recover by themselves', async () => {
    isDown = true;
    const keys = verifier();
    const jwt = await token('first', first.privateKey);
    for (let count = 0; count < 5; count += 1) {
      await expect(keys(jwt, {})).rejects.toMatchObject({ slug: 'auth-keys-unavailable' });
    }
    isDown = false;
    later(5_000);
    await keys(jwt, {});
    expect(fetches).toBe(2);
  });
});
