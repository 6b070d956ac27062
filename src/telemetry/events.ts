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

/** Observes the calls of the carrier, without data of the applicant. */
export interface CarrierObserver {
  /** Runs a call, with all its attempts. */
  observeCall<Decision extends { readonly kind: CarrierDecisionKind }>(
    work: () => Promise<Decision>,
  ): Promise<Decision>;
  /** Runs one attempt, which adds the headers to its own. */
  observeAttempt<Response extends { readonly status: number }>(
    endpoint: CarrierEndpoint,
    send: (headers: Readonly<Record<string, string>>) => Promise<Response>,
  ): Promise<Response>;
  breakerChanged(endpoint: CarrierEndpoint, state: BreakerState): void;
}

export interface CompletedRequest {
  readonly requestId: string;
  /** A method of HTTP, or `other`. */
  readonly method: string;
  /** The pattern of the route, never the path of the request. */
  readonly route: string | undefined;
  readonly status: number;
  readonly durationMs: number;
}

/** Values that a scrape reads from the database. */
export interface DatabaseFacts {
  /** Applications by state. */
  readonly applications: Readonly<Record<string, number>>;
  /** The age of the oldest application that has no decision and is not abandoned. */
  readonly oldestUnknownSeconds?: number | undefined;
  /** When each recurring task last succeeded, in epoch milliseconds. */
  readonly completedTasks: Readonly<Record<string, number>>;
}

/** Values that are read at a scrape and not counted. */
export interface Scrape {
  readonly inFlight: number;
  /** Undefined while the database is unreachable. */
  readonly database: DatabaseFacts | undefined;
  readonly isWritable: boolean;
  readonly hasLostDatabase: boolean;
}

export interface Metrics {
  requestCompleted(request: CompletedRequest): void;
  /** A request failed outside the error handler, which has its method and route. */
  requestCrashed(): void;
  database(name: DatabaseName): DatabaseObserver;
  readonly carrier: CarrierObserver;
  /** The carrier gave a number that another application holds. */
  applicationNumberTaken(): void;
  catalogLoaded(version: number): void;
  replicaChanged(isInSync: boolean): void;
  replicaSynced(): void;
  keysFetched(): void;
  print(scrape: Scrape): Promise<string>;
  readonly contentType: string;
}

export interface Tracing {
  /** Handles a request in its span. */
  inRequestSpan<Result>(request: Request, work: () => Result): Result;
  traceIdOf(request: Request): string | undefined;
  requestAuthenticated(request: Request): void;
  requestCompleted(request: Request, response: CompletedRequest): void;
  database(name: DatabaseName): DatabaseObserver;
  readonly carrier: CarrierObserver;
  /** Exports the remaining spans, within a time limit. */
  stop(): Promise<void>;
}
