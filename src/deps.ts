import type { Context } from 'elysia';
import type { DemoTokens } from './auth/signing';
import type { VerifyToken } from './auth/verifier';
import type { SecretSource } from './config/secrets';
import type { Config } from './config/settings';
import type { Database } from './db/client';
import type { Log } from './log';
import type { Carrier } from './shared/carrier';
import type { Metrics, Tracing } from './telemetry/events';

/** What the app touches outside itself. Everything else it makes from these. */
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
  /** Takes all writes, and the reads that must see them. */
  readonly db: Database;
  /** What may be read as it was a moment ago: the replica, and `db` where there is none or it cannot answer. */
  readonly reads: Database;
  /** The replica alone, if there is one. */
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
  /** Undefined unless the start made its own key: a page may show them to whoever runs the service on their machine. */
  readonly demoTokens: DemoTokens | undefined;
  /** Undefined when they are off. */
  readonly rateLimits: RateLimits | undefined;
  readonly log: Log;
  readonly newId: () => string;
  readonly newRequestId: () => string;
  /** Base of every absolute link, without a last slash; known once the service listens. */
  readonly publicUrl: () => string;
  readonly lifecycle: Lifecycle;
  /** Undefined, like `tracing`, where nobody has asked for it. */
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
}

/** What the process tells the app of itself, and hears from it. */
export interface Lifecycle {
  isDraining: boolean;
  /** The database file or its disk is lost: no save is acknowledged until the process is restarted. */
  hasLostDisk: boolean;
  /** What happened to the file or the disk. */
  lossReason?: string | undefined;
  /** How an operator gets the service to save again. */
  lossRemedy?: string | undefined;
  onRequestWhileDraining(): void;
}

/** What tells where a connection comes from: Bun's server, or nothing where no server listens. */
export interface AddressSource {
  requestIP(request: Request): { readonly address: string } | null;
}

/** What of a request decides about its limit, and where the answer says how much is left. */
export interface RateLimitedRequest {
  readonly request: Request;
  readonly server: AddressSource | null;
  readonly set: Pick<Context['set'], 'headers'>;
}

/** Every method throws AppError `rate-limited` when nothing is left. */
export interface RateLimits {
  /** A request of somebody whose token is verified; counted once, however often it is asked about. */
  takeAuthenticated(callerId: string, exchange: RateLimitedRequest): void;
  /** The stricter limit of starting an application, on top of that. */
  takeCoverage(callerId: string, exchange: RateLimitedRequest): void;
  /** A private request without a token that can be verified. */
  takeUnauthenticated(exchange: RateLimitedRequest): void;
  /** Asked before a token that was never seen is verified; counts nothing. */
  requireUnauthenticated(exchange: RateLimitedRequest): void;
  /** A request for what is public, or not there. */
  takeAnonymous(exchange: RateLimitedRequest): void;
}
