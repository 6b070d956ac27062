import { Elysia } from 'elysia';
import { countParts, listCompletedTasks } from './db/queries';
import { createWriteProbe } from './db/sql-client';
import { createDemoPage } from './demo/page';
import type { AppDeps, RateLimitedRequest, RouteDeps } from './deps';
import { AppError } from './errors';
import { createProblemPages } from './http/docs/problem-pages';
import { createDocs } from './http/docs/routes';
import { createHealthRoutes, createMetricsRoute } from './http/operations';
import { createErrorHandler, createRouteTable, Problem, problemResponse } from './http/problem-response';
import { createCors, createRequestContext, rawQuery, sentTargetRoutes } from './http/request-context';
import { responseHeaders } from './http/response';
import { describeError } from './log';
import {
  CustomSelection,
  LifeInsurance,
  LifeInsuranceAnswers,
  LifetimeCare,
  LifetimeCareAnswers,
  LtcLifetimeCare,
  LtcLifetimeCareAnswers,
  SelectionItem,
} from './modules/answers/model';
import { createAnswerRoutes } from './modules/answers/routes';
import { createAuditStore } from './modules/audit/store';
import { Cemetery, CemeteryPage } from './modules/cemeteries/model';
import { createCemeteryRoutes } from './modules/cemeteries/routes';
import { createCemeteryStore } from './modules/cemeteries/store';
import { createOperationStore } from './modules/coverage/outcomes';
import { createCoverageRoutes } from './modules/coverage/routes';
import { ApplicationsBody, createCoverageService } from './modules/coverage/service';
import { createApplicationStore } from './modules/coverage/store';
import { createSubmissions } from './modules/coverage/submissions';
import { createCatalogStore } from './modules/matching/catalog-store';
import { Matches } from './modules/matching/model';
import { createMatchingRoutes, createMatchingService, iconRoutes } from './modules/matching/routes';
import { createReferenceRoutes } from './modules/reference/routes';
import { createReferenceStore, HealthAndCareBody, ReferenceOption } from './modules/reference/store';
import { MonthlyGlanceBody } from './modules/sales/model';
import { createSalesRoutes } from './modules/sales/routes';
import { createSalesStore } from './modules/sales/store';
import { Profile, User, UserBody } from './modules/users/model';
import { createUserRoutes } from './modules/users/routes';
import { createSaveAnswers } from './modules/users/save';
import { createUserStore } from './modules/users/store';
import { createLastWrites, createReadRecord } from './modules/users/versions';
import { calendarDateAt } from './shared/calendar';

/** The most consecutive queries of one response. */
const maxQueries = 6;
const idleSeconds = 10;

type ServeConfig = Pick<AppDeps['config'], 'carrier' | 'database' | 'publicUrl' | 'requestTimeoutMs'>;

/** The options of Bun's server. */
export function serveOptions({
  config,
  log,
  metrics,
  newRequestId,
}: Pick<AppDeps, 'log' | 'newRequestId'> & Partial<Pick<AppDeps, 'metrics'>> & { config: ServeConfig }) {
  const { carrier, database, publicUrl, requestTimeoutMs } = config;
  const longestResponseMs = (carrier.attempts + 1) * carrier.timeoutMs + maxQueries * database.timeoutMs;
  return {
    // Bun restarts it at a complete request and at a response, not at each byte. It ends slow request heads too; slow bodies
    // get a response earlier.
    idleTimeout: Math.ceil(Math.max(longestResponseMs, requestTimeoutMs) / 1000) + idleSeconds,
    // Otherwise two services on one port would silently share its requests.
    reusePort: false,
    // Errors that bypass the error handler (an invalid header, `throw null`) would otherwise show Bun's own page.
    development: false,
    // `readJsonBody` has the limit. It runs after authentication and responds with a problem.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    error(error: unknown) {
      const requestId = newRequestId();
      log.error({ requestId, problem: 'internal-error', ...describeError(error) }, 'request failed');
      metrics?.requestCrashed();
      const response = problemResponse(new AppError('internal-error'), new Request('http://localhost/'), requestId);
      response.headers.set('x-request-id', requestId);
      for (const [name, value] of Object.entries(responseHeaders(publicUrl))) response.headers.set(name, value);
      return response;
    },
  };
}

/** The named schemas of the OpenAPI document. */
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

/** The stores and services, built once: routes and background tasks share them. */
export function createServices(deps: AppDeps) {
  const { db, reads, replica } = deps;
  const today = () => calendarDateAt(deps.clock(), deps.config.reportTimeZone);
  const lastWrites = replica && createLastWrites();
  const users = createUserStore(db, lastWrites);
  const applications = createApplicationStore(db);
  const submissions = createSubmissions(deps, applications);
  return {
    today,
    readRecord:
      replica && lastWrites ? createReadRecord(users.find, createUserStore(replica).find, lastWrites) : users.find,
    saveAnswers: createSaveAnswers(users, deps.clock),
    matching: createMatchingService(deps, { users, catalogs: createCatalogStore(db), today }),
    coverage: createCoverageService(deps, { users, applications, submissions }),
    submissions,
    cemeteries: createCemeteryStore(reads),
    sales: createSalesStore(reads),
    reference: createReferenceStore(reads),
    audit: createAuditStore(db),
  };
}

/** The service as one Elysia app, which main.ts starts. */
export function createApp(external: AppDeps, services = createServices(external)) {
  const deps: RouteDeps = { ...external, server: () => app.server };
  const routeTable = createRouteTable();
  const cors = createCors(deps.config);
  const docs = createDocs(deps, models);
  const problemPages = createProblemPages(deps, routeTable);
  const limitAnonymous = ({ request, server, set }: RateLimitedRequest) =>
    deps.rateLimits?.takeAnonymous({ request, server, set });

  const whyUnwritable = createWriteProbe(deps.db.$client);
  const readFacts = async () => ({
    applications: await countParts(deps.reads, 'applications'),
    oldestUnknownSeconds: await createOperationStore(deps.reads).findOldestOpenAge(deps.clock().getTime()),
    completedTasks: await listCompletedTasks(deps.reads),
  });

  const app = new Elysia({
    serve: {
      ...serveOptions(deps),
      routes: sentTargetRoutes(
        (request): Response | Promise<Response> => app.fetch(request),
        ['/v2/private/healthAndCare/'],
      ),
    },
    // Otherwise Elysia finds a wrong path behind a `Host` of fewer than four characters.
    handler: { standardHostname: false },
  })
    // The first readiness check then has a result even if the database hangs.
    .onStart(() => void whyUnwritable())
    .headers(responseHeaders(deps.config.publicUrl))
    .use(createRequestContext(deps, cors))
    .use(cors.plugin)
    .use(createErrorHandler(deps, { routeTable, cors }))
    .use(rawQuery)
    .use(createHealthRoutes({ ...deps, whyUnwritable }))
    .use(createMetricsRoute({ ...deps, whyUnwritable, readFacts }))
    .guard({ beforeHandle: limitAnonymous }, (pages) =>
      pages.use(problemPages.plugin).use(docs.plugin).use(createDemoPage(deps)),
    )
    .use(iconRoutes)
    .group('/v2/private', (privateRoutes) =>
      privateRoutes
        .use(createUserRoutes(deps, services.readRecord))
        .use(createAnswerRoutes(deps, services))
        .use(createMatchingRoutes(deps, services))
        .use(createCoverageRoutes(deps, services))
        .use(createCemeteryRoutes(deps, services.cemeteries))
        .use(createSalesRoutes(deps, services))
        .use(createReferenceRoutes(deps, services.reference)),
    );

  routeTable.fill(app.routes);
  docs.describe(app.routes);
  problemPages.describe(app.routes);
  return app;
}

export type App = ReturnType<typeof createApp>;
