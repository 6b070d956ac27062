/** The kind of a database call; `other` is neither a query nor a change of rows, such as DDL or a PRAGMA. */
export type CallKind = 'read' | 'write' | 'other';

/** Which database a call goes to. */
export type DatabaseName = 'primary' | 'replica';

/** Observes the calls of a database, without SQL and without values. */
export interface DatabaseObserver {
  /** Runs a call and returns its result. */
  observe<Result>(kind: CallKind, work: () => Promise<Result>): Promise<Result>;
  /** Called in the context of the caller. The result is called when the transaction of the batch begins. */
  batchQueued(): () => void;
  /** The transaction of a group commit begins. */
  groupStarted(batches: number, statements: number): void;
  /** The number of write batches without an outcome. */
  pendingChanged(batches: number): void;
  /** A checkpoint that was due has ended; an incomplete one is retried. */
  checkpointEnded(isComplete: boolean): void;
}

export type CarrierEndpoint = 'start' | 'find';
export type BreakerState = 'closed' | 'half-open' | 'open';
type CarrierDecisionKind = 'accepted' | 'declined';

/** Watches the calls of the carrier. What it is told holds nothing of the applicant. */
export interface CarrierObserver {
  /** Runs a call, with all its attempts. */
  observeCall<Decision extends { readonly kind: CarrierDecisionKind }>(
    work: () => Promise<Decision>,
  ): Promise<Decision>;
  /** Runs one attempt, which sends the headers beside its own. */
  observeAttempt<Answer extends { readonly status: number }>(
    endpoint: CarrierEndpoint,
    send: (headers: Readonly<Record<string, string>>) => Promise<Answer>,
  ): Promise<Answer>;
  breakerChanged(endpoint: CarrierEndpoint, state: BreakerState): void;
}

/** A request that was answered. */
export interface CompletedRequest {
  readonly requestId: string;
  /** One that HTTP has, or `other`. */
  readonly method: string;
  /** The pattern of the route, never the address; undefined where there is none. */
  readonly route: string | undefined;
  readonly status: number;
  readonly durationMs: number;
}

/** What the database says at a scrape. */
export interface DatabaseFacts {
  /** Applications by state. */
  readonly applications: Readonly<Record<string, number>>;
  /** The age of the oldest application that has no decision and is not abandoned. */
  readonly oldestUnknownSeconds?: number | undefined;
  /** When each recurring task last succeeded, in epoch milliseconds. */
  readonly completedTasks: Readonly<Record<string, number>>;
}

/** What a scrape reads, beside what has been counted. */
export interface Scrape {
  readonly inFlight: number;
  /** Undefined while the database cannot be read. */
  readonly database: DatabaseFacts | undefined;
  readonly isWritable: boolean;
  readonly hasLostDatabase: boolean;
}

/** What is counted and measured, as text for whoever asks. */
export interface Metrics {
  requestCompleted(request: CompletedRequest): void;
  /** A request has failed in a way that nothing is known of it any more. */
  requestCrashed(): void;
  database(name: DatabaseName): DatabaseObserver;
  readonly carrier: CarrierObserver;
  /** The carrier gave a number that another application holds. */
  applicationNumberTaken(): void;
  catalogLoaded(version: number): void;
  replicaChanged(isInSync: boolean): void;
  replicaSynced(): void;
  /** The JWKS was fetched. */
  keysFetched(): void;
  print(scrape: Scrape): Promise<string>;
  readonly contentType: string;
}

/** The spans of what goes on, for an exporter. */
export interface Tracing {
  /** Runs what answers a request inside of the request's span. */
  inRequestSpan<Result>(request: Request, work: () => Result): Result;
  /** The id by which the log and the trace of a request are found together. */
  traceIdOf(request: Request): string | undefined;
  /** The request is somebody's whose token is good. */
  requestAuthenticated(request: Request): void;
  /** Ends the span of a request. */
  requestCompleted(request: Request, response: CompletedRequest): void;
  database(name: DatabaseName): DatabaseObserver;
  readonly carrier: CarrierObserver;
  /** Exports what is left, for as long as it may take. */
  stop(): Promise<void>;
}
