/** The platform features that the client may use in addition to ES2020; features that some platforms lack are optional. */

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}
interface Headers {
  get(name: string): string | null;
  set(name: string, value: string): void;
}
interface RequestInit {
  method?: string;
  headers?: Headers;
  body?: string | null;
  signal?: AbortSignal;
  redirect?: 'manual';
  credentials?: 'omit';
}
interface Response {
  readonly status: number;
  readonly ok: boolean;
  readonly headers: Headers;
  readonly type?: string;
  text(): Promise<string>;
}
/** Older platforms ignore this option. */
interface ErrorConstructor {
  new (message?: string, options?: { readonly cause?: unknown }): Error;
}

declare function fetch(url: string, init: RequestInit): Promise<Response>;
declare function setTimeout(work: () => void, ms: number): number;
declare function clearTimeout(timer: number | undefined): void;
declare const performance: { now(): number };
declare const Headers: new () => Headers;
declare const AbortController: (new () => { readonly signal: AbortSignal; abort(): void }) | undefined;
declare const Request: (new (url: string) => object) | undefined;
declare const location: { readonly href: string } | undefined;
declare const URL: new (url: string, base: string) => { readonly href: string };
declare var crypto: { getRandomValues(bytes: Uint8Array): void } | undefined;
