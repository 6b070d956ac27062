import { Elysia } from 'elysia';
import * as v from 'valibot';
import { AppError, problemKinds } from '../errors';
import { requestParameters } from './request-schema';

const style = 'body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }';
const styleHash = new Bun.CryptoHasher('sha256').update(style).digest('base64');
const policy = `default-src 'none'; style-src 'sha256-${styleHash}'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** The page behind each problem's `type`: what happened, and how to mend it. */
export const problemPages = new Elysia({ name: 'http.problem-pages' }).get(
  '/problems/:slug',
  ({ params, set }) => {
    const kind = Object.entries(problemKinds).find(([slug]) => slug === params.slug)?.[1];
    if (kind === undefined) throw new AppError('route-not-found');
    set.headers['content-type'] = 'text/html; charset=utf-8';
    set.headers['content-security-policy'] = policy;
    set.headers['cache-control'] = 'public, max-age=3600';
    return page(kind);
  },
  { params: requestParameters(v.object({ slug: v.string() })), detail: { hide: true } },
);

function page(kind: (typeof problemKinds)[keyof typeof problemKinds]): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${kind.title}</title>
<style>${style}</style>
<h1>${kind.title}</h1>
<p>HTTP ${kind.status}, code ${kind.code}</p>
<h2>What happened</h2>
<p>${kind.meaning}</p>
<h2>How to mend it</h2>
<p>${withCode(kind.remedy)}</p>
</html>
`;
}

function withCode(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replace(/`([^`]+)`/g, '<code>$1</code>');
}
