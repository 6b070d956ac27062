import { describe, expect, test } from 'bun:test';
import { createTestApp } from '../../support/app';

/**
 * Rows as the first schema stored them, with every value that it ever took and numbers that no bound of today allows.
 * Never change the file: a value that is retired from the requests must go on being readable.
 */
const rows = await Bun.file(new URL('../../fixtures/users-0000.sql', import.meta.url)).text();
const testApp = await createTestApp();
await testApp.db.$client.execute(rows);

describe('a record stored long ago', () => {
  test.each(['full', 'facilities', 'others', 'rest'])('is read whole: %s', async (id) => {
    const { rows: stored } = await testApp.db.$client.execute({ sql: 'SELECT * FROM users WHERE id = ?', args: [id] });
    const section = (column: string) => {
      const text = stored[0]?.[column];
      if (typeof text !== 'string') return undefined;
      const { policySupport, hobbies, ...rest } = JSON.parse(text);
      // A pair of lists that holds neither is not answered.
      return {
        ...rest,
        ...(policySupport?.selections && { policySupport }),
        ...(hobbies?.customSelections && { hobbies }),
      };
    };
    const answer = await testApp.call('GET', '/v2/private/user', { as: id });
    expect(answer.status).toBe(200);
    const ltc = section('ltc_lifetime_care');
    expect(answer.body).toMatchObject({
      user: {
        id,
        ...(section('profile') && { profile: section('profile') }),
        ltc: ltc && { lifetimeCare: ltc },
        lifeInsurance: section('life_insurance'),
        lifetimeCare: section('lifetime_care'),
      },
    });
  });

  test('can be saved over without losing what today’s bounds refuse', async () => {
    const answer = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'full', body: { policyValue: 2 } });
    expect(answer.body).toMatchObject({
      user: { ltc: { lifetimeCare: { careCosts: -1, careSafety: 1e300, policyValue: 2 } } },
    });
  });
});
