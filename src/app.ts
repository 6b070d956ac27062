import { Elysia } from 'elysia';
import { CustomSelection, SelectionItem } from './answers';
import { countParts, listCompletedTasks } from './db/row-counts';
import { createWriteProbe } from './db/write-probe';
import type { AppDeps, LimitedExchange } from './deps';
import { answerHeaders } from './http/answer-headers';
import { createCors } from './http/cors';
import { createDemoPage } from './http/demo-page';
import { createDocs } from './http/docs';
import { createErrorHandler } from './http/error-handler';
import { createHealthRoutes } from './http/health';
import { iconRoutes } from './http/icons';
import { createMetricsRoute } from './http/metrics';
import { Problem } from './http/problem';
import { createProblemPages } from './http/problem-pages';
import { rawQuery } from './http/raw-query';
import { createRequestContext } from './http/request-context';
import { createRouteTable } from './http/route-table';
import { sentTargetRoutes } from './http/sent-target';
import { serveOptions } from './http/serve-options';
import { Cemetery, CemeteryPage } from './modules/cemeteries/model';
import { createCemeteryRoutes } from './modules/cemeteries/routes';
import { ApplicationsBody } from './modules/coverage/model';
import { createCoverageRoutes } from './modules/coverage/routes';
import { createOperationStore } from './modules/coverage/store-operations';
import { LifeInsurance, LifeInsuranceAnswers, LifetimeCare, LifetimeCareAnswers } from './modules/deep-dives/model';
import { createDeepDiveRoutes } from './modules/deep-dives/routes';
import { LtcLifetimeCare, LtcLifetimeCareAnswers } from './modules/ltc/model';
import { createLtcRoutes } from './modules/ltc/routes';
import { Matches } from './modules/matching/model';
import { createMatchingRoutes } from './modules/matching/routes';
import { HealthAndCareBody, ReferenceOption } from './modules/reference/model';
import { createReferenceRoutes } from './modules/reference/routes';
import { MonthlyGlanceBody } from './modules/sales/model';
import { createSalesRoutes } from './modules/sales/routes';
import { Profile, User, UserBody } from './modules/users/model';
import { createUserRoutes } from './modules/users/routes';

/** The models that the documentation names. */
const models = {
  ApplicationsBody,
  Cemetery,
  CemeteryPage,
  CustomSelection,
  HealthAndCareBody,
  LifeInsurance,
  LifeInsuranceAnswers,
  LifetimeCare,
  LifetimeCareAnswers,
  LtcLifetimeCare,
  LtcLifetimeCareAnswers,
  Matches,
  MonthlyGlanceBody,
  Problem,
  Profile,
  ReferenceOption,
  SelectionItem,
  User,
  UserBody,
};

/** The whole service as one Elysia app. It never listens: see main.ts. */
export function createApp(deps: AppDeps) {
  const routeTable = createRouteTable();
  const cors = createCors(deps.config);
  const docs = createDocs(deps, models);
  const problemPages = createProblemPages(deps, routeTable);
  const limitVisitor = ({ request, server, set }: LimitedExchange) =>
    deps.rateLimits?.takeVisitor({ request, server, set });

  const whyUnwritable = createWriteProbe(deps.db);
  const readFacts = async () => ({
    applications: await countParts(deps.reads, 'applications'),
    oldestUnknownSeconds: await createOperationStore(deps.reads).findOldestOpenAge(deps.clock().getTime()),
    completedTasks: await listCompletedTasks(deps.reads),
  });

  const app = new Elysia({
    serve: {
      ...serveOptions(deps),
      routes: sentTargetRoutes((request): Response | Promise<Response> => app.fetch(request)),
    },
    // Else the path begins further right under a `Host` of less than four letters.
    handler: { standardHostname: false },
  })
    // The first readiness check then has a result, also while the database hangs.
    .onStart(() => void whyUnwritable())
    .headers(answerHeaders(deps.config.publicUrl))
    .use(createRequestContext(deps, cors))
    .use(cors.plugin)
    .use(createErrorHandler(deps, { routeTable, cors }))
    .use(rawQuery)
    .use(createHealthRoutes({ ...deps, whyUnwritable }))
    .use(createMetricsRoute({ ...deps, whyUnwritable, readFacts }))
    .guard({ beforeHandle: limitVisitor }, (pages) =>
      pages.use(problemPages.plugin).use(docs.plugin).use(createDemoPage(deps)),
    )
    .use(iconRoutes)
    .group('/v2/private', (privateRoutes) =>
      privateRoutes
        .use(createUserRoutes(deps))
        .use(createLtcRoutes(deps))
        .use(createDeepDiveRoutes(deps))
        .use(createMatchingRoutes(deps))
        .use(createCoverageRoutes(deps))
        .use(createCemeteryRoutes(deps))
        .use(createSalesRoutes(deps))
        .use(createReferenceRoutes(deps)),
    );

  routeTable.fill(app.routes);
  docs.describe(app.routes);
  problemPages.describe(app.routes);
  return app;
}

export type App = ReturnType<typeof createApp>;
