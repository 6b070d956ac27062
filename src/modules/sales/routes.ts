import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth, managerRole, requireRole } from '../../http/auth';
import { problems, queryProblems } from '../../http/problem';
import { requestIdOf } from '../../http/request-context';
import { requestParameters } from '../../http/request-schema';
import { describeError } from '../../log';
import { createAuditStore } from '../audit/store';
import type { Exchange } from '../users/save-answers';
import { toMonthlyGlance } from './glance';
import { MonthlyGlanceBody, MonthlyGlanceQuery } from './model';
import { monthEdges, resolveMonth } from './months';
import { createSalesStore } from './store';

export function createSalesRoutes({ db, reads, clock, config, ...deps }: AppDeps) {
  const store = createSalesStore(reads);
  const audit = createAuditStore(db);
  const { reportTimeZone } = config;
  const toEvent = ({ caller, set }: Pick<Exchange, 'caller' | 'set'>) =>
    ({ userId: caller.id, requestId: requestIdOf(set), now: clock().getTime() }) as const;
  /** Nobody waits for it: whoever may not read is told so while the database is away, too. */
  const noteRefusal = (exchange: Pick<Exchange, 'caller' | 'set'>) => {
    audit
      .recordRefusal({ ...toEvent(exchange), action: 'refused', actor: 'person', section: 'monthlyGlance' })
      .catch((error: unknown) => deps.log.warn(describeError(error), 'a refusal is not in the audit trail'));
  };

  return new Elysia({ prefix: '/user/salesManager', tags: ['Sales'] }).use(createAuth({ ...deps, config })).get(
    '/monthly-glance',
    async ({ caller, query: { month, year = month.year }, set }) => {
      const resolved = resolveMonth({ ...month, year }, clock(), reportTimeZone);
      const edges = monthEdges(resolved, reportTimeZone);
      const team = await store.findTeamMonth(caller.id, edges);
      const manager = team.find(({ id, role }) => id === caller.id && role === managerRole);
      if (manager === undefined) {
        noteRefusal({ caller, set });
        throw new AppError('forbidden', { detail: 'The caller leads no sales team.' });
      }
      // Nothing of others is handed out that is not written down.
      const section = `monthlyGlance/${new Temporal.PlainYearMonth(resolved.year, resolved.month)}`;
      await audit.record({ ...toEvent({ caller, set }), action: 'read', actor: 'staff', section });
      set.headers['cache-control'] = 'private, no-store';
      return toMonthlyGlance(
        manager,
        team.filter((member) => member !== manager),
      );
    },
    {
      transform({ caller, set }) {
        if (!caller.roles.includes(managerRole)) noteRefusal({ caller, set });
        requireRole(caller, managerRole);
      },
      query: requestParameters(MonthlyGlanceQuery),
      response: { 200: MonthlyGlanceBody, ...problems(...queryProblems, 'forbidden') },
      detail: {
        summary: 'Report a month’s sales of the calling sales manager’s team',
        description:
          'Counts what was sold in the month, of the time zone that this service reports in. The team’s counters and ' +
          'earnings are the sums of the manager’s and the counselors’. Whoever sold for the team that month is listed, ' +
          'and whoever is in it today. It wants a token with the role `salesManager`: of the demo tokens, that of `demo-manager`.',
        operationId: 'getMonthlyGlance',
      },
    },
  );
}
