import * as v from 'valibot';
import { BaseUrl, isLoopback, NonEmpty, setting } from './validators';

const headersShape = /^[\w.-]+=[\x21-\x2b\x2d-\x7e]*(?:,[\w.-]+=[\x21-\x2b\x2d-\x7e]*)*$/;

/** As the OpenTelemetry specification writes them. */
const ExporterHeaders = v.pipe(
  v.string(),
  v.check((text) => {
    try {
      return headersShape.test(text) && /^[\x20-\x7e]*$/.test(decodeURIComponent(text));
    } catch {
      return false;
    }
  }, 'must be name=value pairs with commas between, values percent-encoded'),
  v.transform((text) =>
    Object.fromEntries(
      text.split(',').map((pair) => {
        const end = pair.indexOf('=');
        return [pair.slice(0, end), decodeURIComponent(pair.slice(end + 1))];
      }),
    ),
  ),
);

/** The settings of what watches the service; those of OpenTelemetry have its names. */
export const telemetrySettings = {
  METRICS_TOKEN: setting(
    v.pipe(v.string(), v.regex(/^[\x21-\x7e]{32,}$/, 'must be at least 32 visible ASCII characters')),
    'bearer token of `GET /metrics`, at least 32 characters; no such path without it',
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(
    BaseUrl,
    'an OTLP receiver over HTTP, without `/v1/traces`; no traces without it',
  ),
  OTEL_EXPORTER_OTLP_HEADERS: setting(
    ExporterHeaders,
    '`name=value,…` for it, values percent-encoded; in production over https',
  ),
  OTEL_SERVICE_NAME: setting(NonEmpty, 'what the traces name this service', 'personal-planning-service'),
  OTEL_TRACES_SAMPLER_ARG: setting(
    v.pipe(v.string(), v.regex(/^(?:0|1|0\.\d{1,9}|1\.0{1,9})$/, 'must be a number from 0 to 1'), v.transform(Number)),
    'part of the traces that is exported, `0` to `1`, where no caller has decided',
    '1',
  ),
};

const Settings = v.object(telemetrySettings);

/** Where spans go, if anywhere. */
export function tracingOf(settings: v.InferOutput<typeof Settings>) {
  const endpoint = settings.OTEL_EXPORTER_OTLP_ENDPOINT?.replace(/\/+$/, '');
  if (endpoint === undefined) return undefined;
  const { OTEL_EXPORTER_OTLP_HEADERS: headers = {}, OTEL_SERVICE_NAME: serviceName } = settings;
  return { endpoint, headers, serviceName, ratio: settings.OTEL_TRACES_SAMPLER_ARG };
}

/** What production must not have: the headers for the receiver hold its key. */
export function telemetryFaults(environment: Readonly<Record<string, string | undefined>>) {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_HEADERS: headers } = environment;
  return headers !== undefined && endpoint?.startsWith('http:') && !isLoopback(endpoint)
    ? [{ key: 'OTEL_EXPORTER_OTLP_ENDPOINT', rule: 'must be an https address in production, as there are headers' }]
    : [];
}
