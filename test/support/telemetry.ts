import * as v from 'valibot';
import { openServiceDatabase } from '../../src/db/client';
import type { AppDeps } from '../../src/deps';
import { createLog } from '../../src/log';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import type { Scrape } from '../../src/telemetry/events';
import { openTelemetry } from '../../src/telemetry/telemetry';
import { createTestApp, type Sandbox, startSandbox, type TestApp, testCarrier, testConfig } from './app';
import { temporaryDatabase } from './database';
import { atEnd } from './resources';

export const metricsToken = 'the-metrics-token-of-the-tests-0123456789';

interface Watched {
  /** Receives the spans; without it tracing is off. */
  readonly receiver?: Pick<Receiver, 'url'>;
  readonly ratio?: number;
  readonly carrierUrl?: string;
  readonly carrierSettings?: Partial<typeof testCarrier>;
  readonly databaseTimeoutMs?: number;
  readonly overrides?: Partial<AppDeps>;
}

export interface WatchedApp extends TestApp {
  readonly sandbox: Sandbox;
  readonly tracing: AppDeps['tracing'];
  /** The metrics text. */
  scrape(): Promise<string>;
  /** The value of the first sample with this name and these labels, or 0. */
  sample(name: string, labels?: Readonly<Record<string, string>>): Promise<number>;
}

/** A scrape of a healthy service without data. */
export const aScrape: Scrape = { inFlight: 0, database: undefined, isWritable: true, hasLostDatabase: false };

/** The real app with metrics, and with tracing if there is a receiver. */
export async function createWatchedApp(options: Watched = {}): Promise<WatchedApp> {
  const { receiver, ratio = 1, databaseTimeoutMs = 2_000, overrides } = options;
  const telemetryLog: string[] = [];
  const tracing =
    receiver &&
    ({ endpoint: receiver.url, headers: { 'x-key': 'for-the-receiver' }, serviceName: 'test', ratio } as const);
  const log = createLog('debug', { write: (line) => telemetryLog.push(line) });
  const { url } = await temporaryDatabase();
  const telemetry = await openTelemetry({ metricsToken, tracing, replica: undefined, database: { url } }, log);
  atEnd(() => telemetry.tracing?.stop());
  const watch = { observers: telemetry.databaseObservers('primary') };
  const db = await openServiceDatabase({ url, timeoutMs: databaseTimeoutMs }, watch);
  atEnd(() => db.$client.close());
  const sandbox = await startSandbox();
  const { carrierObservers: observers } = telemetry;
  const carrierUrl = options.carrierUrl ?? sandbox.url;
  const testApp = await createTestApp({
    carrier: createHttpCarrier({
      ...testCarrier,
      ...options.carrierSettings,
      url: carrierUrl,
      apiKey: 'test-key',
      observers,
    }),
    config: { ...testConfig, metricsToken },
    db,
    log: createLog('debug', {
      write(line) {
        telemetryLog.push(line);
      },
    }),
    metrics: telemetry.metrics,
    tracing: telemetry.tracing,
    ...overrides,
  });
  const scrape = async () => {
    const headers = { authorization: `Bearer ${metricsToken}` };
    return (await testApp.call('GET', '/metrics', { headers })).text;
  };
  return Object.assign(testApp, {
    db,
    url,
    logLines: telemetryLog,
    sandbox,
    tracing: telemetry.tracing,
    scrape,
    sample: async (name: string, labels: Readonly<Record<string, string>> = {}) =>
      readSamples(await scrape()).find(
        (each) => each.name === name && Object.entries(labels).every(([label, value]) => each.labels[label] === value),
      )?.value ?? 0,
  });
}

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The samples of a scrape; throws for an invalid line. */
export function readSamples(text: string): Sample[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name, labels = '', value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      if (name === undefined) throw new Error(`${line} is not a sample`);
      const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', text = '']) => [label, text]);
      return { name, labels: Object.fromEntries(pairs), value: Number(value) };
    });
}

const Value = v.union([
  v.pipe(
    v.strictObject({ stringValue: v.string() }),
    v.transform(({ stringValue }): string | number => stringValue),
  ),
  v.pipe(
    v.strictObject({ intValue: v.number() }),
    v.transform(({ intValue }): string | number => intValue),
  ),
]);
const Attributes = v.pipe(
  v.array(v.strictObject({ key: v.string(), value: Value })),
  v.transform((pairs) => Object.fromEntries(pairs.map(({ key, value }) => [key, value]))),
);
const Span = v.looseObject({
  traceId: v.pipe(v.string(), v.regex(/^[\da-f]{32}$/)),
  spanId: v.pipe(v.string(), v.regex(/^[\da-f]{16}$/)),
  parentSpanId: v.optional(v.string()),
  name: v.string(),
  kind: v.number(),
  startTimeUnixNano: v.pipe(
    v.string(),
    v.transform((text) => BigInt(text)),
  ),
  endTimeUnixNano: v.pipe(
    v.string(),
    v.transform((text) => BigInt(text)),
  ),
  attributes: Attributes,
  events: v.array(v.looseObject({ name: v.string(), attributes: v.array(v.never()) })),
  status: v.looseObject({ code: v.number(), message: v.optional(v.never()) }),
});
export type Span = v.InferOutput<typeof Span>;
const Export = v.strictObject({
  resourceSpans: v.array(
    v.looseObject({
      resource: v.looseObject({ attributes: Attributes }),
      scopeSpans: v.array(v.looseObject({ spans: v.array(Span) })),
    }),
  ),
});

export interface Receiver {
  readonly url: string;
  readonly spans: Span[];
  readonly resources: Record<string, string | number>[];
  /** Everything received: addresses, headers and bodies. */
  readonly sent: string[];
  /** The status of the next responses; 'never' leaves requests pending. */
  reply: number | 'never';
}

/** An OTLP receiver on loopback. */
export function startReceiver(): Receiver {
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      const text = await request.text();
      receiver.sent.push(`${request.method} ${request.url} ${JSON.stringify(request.headers)} ${text}`);
      if (receiver.reply === 'never') await new Promise(() => undefined);
      if (receiver.reply !== 200) return new Response('no', { status: Number(receiver.reply) });
      for (const { resource, scopeSpans } of v.parse(Export, JSON.parse(text)).resourceSpans) {
        receiver.resources.push(resource.attributes);
        receiver.spans.push(...scopeSpans.flatMap(({ spans }) => spans));
      }
      return Response.json({});
    },
  });
  atEnd(() => server.stop(true));
  const receiver: Receiver = { url: server.url.origin, spans: [], resources: [], sent: [], reply: 200 };
  return receiver;
}
