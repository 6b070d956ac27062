import type { MonthlyGlanceBody } from './model';
import type { MonthOfSales } from './store';

type Counts = MonthOfSales['counts'];

/** English order, independent of the machine's locale. */
const collator = new Intl.Collator('en');

/** The report of a month: the manager's sales, each counselor's sales, and the sums of the team. */
export function toMonthlyGlance(
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
