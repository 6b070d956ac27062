import { describe, expect, test } from 'bun:test';
import { cemeteriesImport } from '../../src/cli/import-kinds';
import { applicant, createTestApp, startSandbox } from '../support/app';
import { importContent } from '../support/command';

/** USPS codes that name no state, district or territory. */
const others = ['AA', 'AE', 'AP', 'FM', 'MH', 'PW'];

describe('a USPS code beyond the states and territories', async () => {
  const sandbox = await startSandbox();
  const testApp = await createTestApp({ carrier: sandbox.carrier() });

  test.each([...others, 'ae', ' Fm '])('D3 returns 200 in the profile: %j', async (sent) => {
    const body = { state: sent };
    const response = await testApp.call('POST', '/v2/private/user/profile', { as: 'traveller', body });
    expect(response).toMatchObject({ status: 200, body: { user: { profile: { state: sent.trim().toUpperCase() } } } });
  });

  test.each(others)('D3 gets prices from the sandbox carrier: %s', async (state) => {
    for (const flow of ['ltc', 'life']) {
      const body = { ...applicant, state };
      const response = await testApp.call('POST', `/v2/private/${flow}/totalCoverage`, {
        as: `${flow}-${state}`,
        body,
      });
      expect(response).toMatchObject({
        status: 200,
        body: { user: { purchase: { partner: { appNumber: expect.any(Number), pricing: expect.any(Array) } } } },
      });
    }
  });

  test('D3 fails only when the carrier declines it', async () => {
    const body = { ...applicant, lastName: 'Notfiled', state: 'PW' };
    const response = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'declined', body });
    expect(response).toMatchObject({
      status: 422,
      body: { http_code: 422, type: expect.stringContaining('declined') },
    });
  });

  test('D3 imports with a cemetery', async () => {
    const rows = others.map((state) => `id-${state},Cemetery ${state},,Town,${state},`);
    const content = ['externalId,name,street,city,state,zip', ...rows, ''].join('\n');
    expect(await importContent(cemeteriesImport, testApp.db, { content })).toMatchObject({
      refusal: '',
      counts: { added: others.length },
    });
  });

  test.each(['XX', 'FX', 'UM', 'A', 'AEE', 'АЕ'])(
    'D3 returns 422 for a code that USPS does not have: %s',
    async (state) => {
      const response = await testApp.call('POST', '/v2/private/user/profile', { as: 'traveller', body: { state } });
      expect(response).toMatchObject({ status: 422, body: { errors: [{ pointer: '/state' }] } });
    },
  );
});
