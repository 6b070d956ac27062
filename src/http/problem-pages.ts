import { STATUS_CODES } from 'node:http';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { isProblemSlug, type ProblemSlug, problemKinds } from '../problems';
import { type DocumentedRoute, swaggerPath } from './docs-introduction';
import { notFound, problemResponse } from './error-handler';
import { problemMediaType, problemsAnywhere, slugsOf, toProblem } from './problem';
import { exampleFailure, exampleRequestId } from './problem-examples';
import { requestParameters } from './request-schema';
import type { RouteTable } from './route-table';

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
const styleHash = new Bun.CryptoHasher('sha256').update(style).digest('base64');
const headers = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src 'sha256-${styleHash}'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  'cache-control': 'public, max-age=3600',
};

interface Subject {
  readonly config: Pick<AppDeps['config'], 'bodyLimitBytes'>;
}

/** The page behind each problem's `type`: what happened, and how to fix it; and one that lists them all. */
export function createProblemPages({ config }: Subject, routeTable: RouteTable) {
  const { bodyLimitBytes } = config;
  let routes: readonly DocumentedRoute[] = [];
  const plugin = new Elysia({ name: 'http.problem-pages' })
    .get(
      '/problems',
      ({ set }) => {
        Object.assign(set.headers, headers);
        return indexPage();
      },
      { detail: { hide: true } },
    )
    .get(
      '/problems/:slug',
      ({ params, set }) => {
        if (!isProblemSlug(params.slug)) throw new AppError('route-not-found');
        Object.assign(set.headers, headers);
        return problemPage(params.slug, { routes, routeTable, bodyLimitBytes });
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

function indexPage(): string {
  const byStatus = Map.groupBy(Object.entries(problemKinds), ([, { status }]) => status);
  const sections = [...byStatus]
    .sort(([a], [b]) => a - b)
    .map(([status, kinds]) => {
      const items = kinds.map(
        ([slug, { title, code }]) =>
          `<li><a href="/problems/${slug}"><code>${slug}</code></a>: ${title} (code ${code})</li>`,
      );
      return `<h2>${status} ${STATUS_CODES[status]}</h2>\n<ul>\n${items.join('\n')}\n</ul>`;
    });
  return page(
    'Problems',
    `<nav><a href="${swaggerPath}">Documentation</a></nav>
<h1>Problems</h1>
<p>Every failure is answered as <code>${problemMediaType}</code>. Decide by its <code>type</code> or <code>code</code>, which
never change; the texts may.</p>
${sections.join('\n')}`,
  );
}

interface Known {
  readonly routes: readonly DocumentedRoute[];
  readonly routeTable: RouteTable;
  readonly bodyLimitBytes: number;
}

function problemPage(slug: ProblemSlug, known: Known): string {
  const kind = problemKinds[slug];
  const asked = routesThatAnswer(slug, known.routes);
  const anywhere = problemsAnywhere.some((each) => each === slug) ? ['<li>Any address</li>'] : [];
  const places = asked.map(({ method, path, hooks }) => {
    const tag = [hooks.detail?.tags].flat()[0];
    const anchor = `tag/${String(tag).toLowerCase().replaceAll(' ', '-')}/${method}${path}`;
    return `<li><a href="${swaggerPath}#${anchor}"><code>${method} ${path}</code></a></li>`;
  });
  return page(
    kind.title,
    `<nav><a href="/problems">All problems</a> · <a href="${swaggerPath}">Documentation</a></nav>
<h1>${kind.title}</h1>
<p><code>${slug}</code> · HTTP ${kind.status} ${STATUS_CODES[kind.status]} · code ${kind.code}</p>
<h2>What happened</h2>
<p>${withCode(kind.meaning)}</p>
<h2>How to fix it</h2>
<p>${withCode(kind.remedy)}</p>
${'advice' in kind ? `<h2>What to show the person</h2>\n<p>${withCode(kind.advice)}</p>\n` : ''}<h2>The answer</h2>
<pre>${escaped(exampleAnswer(slug, asked[0], known))}</pre>
<h2>Where it can happen</h2>
<ul>
${[...places, ...anywhere].join('\n')}
</ul>`,
  );
}

function routesThatAnswer(slug: ProblemSlug, routes: readonly DocumentedRoute[]): DocumentedRoute[] {
  return routes.filter(({ hooks }) =>
    Object.values(hooks.response ?? {}).some((entry) => slugsOf(entry).includes(slug)),
  );
}

/** As the first route answers it that may; what any address may answer, as an address that does. */
function exampleAnswer(slug: ProblemSlug, route: DocumentedRoute | undefined, known: Known): string {
  const path = route?.path ?? (slug === 'method-not-allowed' ? '/v2/private/user' : '/v2/private/nowhere');
  const failure =
    route === undefined
      ? notFound(known.routeTable.allowedMethods(path))
      : exampleFailure(slug, { hooks: route.hooks, bodyLimitBytes: known.bodyLimitBytes });
  const request = new Request(`http://localhost${path}`);
  const { status, headers } = problemResponse(failure, request, exampleRequestId);
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
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
