import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth, managerRole, requireRole } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { requestParameters } from '../../http/request-body';
import { requestIdOf } from '../../http/request-context';
import { describeError } from '../../log';
import { createAuditStore } from '../audit/store';
import type { Exchange } from '../users/save';
import { MonthlyGlanceBody, MonthlyGlanceQuery, monthEdges, resolveMonth } from './model';
import { toMonthlyGlance } from './report';
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
      const reported = String(new Temporal.PlainYearMonth(resolved.year, resolved.month));
      const section = `monthlyGlance/${reported}`;
      await audit.record({ ...toEvent({ caller, set }), action: 'read', actor: 'staff', section });
      set.headers['cache-control'] = 'private, no-store';
      return toMonthlyGlance(
        manager,
        team.filter((member) => member !== manager),
        {
          month: reported,
          timeZone: reportTimeZone,
          from: new Date(edges.from).toISOString(),
          until: new Date(edges.until).toISOString(),
        },
      );
    },
    {
      transform({ caller, set }) {
        if (!caller.roles.includes(managerRole)) noteRefusal({ caller, set });
        requireRole(caller, managerRole);
      },
      query: requestParameters(MonthlyGlanceQuery),
      response: { 200: MonthlyGlanceBody, ...problems(...readProblems, 'forbidden') },
      detail: {
        summary: 'Report a month’s sales of the calling sales manager’s team',
        description:
          'Counts the sales of a month in the reporting time zone; `period` names the month. ' +
          'The team’s counters and earnings are the sums of the manager’s and the counselors’. A correction (a negative ' +
          'amount) lowers the earnings of the month in which it happens and raises no counter. The report lists everyone ' +
          'who sold for the team that month or is in it today. The token needs the role `salesManager`, as the ' +
          'demo token `demo-manager` has.',
        operationId: 'getMonthlyGlance',
      },
    },
  );
}
