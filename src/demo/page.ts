import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { isForThisMachine } from '../http/rate-limits';
import { packageRoot } from '../shared/build';
import { calendarDateAt } from '../shared/calendar';
import { problemKinds } from '../shared/problems';

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');
const monthsShown = 12;
const monthNames = 'January February March April May June July August September October November December'.split(' ');
const hidden = { detail: { hide: true } };

/** The demo page, where there are tokens to show on it, for a browser on this machine. */
export function createDemoPage({
  clock,
  config,
  demoTokens,
}: Pick<AppDeps, 'clock' | 'config' | 'demoTokens'>): Elysia {
  const routes = new Elysia({ name: 'http.demo-page' });
  if (demoTokens === undefined) return routes;
  routes
    .get(
      '/',
      async ({ request, server }) => {
        if (!isForThisMachine(request, server, config.publicUrl)) {
          const detail =
            'The demo page is there for a browser on the same machine, at the `page` address that the start prints.';
          throw new AppError('route-not-found', { detail });
        }
        const template = await fileOf('page.html').text();
        const months = monthOptions(calendarDateAt(clock(), config.reportTimeZone));
        const parts = new Map(Object.entries({ ...demoTokens, months, problems: problemLinks() }));
        return new Response(
          template.replaceAll(/{{([\w-]+)}}/g, (_, name: string) => parts.get(name) ?? ''),
          { headers: { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy } },
        );
      },
      hidden,
    )
    .get('/demo/page.css', () => new Response(fileOf('page.css')), hidden)
    .get('/demo/page.js', () => new Response(fileOf('page.js')), hidden)
    .get('/demo/answers.json', () => new Response(fileOf('answers.json')), hidden);
  return routes;
}

function fileOf(name: string) {
  return Bun.file(new URL(`src/demo/${name}`, packageRoot));
}

/** The current month and those before it; the last that is over is chosen, since it is whole. */
function monthOptions(today: string): string {
  const current = Number(today.slice(0, 4)) * 12 + Number(today.slice(5, 7)) - 1;
  return Array.from({ length: monthsShown }, (_, index) => {
    const [year, month] = [Math.floor((current - index) / 12), (current - index) % 12];
    const value = `${year}-${String(month + 1).padStart(2, '0')}`;
    return `<option value="${value}"${index === 1 ? ' selected' : ''}>${monthNames[month]} ${year}</option>`;
  }).join('');
}

function problemLinks(): string {
  return Object.entries(problemKinds)
    .map(([slug, { code, title }]) => `<li><a href="/problems/${slug}">${code} ${title}</a></li>`)
    .join('');
}
