import { Elysia } from 'elysia';
import type * as v from 'valibot';
import { onceLoaded } from '../once-loaded';
import { pathOf } from './problem';

export type Models = Readonly<Record<string, v.GenericSchema>>;

export interface DocumentedRoute {
  readonly method: string;
  readonly path: string;
  readonly hooks: {
    readonly body?: unknown;
    readonly query?: unknown;
    readonly response?: unknown;
    readonly detail?: { readonly hide?: boolean } & Record<string, unknown>;
  };
}

/** What is documented. */
export interface DocsSubject {
  readonly publicUrl: string | undefined;
  readonly models: Models;
  readonly routes: readonly DocumentedRoute[];
}

export const swaggerPath = '/swagger';
export const specPath = '/swagger/json';
export const scriptPath = '/swagger/scalar.js';

/**
 * The documentation: a page at /swagger and OpenAPI 3.1 at /swagger/json. What makes them is loaded when somebody asks
 * for them first, and only then: a start would take a fifth longer.
 */
export function createDocs({ publicUrl, models }: Omit<DocsSubject, 'routes'>) {
  let routes: readonly DocumentedRoute[] = [];
  const page = onceLoaded(async () => {
    const [{ createDocsPage }, { underPolicy }] = await Promise.all([import('./docs-page'), import('./docs-policy')]);
    const app = createDocsPage({ publicUrl, models, routes });
    return {
      html: async (address: string) => underPolicy(await (await app.handle(new Request(address))).text(), publicUrl),
      document: (address: string) => app.handle(new Request(address)),
    };
  });
  // A HEAD is answered by the outer app, from the answer to a GET. What host was asked makes no difference.
  const addressOf = (request: Request) => `http://localhost${pathOf(request)}`;
  const serveHtml = async ({ request }: { request: Request }) => (await page()).html(addressOf(request));
  const serveDocument = async ({ request }: { request: Request }) => (await page()).document(addressOf(request));
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

/** The page's own program, from the package that makes it, so that the page loads nothing from another host. */
function serveScript(): Response {
  const file = new URL('./dist/browser/standalone.js', import.meta.resolve('@scalar/api-reference/package.json'));
  return new Response(Bun.file(file), {
    headers: { 'content-type': 'text/javascript; charset=utf-8', 'cache-control': 'public, max-age=3600' },
  });
}

/** The `detail.requestBody` of a route: bodies to try, by a name that says what they show. */
export function requestExamples(values: Readonly<Record<string, object>>) {
  const examples = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
  return { content: { 'application/json': { examples } } };
}
