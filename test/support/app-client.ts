import { type ClientSettings, createClient } from '../../src/client';
import { type TestApp, testToken } from './app';

/** Creates clients of the app that record their requests. */
export const appClient =
  (testApp: TestApp) =>
  async (id: string, settings: Partial<ClientSettings> = {}) => {
    const sent: Request[] = [];
    let responses = 0;
    const client = createClient({
      baseUrl: 'http://localhost',
      token: await testToken({ id, now: testApp.now }),
      attempts: 1,
      ...settings,
      async fetch(url, init) {
        const request = new Request(url, init);
        sent.push(request.clone());
        const response = await testApp.app.handle(request);
        // Counts after the client has read the response.
        setTimeout(() => {
          responses += 1;
        });
        return response;
      },
    });
    // Simulates calls from JavaScript without types.
    const untyped: Record<'saveLtcLifetimeCare' | 'saveProfile', (body: unknown) => Promise<unknown>> &
      Record<'listCemeteries', (query: unknown) => Promise<unknown>> = client as never;
    return { client, untyped, sent, responseCount: () => responses };
  };
