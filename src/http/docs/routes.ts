import { type Context, Elysia } from 'elysia';
import type { DemoTokens } from '../../auth/signing';
import type { AppDeps } from '../../deps';
import { lazy } from '../../shared/async';
import { isForThisMachine } from '../rate-limits';
import { addToHeader } from '../response';
import { type DocumentedRoute, type Models, scriptPath, specPath, swaggerPath } from './introduction';

/**
 * The documentation: a page at /swagger and OpenAPI 3.1 at /swagger/json. What makes them is loaded when somebody asks
 * for them first, and only then: a start would take a fifth longer.
 */
export function createDocs({ config, demoTokens }: Pick<AppDeps, 'config' | 'demoTokens'>, models: Models) {
  const { publicUrl } = config;
  let routes: readonly DocumentedRoute[] = [];
  const script = lazy(async () => (await import('./page')).loadPageProgram());
  const page = lazy(async () => {
    const [{ createDocsPage }, { underPolicy }, { version }] = await Promise.all([
      import('./page'),
      import('./page'),
      script(),
    ]);
    const { html, document } = createDocsPage({ config, models, routes }, version);
    return { document, answer: async (tokens: DemoTokens | undefined) => underPolicy(await html(tokens), publicUrl) };
  });
  const serveHtml = async ({ request, server }: Pick<Context, 'request' | 'server'>) =>
    (await page()).answer(isForThisMachine(request, server, publicUrl) ? demoTokens : undefined);
  const serveDocument = async ({ request, set }: Pick<Context, 'request' | 'set'>) => {
    addToHeader(set.headers, 'vary', 'Accept-Encoding');
    return (await page()).document(request);
  };
  const serveScript = async ({ request, set }: Pick<Context, 'request' | 'set'>) => {
    addToHeader(set.headers, 'vary', 'Accept-Encoding');
    return (await script()).answer(request);
  };
  const hidden = { detail: { hide: true } };

  const plugin = new Elysia({ name: 'http.docs' })
    .get(swaggerPath, serveHtml, hidden)
    .get(specPath, serveDocument, hidden)
    .get(scriptPath, serveScript, hidden)
    // A browser asks for it on every page of this host.
    .get('/favicon.ico', ({ status }) => status(204), hidden);

  return {
    plugin,
    describe(all: readonly DocumentedRoute[]): void {
      routes = all;
    },
  };
}

/** The `detail.requestBody` of a route: bodies to try, by a name that says what they show. */
export function requestExamples(values: Readonly<Record<string, object>>) {
  const examples = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
  return { content: { 'application/json': { examples } } };
}
