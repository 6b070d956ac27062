import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';
import type { Config } from '../config/settings';
import type { AddressSource, RateLimitedRequest, RateLimits } from '../deps';
import { AppError } from '../errors';
import { addToHeader } from './response';

interface Usage {
  readonly isOver: boolean;
  readonly remaining: number;
  /** Until the whole quota is available again. */
  readonly resetsInSeconds: number;
}

interface RateWindows {
  /** Counts one request, unless the quota is used up. */
  take(key: string, quota: number): Usage;
  /** Counts nothing. */
  peek(key: string, quota: number): Usage;
}

interface Window {
  used: number;
  readonly endsAtMs: number;
}

/**
 * One time window for each key, which begins with the first request in it. Keeps the `maxKeys` most recently used: to evict
 * one, a client needs as many other keys, each of which has a quota already.
 */
export function createRateWindows(options: {
  readonly windowMs: number;
  readonly maxKeys: number;
  readonly nowMs: () => number;
}): RateWindows {
  const { windowMs, maxKeys, nowMs } = options;
  const windows = new LRUCache<string, Window>({ max: maxKeys });

  const find = (key: string, now: number): Window | undefined => {
    const window = windows.get(key);
    return window === undefined || now >= window.endsAtMs ? undefined : window;
  };
  const usage = (window: Window | undefined, quota: number, now: number, isOver: boolean): Usage => ({
    isOver,
    remaining: quota - (window?.used ?? 0),
    resetsInSeconds: Math.ceil((window === undefined ? windowMs : window.endsAtMs - now) / 1000),
  });

  return {
    take(key, quota) {
      const now = nowMs();
      let window = find(key, now);
      if (window === undefined) {
        window = { used: 0, endsAtMs: now + windowMs };
        windows.set(key, window);
      }
      const isOver = window.used >= quota;
      if (!isOver) window.used += 1;
      return usage(window, quota, now, isOver);
    },
    peek(key, quota) {
      const now = nowMs();
      const window = find(key, now);
      return usage(window, quota, now, window !== undefined && window.used >= quota);
    },
  };
}

const unknownAddress = 'unknown';

/**
 * The network of the client: the address of the connection, or with `trustedProxyCount` the entry at this position from the
 * right end of `X-Forwarded-For`. Clients can forge all entries to the left of it. If that entry is missing or is no
 * address, the address of the connection counts.
 */
export function clientNetwork(request: Request, source: AddressSource | null, trustedProxyCount: number): string {
  if (trustedProxyCount > 0) {
    const hops = request.headers.get('x-forwarded-for')?.split(',') ?? [];
    const network = networkOf(hops.at(-trustedProxyCount)?.trim() ?? '');
    if (network !== undefined) return network;
  }
  return networkOf(source?.requestIP(request)?.address ?? '') ?? unknownAddress;
}

/**
 * Returns an IPv4 address unchanged, also in the form of IPv6 (mapped, or translated by RFC 6052), and the /64 prefix of
 * other IPv6 addresses, because one household may use all the rest. Some proxies add a port.
 */
export function networkOf(text: string): string | undefined {
  const address = parseAddress(
    /^\[(.+)\](?::\d{1,5})?$/.exec(text)?.[1] ?? /^([\d.]+):\d{1,5}$/.exec(text)?.[1] ?? text,
  );
  if (address === undefined) return undefined;
  if (address instanceof ipaddr.IPv4) return address.toString();
  if (address.range() === 'rfc6052') return address.toByteArray().slice(12).join('.');
  return `${new ipaddr.IPv6([...address.parts.slice(0, 4), 0, 0, 0, 0])}/64`;
}

function isLoopbackAddress(text: string): boolean {
  return parseAddress(text)?.range() === 'loopback';
}

/** Parses an address. The library would also accept short and octal forms of IPv4. */
export function parseAddress(text: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  const ipv4 = text.slice(text.lastIndexOf(':') + 1);
  const isDecimal = ipaddr.IPv4.isValidFourPartDecimal(ipv4);
  const isAddress = ipv4 === text ? isDecimal : (isDecimal || !ipv4.includes('.')) && ipaddr.IPv6.isValid(text);
  return isAddress ? ipaddr.process(text) : undefined;
}

const windowSeconds = 60;
/** For each kind of client and each policy; about 20 MB if all are in use. */
const maxKeys = 100_000;
/** Starting an application costs a call of the carrier. A person who corrects a form sends a few a minute. */
const coverageShare = 20;

/**
 * Limits of this instance for each client and minute; undefined if they are off. An authenticated client is identified by
 * its token, so that others at its address cannot lock it out. Unauthenticated and anonymous requests have separate quotas,
 * so that page views never prevent the verification of a new token.
 */
export function createRateLimits(
  { perMinute, trustedProxyCount }: Config['rateLimit'],
  monotonicMs: () => number,
): RateLimits | undefined {
  if (perMinute === 0) return undefined;
  const options = { windowMs: windowSeconds * 1000, maxKeys, nowMs: monotonicMs };
  const bySubject = createRateWindows(options);
  const byNetwork = createRateWindows(options);
  const usual = createPolicy('default', perMinute);
  const coverage = createPolicy('coverage', Math.ceil(perMinute / coverageShare));

  const admit = (policy: Policy, windows: RateWindows, key: string, { set }: RateLimitedRequest) =>
    policy.apply(windows.take(key, policy.quota), set);
  const subjectKey = ({ name }: Policy, clientId: string) => `${name} ${clientId}`;
  const networkKey = (kind: 'unauthenticated' | 'anonymous', { request, server }: RateLimitedRequest) =>
    `${kind} ${clientNetwork(request, server, trustedProxyCount)}`;

  return {
    takeAuthenticated: (clientId, context) => admit(usual, bySubject, subjectKey(usual, clientId), context),
    takeCoverage: (clientId, context) => admit(coverage, bySubject, subjectKey(coverage, clientId), context),
    takeUnauthenticated: (context) => admit(usual, byNetwork, networkKey('unauthenticated', context), context),
    requireUnauthenticated(context) {
      const usage = byNetwork.peek(networkKey('unauthenticated', context), usual.quota);
      if (usage.isOver) usual.apply(usage, context.set);
    },
    takeAnonymous: (context) => admit(usual, byNetwork, networkKey('anonymous', context), context),
  };
}

type Policy = ReturnType<typeof createPolicy>;

/** A limit with its response headers (draft-ietf-httpapi-ratelimit-headers). */
function createPolicy(name: string, quota: number) {
  const header = `"${name}";q=${quota};w=${windowSeconds}`;
  return {
    name,
    quota,
    apply({ isOver, remaining, resetsInSeconds }: Usage, { headers }: RateLimitedRequest['set']): void {
      const left = `"${name}";r=${remaining};t=${resetsInSeconds}`;
      addToHeader(headers, 'ratelimit-policy', header);
      addToHeader(headers, 'ratelimit', left);
      if (isOver) throw overLimit(name, resetsInSeconds);
    },
  };
}

export function overLimit(name: string, resetsInSeconds: number): AppError {
  return new AppError('rate-limited', {
    detail: `The client has used up the limit "${name}" of this minute. The request had no effect.`,
    headers: { 'retry-after': String(resetsInSeconds) },
  });
}

const loopbackName = /^(localhost|.+\.localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const forwardersHeader = /^(forwarded|via|x-forwarded-.+|x-real-ip)$/;

/** Whether the host of a URL is a name of this machine on every machine. */
export function isLoopbackName(name: string): boolean {
  return loopbackName.test(name.toLowerCase());
}

/**
 * Whether a browser on this machine requested a page under a name of this machine or PUBLIC_URL. Only such a page may
 * contain tokens. The name alone proves nothing, because any client can send it. The loopback address alone proves nothing
 * either: the domain of a hostile page may resolve to this machine (DNS rebinding), and a tunnel may end here.
 */
export function isForThisMachine(
  request: Request,
  server: AddressSource | null,
  publicUrl: string | undefined,
): boolean {
  // A page of another origin that may read responses sends this header.
  if (request.headers.has('origin')) return false;
  if ([...request.headers.keys()].some((name) => forwardersHeader.test(name))) return false;
  if (!isLoopbackAddress(server?.requestIP(request)?.address ?? '')) return false;
  const host = request.headers.get('host') ?? '';
  return isLoopbackName(host.replace(/:\d{1,5}$/, '')) || (publicUrl !== undefined && host === new URL(publicUrl).host);
}
