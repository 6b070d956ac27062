import type { Context } from 'elysia';
import type { DemoTokens } from './auth/signing';
import type { VerifyToken } from './auth/verifier';
import type { SecretSource } from './config/secrets';
import type { Config } from './config/settings';
import type { Database } from './db/client';
import type { Log } from './log';
import type { Carrier } from './shared/carrier';
import type { Metrics, Tracing } from './telemetry/events';

/** The external dependencies of the app. */
export interface AppDeps {
  readonly config: Pick<
    Config,
    'bodyLimitBytes' | 'chat' | 'corsOrigins' | 'publicUrl' | 'reportTimeZone' | 'requestTimeoutMs'
  > & {
    readonly metricsToken: SecretSource;
    readonly carrier: Pick<Config['carrier'], 'applicationsPerDay' | 'attempts' | 'timeoutMs'>;
    readonly database: Pick<Config['database'], 'timeoutMs'>;
  };
  readonly carrier: Carrier;
  /** For writes, and for reads that must see them. */
  readonly db: Database;
  /** For reads that may be slightly stale: the replica with fallback to `db`, or `db`. */
  readonly reads: Database;
  /** The replica without fallback. */
  readonly replica: Database | undefined;
  /** Wall clock of records and dates. A demo may freeze it. */
  readonly clock: () => Date;
  /** Wall clock that a demo does not freeze: stored instants that processes compare, such as the next retry. */
  readonly systemClock: () => Date;
  /** Ages in memory. */
  readonly monotonicMs: () => number;
  readonly verifyToken: VerifyToken;
  /** False while a JWKS gives no key to check tokens with. */
  readonly hasTokenKeys: () => boolean;
  /** Defined only if the start generated the key. Pages show them only in a browser on this machine. */
  readonly demoTokens: DemoTokens | undefined;
  /** Undefined if limits are off. */
  readonly rateLimits: RateLimits | undefined;
  readonly log: Log;
  readonly newId: () => string;
  readonly newRequestId: () => string;
  /** The base of absolute links, without a trailing slash; known once the service listens. */
  readonly publicUrl: () => string;
  readonly lifecycle: Lifecycle;
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
}

/** State of the process that the app reports to health checks and clients. */
export interface Lifecycle {
  isDraining: boolean;
  /** The database file or its disk is lost. No save is acknowledged until a restart. */
  hasLostDisk: boolean;
  /** The event that was detected, as a sentence without a final stop. */
  lossReason?: string | undefined;
  /** Instructions for the operator. */
  lossRemedy?: string | undefined;
  onRequestWhileDraining(): void;
}

/** The server, which knows the addresses of connections. */
export interface AddressSource {
  requestIP(request: Request): { readonly address: string } | null;
}

/** The dependencies of routes. */
export interface RouteDeps extends AppDeps {
  /** Not the `server` of a context: Elysia defines that property again in each request. Null until the service listens. */
  readonly server: () => AddressSource | null;
}

/** A request whose response reports the remaining quota in its headers. */
export interface RateLimitedRequest {
  readonly request: Request;
  readonly server: AddressSource | null;
  readonly set: Pick<Context['set'], 'headers'>;
}

/** Every method throws AppError `rate-limited` if the quota is used up. */
export interface RateLimits {
  /** Counts a request with a verified token. */
  takeAuthenticated(clientId: string, context: RateLimitedRequest): void;
  /** Counts a request to start an application, which has a second, stricter limit. */
  takeCoverage(clientId: string, context: RateLimitedRequest): void;
  /** Counts a private request without a valid token. */
  takeUnauthenticated(context: RateLimitedRequest): void;
  /** Checks the quota before the verification of a token that is not cached; counts nothing. */
  requireUnauthenticated(context: RateLimitedRequest): void;
  /** Counts a request for a public or missing path. */
  takeAnonymous(context: RateLimitedRequest): void;
}
