import { createHash } from 'node:crypto';
import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { isForThisMachine } from '../http/rate-limits';
import { lazy } from '../shared/async';
import { packageRoot } from '../shared/build';
import { calendarDateAt } from '../shared/calendar';
import { problemKinds } from '../shared/problems';

/** The answers of the demo user, by section. */
export const demoAnswers = {
  profile: {
    firstName: 'Ada',
    lastName: 'Lovelace',
    dateOfBirth: '1960-12-10',
    gender: 'Female',
    state: 'VA',
    email: 'ada@example.com',
    heightCm: 165,
    weightKg: 62,
    seriousIllness: false,
    inCare: false,
    tobacco: false,
  },
  ltc: {
    careFacilityType: 'assistedLiving',
    facilityLocationPriority: 'nearfamily',
    relationshipStatus: ['married'],
    propertyStatus: ['ownOutRight'],
    careCosts: 5500,
    policyValue: 120000,
    insuranceCover: ['payingFuneral', 'leavingForFamily'],
    selections: [
      {
        id: 0,
        title: 'An inheritance for my family',
      },
    ],
  },
  lifeInsurance: {
    selections: [
      {
        id: 1,
        title: 'My spouse',
      },
    ],
    customSelections: [
      {
        title: 'My niece',
      },
    ],
    financialPriorities: ['payingFuneral', 'leavingForKids'],
    livingStatus: 'stayHome',
    billsAndDebt: ['medical'],
  },
  lifetimeCare: {
    selections: [
      {
        id: 0,
        title: 'Gardening',
      },
    ],
    customSelections: [
      {
        title: 'Restoring radios',
      },
    ],
    careFacilityType: 'assistedLiving',
    facilityLocationPriority: 'nearfamily',
    familyHistory: ['dementia'],
    careSafety: 3,
  },
};

const monthsShown = 12;
const monthNames = 'January February March April May June July August September October November December'.split(' ');

/** Serves the demo page with the demo tokens, to browsers on this machine only. */
export function createDemoPage({
  clock,
  config,
  demoTokens,
}: Pick<AppDeps, 'clock' | 'config' | 'demoTokens'>): Elysia {
  const routes = new Elysia({ name: 'http.demo-page' });
  if (demoTokens === undefined) return routes;
  const load = lazy(async () => {
    const template = await Bun.file(new URL('src/demo/page.html', packageRoot)).text();
    return { template, policy: contentSecurityPolicy(template) };
  });
  routes.get(
    '/',
    async ({ request, server }) => {
      if (!isForThisMachine(request, server, config.publicUrl)) {
        const detail = 'The demo page is available to a browser on the same machine, at the printed `page` address.';
        throw new AppError('route-not-found', { detail });
      }
      const { template, policy } = await load();
      const months = monthOptions(calendarDateAt(clock(), config.reportTimeZone));
      const parts = { ...demoTokens, months, problems: problemLinks(), answers: JSON.stringify(demoAnswers) };
      const values = new Map(Object.entries(parts));
      return new Response(
        template.replaceAll(/{{([\w-]+)}}/g, (_, name: string) => values.get(name) ?? ''),
        { headers: { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy } },
      );
    },
    { detail: { hide: true } },
  );
  return routes;
}

/** Allows the inline script and the inline style of the page by their hashes. */
function contentSecurityPolicy(page: string): string {
  const hashOf = (element: RegExp) =>
    `'sha256-${createHash('sha256')
      .update(element.exec(page)?.[1] ?? '')
      .digest('base64')}'`;
  return [
    "default-src 'none'",
    `script-src ${hashOf(/<script type="module">(.*?)<\/script>/s)}`,
    `style-src ${hashOf(/<style>(.*?)<\/style>/s)}`,
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

/** The current month and the eleven before it. The previous month is selected, because it is complete. */
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
