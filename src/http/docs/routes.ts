import { type Context, Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { lazy } from '../../shared/async';
import { problemsAnywhere } from '../problem-response';
import { isForThisMachine } from '../rate-limits';
import { addToHeader } from '../response';
import type { Models } from './openapi';
import { type DocumentedRoute, scriptPath, specPath, swaggerPath } from './problem-pages';

/** The introduction for frontend developers. `base` is the base of each link. */
function introduction(base: string): string {
  const anywhere = problemsAnywhere.map((slug) => `[\`${slug}\`](${base}/problems/${slug})`).join(', ');
  return `
The API matches a person's answers with insurance products and starts an application at the carrier. Each step is one JSON
request.

## First call

Every path below \`/v2/private/\` requires a JWT as \`Authorization: Bearer <token>\`. Its \`sub\` identifies the record; no
path or body can select another one. In development, the start creates tokens for \`demo-user\` and for \`demo-manager\`, who
may read the sales report, and prints the path of their file as \`tokens\`.

## The journey

1. **Profile**: \`POST /v2/private/user/profile\`. The first save of any section creates the record.
2. **Long-term care**: \`POST /v2/private/ltc/lifetimeCare\`.
3. **Deep dives**: \`POST /v2/private/deepDives/lifeInsurance\` and \`…/lifetimeCare\`.
4. **Matches**: \`POST /v2/private/engine/matches\`, with \`?explain=true\` for explanations; \`…/preview\` for hypothetical answers.
5. **Coverage**: \`POST /v2/private/ltc/totalCoverage\` or \`/life/totalCoverage\` starts the application.
6. **User object**: \`GET /v2/private/user\` returns everything.

Each save returns the whole user object. An omitted field does not change, \`null\` clears a field, and a list replaces the
stored list. A save also accepts a section in the form of a response.

Values are normalised. Each text is trimmed and composed (NFC). Invisible characters, such as U+200B, are removed from names
and e-mail. Duplicate list items are removed. Numbers are rounded to two decimals. Query values and \`gender\` may have any
case. Unknown fields and query parameters are refused with 422.

## Errors

Every error is \`application/problem+json\`. Use \`type\` or \`code\`, which never change, to choose your own text. A 422
\`invalid-input\` lists all validation errors, each with the \`pointer\` of its field. Each operation lists its problems, and
[a page for each](${base}/problems) explains the remedy. Every path may return ${anywhere}.
Give the operator of the service the \`requestId\`, which is also the header \`X-Request-Id\`.

## Preventing lost updates

Each response to a change has the \`ETag\` of the record, and so has a 412 if the record exists. A save with this tag as
\`If-Match\` fails with 412 if the record has changed since. A read with it as \`If-None-Match\` returns 304 if the record has
not changed. A save with \`If-None-Match: *\` only creates a record. A tag is unique across users, records and restarts. The
forms of compressing proxies (\`W/"…"\`, \`"…-gzip"\`) are accepted. Conditions follow RFC 9110 §13, without dates.

## Retries

Every save may be retried. Requests with the same person and data start only one application. \`Idempotency-Key\` is also
supported, for a day. After a 409, 429, 502, 503 or 504, wait for the seconds in \`Retry-After\`.

## Rate limits

If limits are on, \`RateLimit\` has the remaining requests of the minute and \`RateLimit-Policy\` the limit. Requests beyond it
get 429. Starting an application has a stricter limit.
`.trim();
}

/** The groups of operations in the order of the journey. */
export const tags = [
  {
    name: 'Profile',
    description: 'Step 1. The person’s data. Age, state and health decide which products are available.',
  },
  { name: 'Long-term care', description: 'Step 2. The care that the person prefers, its place and its cost.' },
  { name: 'Deep dives', description: 'Step 3. Further answers on life insurance and lifetime care, in any order.' },
  {
    name: 'Matches',
    description: 'Step 4. Products ordered by score, with explanations; or a preview for hypothetical answers.',
  },
  {
    name: 'Coverage',
    description: 'Step 5. The application at the partner carrier, with its number and pricing. It starts only once.',
  },
  { name: 'User object', description: 'Step 6. All answers, matches and prices in one object.' },
  { name: 'Lists', description: 'Options for forms, and cemeteries.' },
  { name: 'Sales', description: 'For sales managers: the sales of their team in one month.' },
  { name: 'Operation', description: 'Health checks. They need no token.' },
];

export const tagGroups = [
  { name: 'The journey', tags: ['Profile', 'Long-term care', 'Deep dives', 'Matches', 'Coverage', 'User object'] },
  { name: 'Lists and reports', tags: ['Lists', 'Sales'] },
  { name: 'Operation', tags: ['Operation'] },
];

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
