import { describe, expect, setSystemTime, test } from 'bun:test';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import * as v from 'valibot';
import { createTokenVerifier } from '../src/auth/verifier';
import { acquireLease } from '../src/db/queries';
import { createHttpCarrier } from '../src/modules/coverage/http-carrier';
import { createCatalogStore } from '../src/modules/matching/catalog-store';
import { UserBody } from '../src/modules/users/model';
import {
  applicant,
  coverageServiceOf,
  createCoverageApp,
  type TestResponse,
  testCarrier,
  unavailable,
} from './support/app';
import { auditEventsOf, temporaryDatabase } from './support/database';
import { atEnd, until } from './support/resources';

const hourMs = 3_600_000;
const yearMs = 365 * 24 * hourMs;
const ltc = '/v2/private/ltc/lifetimeCare';
const app = await createCoverageApp();
const { testApp } = app;

const userOf = (response: TestResponse) => v.parse(UserBody, response.body).user;

describe('clock', () => {
  test.each([
    ['back by an hour', -hourMs],
    ['back by ten years', -10 * yearMs],
    ['forward by ten years', 10 * yearMs],
  ])('jump %s loses no save and never decreases updatedAt', async (_, ms) => {
    await app.reset();
    const first = await testApp.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } });
    app.pass(ms);
    const headers = { 'if-match': first.headers.get('etag') ?? '' };
    const saves = [
      () => testApp.call('POST', ltc, { as: 'ada', body: { careCosts: 2 }, headers }),
      () => testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' }),
      () => app.start(),
    ];
    let before = userOf(first);
    const tags = new Set([first.headers.get('etag')]);
    for (const save of saves) {
      const response = await save();
      expect(response.status).toBe(200);
      const user = userOf(response);
      expect(user.createdAt).toBe(before.createdAt);
      expect(user.updatedAt >= before.updatedAt && user.updatedAt >= user.createdAt).toBeTrue();
      expect(userOf(await testApp.call('GET', '/v2/private/user', { as: 'ada' }))).toEqual(user);
      tags.add(response.headers.get('etag'));
      before = user;
    }
    expect(tags.size).toBe(4);
    expect(before.ltc.lifetimeCare?.careCosts).toBe(2);
  });

  test('jump back records audit events with the current time of the clock', async () => {
    await app.reset();
    const realAtMs = testApp.now.getTime();
    const save = (careCosts: number) => testApp.call('POST', ltc, { as: 'audited', body: { careCosts } });
    app.pass(yearMs);
    await save(1);
    app.pass(-yearMs);
    await save(2);
    await testApp.call('POST', '/v2/private/engine/matches', { as: 'audited' });
    const times = (await auditEventsOf(testApp, 'audited')).map(({ occurredAt }) => occurredAt);
    expect(times.toSorted()).toEqual([realAtMs, realAtMs, realAtMs + yearMs]);
  });

  test('jump back keeps the order and the numbers of a user’s applications', async () => {
    await app.reset();
    const start = async (lastName: string) => userOf(await app.start({ lastName })).purchase.partner?.appNumber;
    const first = await start('Byron');
    app.pass(-48 * hourMs);
    const second = await start('King');
    expect(await start('King')).toBe(second);
    const { applications } = await app.list();
    expect(applications).toMatchObject([
      { appNumber: second, supersedes: expect.any(String) },
      { appNumber: first, supersedes: null },
    ]);
    for (const { createdAt, settledAt } of applications) expect((settledAt ?? '') >= createdAt).toBe(true);
  });

  test('jump back does not keep the circuit open for longer than configured', async () => {
    let isBroken = true;
    const respond = () =>
      isBroken ? new Response('no', { status: 500 }) : Response.json({ decision: 'declined' }, { status: 422 });
    const server = Bun.serve({ port: 0, fetch: respond });
    atEnd(() => server.stop(true));
    const policy = { ...testCarrier, attempts: 1, breakerFailures: 1, breakerMs: 200 };
    const carrier = createHttpCarrier({ ...policy, url: server.url.origin, apiKey: undefined });
    const start = () => carrier.start({ clientReference: 'reference-1', flow: 'ltc', applicant }, false);
    try {
      await expect(start()).rejects.toMatchObject({ wasAsked: true });
      await expect(start()).rejects.toMatchObject({ wasAsked: false });
      setSystemTime(new Date(Date.now() - 5 * hourMs));
      isBroken = false;
      await until(async () => (await start().catch(() => undefined))?.kind === 'declined');
    } finally {
      setSystemTime();
    }
  });

  test('jump back at the database does not extend the lease of a dead holder', async () => {
    const { db } = await temporaryDatabase();
    expect(await acquireLease(db, 'reconciler', 'first', 30)).toBeTrue();
    expect(await acquireLease(db, 'reconciler', 'second', 30)).toBeFalse();
    // The lease looks as if it was taken an hour in the future.
    await db.$client.execute('UPDATE leases SET expires_at = unixepoch() + 3630');
    expect(await acquireLease(db, 'reconciler', 'second', 30)).toBeTrue();
    expect(await acquireLease(db, 'reconciler', 'first', 30)).toBeFalse();
  });
});

describe('frozen clock', () => {
  /** An app with a frozen service clock, while `wait` advances the system clock and the monotonic clock. */
  const freeze = async () => {
    let passedMs = 0;
    const systemClock = () => new Date(frozen.testApp.now.getTime() + passedMs);
    const frozen = await createCoverageApp({ systemClock, monotonicMs: () => systemClock().getTime() });
    return {
      ...{ ...frozen, systemClock },
      wait(ms: number) {
        passedMs += ms;
      },
    };
  };

  test('does not delay the settlement of an open application', async () => {
    const { testApp, carrier, systemClock, wait, start, list } = await freeze();
    carrier.respond = unavailable;
    expect((await start()).status).toBe(503);
    carrier.respond = carrier.acceptAll;
    const service = coverageServiceOf(testApp, carrier, systemClock);
    expect(await service.reconcile('one', () => false)).toBe(0);
    wait(60_000);
    expect(await service.reconcile('one', () => false)).toBe(1);
    const at = testApp.now.toISOString();
    expect((await list()).applications).toMatchObject([{ state: 'submitted', createdAt: at, settledAt: at }]);
  });

  test('does not delay new catalogues and reference lists', async () => {
    const { testApp, wait } = await freeze();
    const read = async () => [
      (await testApp.call('POST', '/v2/private/engine/preview', { as: 'ada', body: {} })).text,
      (await testApp.call('GET', '/v2/private/healthAndCare/', { as: 'ada' })).text,
    ];
    const before = await read();
    await createCatalogStore(testApp.db).add(
      { conditions: [], products: [] },
      { source: 'imported', contentHash: 'other', now: testApp.now },
    );
    await testApp.db.$client.execute(`UPDATE reference_options SET title = 'Another' WHERE list = 'travel'`);
    expect(await read()).toEqual(before);
    wait(60_001);
    const [matches, lists] = await read();
    expect(matches).toBe('{"data":{"matches":{"bestMatch":null,"remainingMatches":[]}}}');
    expect(lists).toContain('Another');
  });

  test('does not extend the minute for a token with a revoked key', async () => {
    const now = new Date('2026-03-10T12:00:00Z');
    let passedMs = 0;
    const [revoked, current] = [await generateKeyPair('ES256'), await generateKeyPair('ES256')];
    let keys = [await exportJWK(revoked.publicKey)];
    const jwks = Bun.serve({ port: 0, fetch: () => Response.json({ keys }) });
    atEnd(() => jwks.stop(true));
    const verify = await createTokenVerifier(
      { key: { kind: 'jwks', url: jwks.url.href }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
      () => now,
      () => now.getTime() + passedMs,
    );
    const sign = ({ privateKey }: typeof revoked) =>
      new SignJWT({ sub: 'ada', exp: now.getTime() / 1000 + 3600 })
        .setProtectedHeader({ alg: 'ES256' })
        .sign(privateKey);
    const token = await sign(revoked);
    expect(await verify(token)).toMatchObject({ id: 'ada' });
    keys = [await exportJWK(current.publicKey)];
    passedMs = 31_000;
    // A token with an unknown key triggers a new fetch of the keys.
    await verify(await sign(current));
    passedMs = 59_999;
    expect(await verify(token)).toMatchObject({ id: 'ada' });
    passedMs = 60_000;
    await expect(verify(token)).rejects.toMatchObject({ slug: 'unauthenticated' });
  });
});
