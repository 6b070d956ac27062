import { describe, expect, test } from 'bun:test';
import { createTestApp } from '../../support/app';

/**
 * Rows of the first schema with every value it accepted and numbers outside today's bounds.
 * Never change the file: values that requests no longer accept must stay readable.
 */
const rows = await Bun.file(new URL('../../fixtures/users-0000.sql', import.meta.url)).text();
const testApp = await createTestApp();
await testApp.db.$client.execute(rows);

describe('record stored by the first schema', () => {
  test.each(['full', 'facilities', 'others', 'rest'])('reads back completely: %s', async (id) => {
    const { rows: stored } = await testApp.db.$client.execute({ sql: 'SELECT * FROM users WHERE id = ?', args: [id] });
    const section = (column: string) => {
      const text = stored[0]?.[column];
      if (typeof text !== 'string') return undefined;
      const { policySupport, hobbies, ...rest } = JSON.parse(text);
      // The response omits a pair of lists that has neither.
      return {
        ...rest,
        ...(policySupport?.selections && { policySupport }),
        ...(hobbies?.customSelections && { hobbies }),
      };
    };
    const response = await testApp.call('GET', '/v2/private/user', { as: id });
    expect(response.status).toBe(200);
    const ltc = section('ltc_lifetime_care');
    expect(response.body).toMatchObject({
      user: {
        id,
        ...(section('profile') && { profile: section('profile') }),
        ltc: ltc && { lifetimeCare: ltc },
        lifeInsurance: section('life_insurance'),
        lifetimeCare: section('lifetime_care'),
      },
    });
  });

  test('keeps values outside today’s bounds after a save', async () => {
    const response = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', {
      as: 'full',
      body: { policyValue: 2 },
    });
    expect(response.body).toMatchObject({
      user: { ltc: { lifetimeCare: { careCosts: -1, careSafety: 1e300, policyValue: 2 } } },
    });
  });
});
