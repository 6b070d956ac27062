import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth, requireRole } from '../../http/auth';
import { Problem, queryProblems } from '../../http/problem';
import { requestParameters } from '../../http/request-schema';
import { toMonthlyGlance } from './glance';
import { MonthlyGlanceBody, MonthlyGlanceQuery } from './model';
import { monthEdges, resolveMonth } from './months';
import { createSalesStore } from './store';

export function createSalesRoutes({ reads, clock, config, ...deps }: AppDeps) {
  const store = createSalesStore(reads);
  const { reportTimeZone } = config;

  return new Elysia({ prefix: '/user/salesManager', tags: ['Sales'] }).use(createAuth({ ...deps, config })).get(
    '/monthly-glance',
    async ({ caller, query: { month, year = month.year }, set }) => {
      const edges = monthEdges(resolveMonth({ ...month, year }, clock(), reportTimeZone), reportTimeZone);
      const team = await store.findTeamMonth(caller.id, edges);
      const manager = team.find(({ id, role }) => id === caller.id && role === 'salesManager');
      if (manager === undefined) throw new AppError('forbidden', { detail: 'The caller leads no sales team.' });
      set.headers['cache-control'] = 'private, no-store';
      return toMonthlyGlance(
        manager,
        team.filter((member) => member !== manager),
      );
    },
    {
      transform: ({ caller }) => requireRole(caller, 'salesManager'),
      query: requestParameters(MonthlyGlanceQuery),
      response: { 200: MonthlyGlanceBody, 403: Problem, ...queryProblems },
      detail: {
        summary: 'Report a month’s sales of the calling sales manager’s team',
        description:
          'Counts what was sold in the month, of the time zone that this service reports in. The team’s counters and ' +
          'earnings are the sums of the manager’s and the counselors’. Whoever sold for the team that month is listed, ' +
          'and whoever is in it today.',
        operationId: 'getMonthlyGlance',
      },
    },
  );
}
