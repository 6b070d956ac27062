import { type ClientSettings, createClient } from '../../src/client';
import { type TestApp, testToken } from './app';

/** Makes clients of the app, each with what it sent. */
export const appClient =
  (testApp: TestApp) =>
  async (id: string, settings: Partial<ClientSettings> = {}) => {
    const sent: Request[] = [];
    let answered = 0;
    const client = createClient({
      baseUrl: 'http://localhost',
      token: await testToken({ id, now: testApp.now }),
      attempts: 1,
      ...settings,
      async fetch(url, init) {
        const request = new Request(url, init);
        sent.push(request.clone());
        const response = await testApp.app.handle(request);
        // Once the client has read it.
        setTimeout(() => {
          answered += 1;
        });
        return response;
      },
    });
    // As JavaScript may call it, without the types.
    const untyped: Record<'saveLtcLifetimeCare' | 'saveProfile', (body: unknown) => Promise<unknown>> &
      Record<'listCemeteries', (query: unknown) => Promise<unknown>> = client as never;
    return { client, untyped, sent, answered: () => answered };
  };
