import { type Context, Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { lazy } from '../../shared/async';
import { isForThisMachine } from '../rate-limits';
import { addToHeader } from '../response';
import { introduction, tagGroups, tags } from './introduction';
import type { Models } from './openapi';
import { type DocumentedRoute, scriptPath, specPath, swaggerPath } from './problem-pages';

/**
 * The documentation: a page at /swagger and OpenAPI 3.1 at /swagger/json. Both are created on the first request, because
 * they would add a fifth to the time of each start.
 */
export function createDocs({ config, demoTokens }: Pick<AppDeps, 'config' | 'demoTokens'>, models: Models) {
  let routes: readonly DocumentedRoute[] = [];
  const docs = lazy(async () =>
    (await import('./page')).createDocsResponses({
      config,
      models,
      routes,
      content: { introduction, tags, tagGroups },
    }),
  );

  const servePage = async ({ request, server }: Pick<Context, 'request' | 'server'>) =>
    (await docs()).pageResponse(isForThisMachine(request, server, config.publicUrl) ? demoTokens : undefined);
  const serveDocument = async ({ request, set }: Pick<Context, 'request' | 'set'>) => {
    addToHeader(set.headers, 'vary', 'Accept-Encoding');
    return (await docs()).documentResponse(request);
  };
  const serveScript = async ({ request, set }: Pick<Context, 'request' | 'set'>) => {
    addToHeader(set.headers, 'vary', 'Accept-Encoding');
    return (await docs()).scriptResponse(request);
  };
  const hidden = { detail: { hide: true } };

  const plugin = new Elysia({ name: 'http.docs' })
    .get(swaggerPath, servePage, hidden)
    .get(specPath, serveDocument, hidden)
    .get(scriptPath, serveScript, hidden)
    // Browsers request it for every page.
    .get('/favicon.ico', ({ status }) => status(204), hidden);

  return {
    plugin,
    describe(all: readonly DocumentedRoute[]): void {
      routes = all;
    },
  };
}

/** The `detail.requestBody` of a route: example bodies by name. */
export function requestExamples(values: Readonly<Record<string, object>>) {
  const examples = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
  return { content: { 'application/json': { examples } } };
}
