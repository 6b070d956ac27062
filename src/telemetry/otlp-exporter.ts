import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';

export interface ExporterSettings {
  /** Without `/v1/traces`. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** Called when the receiver does not take spans any more, with a reason, and without one when it does again. */
  readonly onChange: (reason?: string) => void;
}

/**
 * Sends spans as OTLP in JSON. What cannot be sent is dropped, and never sent again: spans are worth less than memory.
 * Unlike the SDK's own exporters it reads no environment.
 */
export function createOtlpExporter({ endpoint, headers, timeoutMs, onChange }: ExporterSettings): SpanExporter {
  let lastReason: string | undefined;

  /** @returns why the spans were not taken */
  const send = async (spans: ReadableSpan[]): Promise<string | undefined> => {
    try {
      const response = await fetch(`${endpoint}/v1/traces`, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: Buffer.from(JsonTraceSerializer.serializeRequest(spans) ?? []),
        // Headers may hold a key.
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
