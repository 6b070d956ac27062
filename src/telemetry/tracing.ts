import { AsyncLocalStorage } from 'node:async_hooks';
import { type Context, ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, TraceFlags, trace } from '@opentelemetry/api';
import { type ExportResult, ExportResultCode, parseTraceParent } from '@opentelemetry/core';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { databaseOutcome } from '../db/errors';
import { withTimeout } from '../shared/async';
import { carrierOutcome } from '../shared/carrier';
import type { CarrierObserver, DatabaseName, DatabaseObserver, Tracing } from './events';

interface ExporterSettings {
  /** Without `/v1/traces`. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** Called with a reason when the export begins to fail, and without one when it works again. */
  readonly onChange: (reason?: string) => void;
}

/** Sends spans as OTLP in JSON, without retries. Unlike the SDK's exporters, it reads no environment variables. */
function createOtlpExporter({ endpoint, headers, timeoutMs, onChange }: ExporterSettings): SpanExporter {
  let lastReason: string | undefined;

  /** @returns the reason of a failure */
  const send = async (spans: ReadableSpan[]): Promise<string | undefined> => {
    try {
      const response = await fetch(`${endpoint}/v1/traces`, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: Buffer.from(JsonTraceSerializer.serializeRequest(spans) ?? []),
        // The headers may contain a key, which must not reach another host.
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      });
      await response.body?.cancel();
      return response.ok ? undefined : `status-${response.status}`;
    } catch (error) {
      return error instanceof Error && error.name === 'TimeoutError' ? 'timeout' : 'unreachable';
    }
  };

  return {
    export(spans: ReadableSpan[], done: (result: ExportResult) => void) {
      void send(spans).then((reason) => {
        if (reason !== lastReason) onChange(reason);
        lastReason = reason;
        done({ code: reason === undefined ? ExportResultCode.SUCCESS : ExportResultCode.FAILED });
      });
    },
    shutdown: async () => undefined,
  };
}

/** Longest queue of spans, of less than 1 kB each. Further spans are dropped. */
const maxWaitingSpans = 4096;
const batch = { maxExportBatchSize: 512, scheduledDelayMillis: 1_000 };
const exportTimeoutMs = 5_000;
const stopTimeoutMs = 1_000;
const privatePath = /^[a-z]+:\/\/[^/]*\/v2\/private\//;

export interface TracerSettings {
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  readonly version: string;
  /** Ratio of exported traces among those that begin here. */
  readonly ratio: number;
  readonly onExportChange: (reason?: string) => void;
}

interface RequestSpan {
  readonly span: Span;
  /** Whether an unauthenticated client has decided on the export, by its `traceparent`. */
  isUntrusted: boolean;
}

/**
 * Spans of requests and of their database and carrier calls. Attributes are times, statuses and constants, never a path, a
 * header, an error message or a value of a request.
 */
export function createTracing(settings: TracerSettings): Tracing {
  const exporter = createOtlpExporter({ ...settings, timeoutMs: exportTimeoutMs, onChange: settings.onExportChange });
  const processor = new BatchSpanProcessor({
    exporter,
    ...batch,
    maxQueueSize: maxWaitingSpans,
    exportTimeoutMillis: 2 * exportTimeoutMs,
  });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': settings.serviceName, 'service.version': settings.version }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(settings.ratio) }),
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer('personal-planning-service');
  const contexts = new AsyncLocalStorage<Context>();
  const begun = new WeakMap<Request, RequestSpan>();

  const databaseObserver = (name: DatabaseName): DatabaseObserver => ({
    async observe(kind, work) {
      const parent = contexts.getStore();
      // Background tasks have no trace.
      if (parent === undefined || trace.getSpan(parent)?.isRecording() !== true) return work();
      const attributes = { 'db.system.name': 'sqlite', 'db.operation.name': kind, 'planning.database': name };
      const span = tracer.startSpan(`database ${kind}`, { kind: SpanKind.CLIENT, attributes }, parent);
      try {
        return await contexts.run(trace.setSpan(parent, span), work);
      } catch (error) {
        fail(span, databaseOutcome(error));
        throw error;
      } finally {
        span.end();
      }
    },
    batchQueued() {
      const context = contexts.getStore();
      const span = context === undefined ? undefined : trace.getSpan(context);
      return () => void span?.addEvent('transaction begins');
    },
    groupStarted: () => undefined,
    pendingChanged: () => undefined,
    checkpointEnded: () => undefined,
  });

  const carrier: CarrierObserver = {
    observeCall: (work) => work(),
    async observeAttempt(endpoint, send) {
      const [method, template] =
        endpoint === 'start' ? ['POST', '/applications'] : ['GET', '/applications/{reference}'];
      const attributes = { 'http.request.method': method, 'url.template': template };
      const parent = contexts.getStore() ?? ROOT_CONTEXT;
      const span = tracer.startSpan(`${method} ${template}`, { kind: SpanKind.CLIENT, attributes }, parent);
      try {
        const response = await send({ traceparent: traceParentOf(span) });
        span.setAttribute('http.response.status_code', response.status);
        if (response.status >= 400) fail(span, String(response.status));
        return response;
      } catch (error) {
        fail(span, carrierOutcome(error));
        throw error;
      } finally {
        span.end();
      }
    },
    breakerChanged: () => undefined,
  };

  return {
    inRequestSpan(request, work) {
      const parent = parentOf(request);
      const span = tracer.startSpan('request', { kind: SpanKind.SERVER }, parent ?? ROOT_CONTEXT);
      begun.set(request, { span, isUntrusted: parent !== undefined });
      return contexts.run(trace.setSpan(ROOT_CONTEXT, span), work);
    },
    traceIdOf: (request) => begun.get(request)?.span.spanContext().traceId,
    requestAuthenticated(request) {
      const requestSpan = begun.get(request);
      if (requestSpan !== undefined) requestSpan.isUntrusted = false;
    },
    requestCompleted(request, { method, route, status, requestId }) {
      const { span, isUntrusted } = begun.get(request) ?? {};
      // A span that does not end is not exported.
      if (span?.isRecording() !== true || isUntrusted) return;
      span.setAttribute('http.request.method', method);
      span.updateName(route === undefined ? method : `${method} ${route}`);
      span.setAttribute('http.response.status_code', status);
      span.setAttribute('planning.request_id', requestId);
      if (route !== undefined) span.setAttribute('http.route', route);
      if (status >= 500) fail(span, String(status));
      span.end();
    },
    database: databaseObserver,
    carrier,
    async stop() {
      const stopped = provider.shutdown().catch(() => undefined);
      await withTimeout(stopped, stopTimeoutMs, () => undefined);
    },
  };
}

/** The parent of a request's span. `tracestate` is ignored, because it may contain any text. */
function parentOf({ url, headers }: Request): Context | undefined {
  const sent = headers.get('traceparent');
  const parsed = sent === null || !privatePath.test(url) ? null : parseTraceParent(sent);
  if (parsed === null) return undefined;
  const { traceId, spanId, traceFlags } = parsed;
  const context = { traceId, spanId, traceFlags: traceFlags & TraceFlags.SAMPLED, isRemote: true };
  return trace.setSpanContext(ROOT_CONTEXT, context);
}

function traceParentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-0${traceFlags & TraceFlags.SAMPLED}`;
}

/** `outcome` is one of few constants, because the text of an error may contain values. */
function fail(span: Span, outcome: string): void {
  span.setAttribute('error.type', outcome);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
