import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { lazy } from '../../shared/async';
import { isProblemSlug, type ProblemSlug, problemKinds } from '../../shared/problems';
import { managerRole, withoutRole, withoutToken } from '../auth';
import {
  notFound,
  problemMediaType,
  problemResponse,
  problemsAnywhere,
  type RouteTable,
  slugsOf,
  toProblem,
} from '../problem-response';
import { overLimit } from '../rate-limits';
import { requestParameters, tooLarge, tooLate } from '../request-body';
import { withTooManyParameters } from '../request-context';
import { isValibotSchema } from '../response';

export const swaggerPath = '/swagger';
export const specPath = '/swagger/json';
export const scriptPath = '/swagger/scalar.js';

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

/** The `requestId` of every problem that is shown as an example. */
export const exampleRequestId = '0198c2f4-6b1e-7d3a-9c54-2f0a8e71b6d3';

interface ExampleContext {
  readonly hooks: DocumentedRoute['hooks'];
  readonly bodyLimitBytes: number;
}

/** Problems whose detail is more specific than their meaning. */
const failures: Partial<Record<ProblemSlug, (context: ExampleContext) => AppError>> = {
  'malformed-request': withTooManyParameters,
  'invalid-input': ({ hooks }) => refusalOf(hooks),
  'payload-too-large': ({ bodyLimitBytes }) => tooLarge(bodyLimitBytes),
  'request-timeout': tooLate,
  unauthenticated: withoutToken,
  forbidden: () => withoutRole(managerRole),
  'rate-limited': () => overLimit('default', 60),
};

/** The error of an example in the documentation. */
export function exampleFailure(slug: ProblemSlug, context: ExampleContext): AppError {
  return failures[slug]?.(context) ?? new AppError(slug);
}

/** The error for an unknown field, or for invalid parameters if the route has no body. */
function refusalOf({ body, query }: DocumentedRoute['hooks']): AppError {
  if (isValibotSchema(body)) return errorOf(() => body['~standard'].validate({ unknownField: true }));
  if (!isValibotSchema(query) || !('entries' in query)) return new AppError('invalid-input');
  const known = Object.keys(Object(query.entries));
  const names = known.length === 0 ? ['unknown'] : known;
  return errorOf(() => query['~standard'].validate(Object.fromEntries(names.map((name) => [name, '?']))));
}

function errorOf(validate: () => unknown): AppError {
  try {
    validate();
  } catch (error) {
    if (error instanceof AppError) return error;
  }
  return new AppError('invalid-input');
}

const style = `
  :root { color-scheme: light dark; background: canvas; color: canvastext; }
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
  h2 { font-size: 1.125rem; margin: 2rem 0 0.5rem; }
  h1, p { margin: 0.5rem 0; }
  ul { padding-left: 1.25rem; }
  li { margin: 0.25rem 0; }
  code, pre { font: 0.875rem/1.5 ui-monospace, monospace; }
  pre { white-space: pre-wrap; padding: 0.75rem; border: 1px solid; border-radius: 0.25rem; }
`;
/** The reason phrases. Their module is loaded with the first page, because loading it takes longer than a page. */
const loadPhrases = lazy(async () => (await import('node:http')).STATUS_CODES);
type Phrases = Awaited<ReturnType<typeof loadPhrases>>;
const styleHash = new Bun.CryptoHasher('sha256').update(style).digest('base64');
const headers = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src 'sha256-${styleHash}'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  'cache-control': 'public, max-age=3600',
};

interface Subject {
  readonly config: Pick<AppDeps['config'], 'bodyLimitBytes'>;
}

/** The page at each problem's `type`, and the list of all problems. */
export function createProblemPages({ config }: Subject, routeTable: RouteTable) {
  const { bodyLimitBytes } = config;
  let routes: readonly DocumentedRoute[] = [];
  const plugin = new Elysia({ name: 'http.problem-pages' })
    .get(
      '/problems',
      async ({ set }) => {
        Object.assign(set.headers, headers);
        return indexPage(await loadPhrases());
      },
      { detail: { hide: true } },
    )
    .get(
      '/problems/:slug',
      async ({ params, set }) => {
        if (!isProblemSlug(params.slug)) throw new AppError('route-not-found');
        Object.assign(set.headers, headers);
        return problemPage(params.slug, { routes, routeTable, bodyLimitBytes, phrases: await loadPhrases() });
      },
      { params: requestParameters(v.object({ slug: v.string() })), detail: { hide: true } },
    );
  return {
    plugin,
    describe(all: readonly DocumentedRoute[]): void {
      routes = all;
    },
  };
}

function indexPage(phrases: Phrases): string {
  const byStatus = Map.groupBy(Object.entries(problemKinds), ([, { status }]) => status);
  const sections = [...byStatus]
    .sort(([a], [b]) => a - b)
    .map(([status, kinds]) => {
      const items = kinds.map(
        ([slug, { title, code }]) =>
          `<li><a href="/problems/${slug}"><code>${slug}</code></a>: ${title} (code ${code})</li>`,
      );
      return `<h2>${status} ${phrases[status]}</h2>\n<ul>\n${items.join('\n')}\n</ul>`;
    });
  return page(
    'Problems',
    `<nav><a href="${swaggerPath}">Documentation</a></nav>
<h1>Problems</h1>
<p>Every error response is <code>${problemMediaType}</code>. Its <code>type</code> and <code>code</code> never change; its
texts may.</p>
${sections.join('\n')}`,
  );
}

interface Known {
  readonly routes: readonly DocumentedRoute[];
  readonly routeTable: RouteTable;
  readonly bodyLimitBytes: number;
  readonly phrases: Phrases;
}

function problemPage(slug: ProblemSlug, known: Known): string {
  const kind = problemKinds[slug];
  const returning = routesThatReturn(slug, known.routes);
  const anywhere = problemsAnywhere.some((each) => each === slug) ? ['<li>Any path</li>'] : [];
  const places = returning.map(({ method, path, hooks }) => {
    const tag = [hooks.detail?.tags].flat()[0];
    const anchor = `tag/${String(tag).toLowerCase().replaceAll(' ', '-')}/${method}${path}`;
    return `<li><a href="${swaggerPath}#${anchor}"><code>${method} ${path}</code></a></li>`;
  });
  return page(
    kind.title,
    `<nav><a href="/problems">All problems</a> · <a href="${swaggerPath}">Documentation</a></nav>
<h1>${kind.title}</h1>
<p><code>${slug}</code> · HTTP ${kind.status} ${known.phrases[kind.status]} · code ${kind.code}</p>
<h2>Meaning</h2>
<p>${withCode(kind.meaning)}</p>
<h2>Remedy</h2>
<p>${withCode(kind.remedy)}</p>
${'advice' in kind ? `<h2>Message for the user</h2>\n<p>${withCode(kind.advice)}</p>\n` : ''}<h2>Example response</h2>
<pre>${escaped(exampleResponse(slug, returning[0], known))}</pre>
<h2>Returned by</h2>
<ul>
${[...places, ...anywhere].join('\n')}
</ul>`,
  );
}

function routesThatReturn(slug: ProblemSlug, routes: readonly DocumentedRoute[]): DocumentedRoute[] {
  return routes.filter(({ hooks }) =>
    Object.values(hooks.response ?? {}).some((entry) => slugsOf(entry).includes(slug)),
  );
}

/** The response of the first route that returns the problem, or of a path without a matching route. */
function exampleResponse(slug: ProblemSlug, route: DocumentedRoute | undefined, known: Known): string {
  const path = route?.path ?? (slug === 'method-not-allowed' ? '/v2/private/user' : '/v2/private/nowhere');
  const failure =
    route === undefined
      ? notFound(known.routeTable.allowedMethods(path))
      : exampleFailure(slug, { hooks: route.hooks, bodyLimitBytes: known.bodyLimitBytes });
  const request = new Request(`http://localhost${path}`);
  const { status, headers } = problemResponse(failure, request, exampleRequestId);
  return [
    `HTTP/1.1 ${status} ${known.phrases[status]}`,
    ...[...headers].map(([name, value]) => `${name}: ${value}`),
    '',
    JSON.stringify(toProblem(failure, request, exampleRequestId), null, 2),
  ].join('\n');
}

function page(title: string, content: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${style}</style>
<main>
${content}
</main>
</html>
`;
}

function withCode(text: string): string {
  return escaped(text).replace(/`([^`]+)`/g, '<code>$1</code>');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
