import { Elysia } from 'elysia';
import type { RouteDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth, managerRole, requireRole } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { requestParameters } from '../../http/request-body';
import { requestIdOf } from '../../http/request-context';
import { describeError } from '../../log';
import type { AuditStore } from '../audit/store';
import type { AuthenticatedContext } from '../users/save';
import { MonthlyGlanceBody, MonthlyGlanceQuery, monthBounds, resolveMonth, toMonthInput } from './model';
import type { MonthOfSales, SalesStore } from './store';

type Counts = MonthOfSales['counts'];

/** English order, independent of the machine's locale. */
const collator = new Intl.Collator('en');

/** The report of a month: the manager's sales, each counselor's sales, and the sums of the team. */
function toMonthlyGlance(
  manager: MonthOfSales,
  counselors: readonly MonthOfSales[],
  period: MonthlyGlanceBody['data']['period'],
): MonthlyGlanceBody {
  const team = [manager, ...counselors];
  return {
    data: {
      teamGlance: {
        glance: toGlance(team.map(({ counts }) => counts).reduce(addCounts)),
        totalMonthlyEarnings: toAmount(team.reduce((sum, { earningsCents }) => sum + earningsCents, 0)),
      },
      managerReport: {
        glance: {
          monthlyPlan: manager.counts.monthlyPlan,
          semiAnnualPlan: manager.counts.semiAnnualPlan,
          ...toGlance(manager.counts),
        },
        totalEarnings: toAmount(manager.earningsCents),
      },
      counselorsReport: [...counselors].sort(byName).map(({ counts, earningsCents, firstName, lastName }) => ({
        glance: toGlance(counts),
        totalMonthlyEarnings: toAmount(earningsCents),
        name: { first: firstName, last: lastName },
      })),
      period,
    },
  };
}

/** The contract misspells these names. */
function toGlance({ cemeteryPlan, quote, quoteAndContract, application }: Counts) {
  return {
    cemetryPlans: cemeteryPlan,
    qoutes: quote,
    qoutesAndContract: quoteAndContract,
    applications: application,
  };
}

function addCounts(sum: Counts, counts: Counts): Counts {
  return {
    monthlyPlan: sum.monthlyPlan + counts.monthlyPlan,
    semiAnnualPlan: sum.semiAnnualPlan + counts.semiAnnualPlan,
    cemeteryPlan: sum.cemeteryPlan + counts.cemeteryPlan,
    quote: sum.quote + counts.quote,
    quoteAndContract: sum.quoteAndContract + counts.quoteAndContract,
    application: sum.application + counts.application,
  };
}

function byName(a: MonthOfSales, b: MonthOfSales): number {
  const order = collator.compare(a.lastName, b.lastName) || collator.compare(a.firstName, b.firstName);
  return order || (a.id < b.id ? -1 : 1);
}

function toAmount(cents: number): number {
  return cents / 100;
}

export function createSalesRoutes(
  { clock, config, ...deps }: RouteDeps,
  { sales: store, audit }: { sales: SalesStore; audit: AuditStore },
) {
  const { reportTimeZone } = config;
  const eventOf = ({ client, set }: Pick<AuthenticatedContext, 'client' | 'set'>) =>
    ({ userId: client.id, requestId: requestIdOf(set), now: clock().getTime() }) as const;
  // Not awaited: the 403 must not depend on the database.
  const recordRefusal = (context: Pick<AuthenticatedContext, 'client' | 'set'>) => {
    audit
      .recordRefusal({ ...eventOf(context), action: 'refused', actor: 'person', section: 'monthlyGlance' })
      .catch((error: unknown) => deps.log.warn(describeError(error), 'could not record a refusal in the audit log'));
  };

  return new Elysia({ prefix: '/user/salesManager', tags: ['Sales'] }).use(createAuth({ ...deps, config })).get(
    '/monthly-glance',
    async ({ client, query, set }) => {
      const yearMonth = resolveMonth(toMonthInput(query), clock(), reportTimeZone);
      const bounds = monthBounds(yearMonth, reportTimeZone);
      const team = await store.findTeamMonth(client.id, bounds);
      const manager = team.find(({ id, role }) => id === client.id && role === managerRole);
      if (manager === undefined) {
        recordRefusal({ client, set });
        throw new AppError('forbidden', { detail: 'The user leads no sales team.' });
      }
      const month = String(new Temporal.PlainYearMonth(yearMonth.year, yearMonth.month));
      const section = `monthlyGlance/${month}`;
      // Awaited: data of other people are returned only if the access is recorded.
      await audit.record({ ...eventOf({ client, set }), action: 'read', actor: 'staff', section });
      set.headers['cache-control'] = 'private, no-store';
      return toMonthlyGlance(
        manager,
        team.filter((member) => member !== manager),
        {
          month,
          timeZone: reportTimeZone,
          from: new Date(bounds.from).toISOString(),
          until: new Date(bounds.until).toISOString(),
        },
      );
    },
    {
      transform({ client, set }) {
        if (!client.roles.includes(managerRole)) recordRefusal({ client, set });
        requireRole(client, managerRole);
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
