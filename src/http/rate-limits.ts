import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';
import type { Config } from '../config/settings';
import type { AddressSource, RateLimitedRequest, RateLimits } from '../deps';
import { AppError } from '../errors';
import { addToHeader } from './response';

/** How far into a window a caller is. */
interface Usage {
  readonly isOver: boolean;
  readonly remaining: number;
  /** Until all of the quota is there again. */
  readonly resetsInSeconds: number;
}

interface RateWindows {
  /** Counts one request of a caller, unless nothing is left. */
  take(key: string, quota: number): Usage;
  /** Counts nothing. */
  look(key: string, quota: number): Usage;
}

interface Window {
  used: number;
  readonly endsAtMs: number;
}

/**
 * Windows of time, one a caller, each of which begins with the first request in it. At most `maxCallers` are
 * remembered, and those that ask are remembered longest: to have one's own forgotten takes as many other callers, of
 * whom each has a quota already.
 */
export function createRateWindows(options: {
  readonly windowMs: number;
  readonly maxCallers: number;
  readonly nowMs: () => number;
}): RateWindows {
  const { windowMs, maxCallers, nowMs } = options;
  const windows = new LRUCache<string, Window>({ max: maxCallers });

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
    look(key, quota) {
      const now = nowMs();
      const window = find(key, now);
      return usage(window, quota, now, window !== undefined && window.used >= quota);
    },
  };
}

/** The caller as far as addresses go, where the connection tells none. */
const unknownAddress = 'unknown';

/**
 * The network that a request comes from, as one text: the connection's own address, or with `trustedProxyCount` the
 * one that stands so many hops from the right end of `X-Forwarded-For`. What stands further left was sent by the
 * caller, who could write any number of addresses there; a list that is too short or holds something else there is
 * not believed either.
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
 * Returns an IPv4 address unchanged, also if it is written as IPv6 (mapped, or translated by RFC 6052). Returns the first 64
 * bits of other IPv6 addresses, because one household may use all the rest. Some proxies add a port.
 */
export function networkOf(text: string): string | undefined {
  const address = addressOf(/^\[(.+)\](?::\d{1,5})?$/.exec(text)?.[1] ?? /^([\d.]+):\d{1,5}$/.exec(text)?.[1] ?? text);
  if (address === undefined) return undefined;
  if (address instanceof ipaddr.IPv4) return address.toString();
  if (address.range() === 'rfc6052') return address.toByteArray().slice(12).join('.');
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}

function isLoopbackAddress(text: string): boolean {
  return addressOf(text)?.range() === 'loopback';
}

/** The library would also accept short and octal forms of IPv4. */
function addressOf(text: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  return isIP(text) === 0 ? undefined : ipaddr.process(text);
}

const windowSeconds = 60;
/** Of each kind, and for each policy that they meet: about 20 MB when all are there. */
const maxCallers = 100_000;
/** Starting an application costs a call of the carrier; a person who corrects a form sends a few a minute. */
const coverageShare = 20;

/**
 * Limits per caller and minute, of this instance alone; undefined when they are off. Whoever is signed in is known by the
 * token and meets no limit of an address, so that nobody who shares the address can lock them out. Strangers and
 * visitors are counted apart, so that no amount of page views keeps a new token from being verified.
 */
export function createRateLimits(
  { perMinute, trustedProxyCount }: Config['rateLimit'],
  monotonicMs: () => number,
): RateLimits | undefined {
  if (perMinute === 0) return undefined;
  const options = { windowMs: windowSeconds * 1000, maxCallers, nowMs: monotonicMs };
  const bySubject = createRateWindows(options);
  const byNetwork = createRateWindows(options);
  const usual = createPolicy('default', perMinute);
  const coverage = createPolicy('coverage', Math.ceil(perMinute / coverageShare));

  const admit = (policy: Policy, windows: RateWindows, key: string, { set }: RateLimitedRequest) =>
    policy.apply(windows.take(key, policy.quota), set);
  const subjectKey = ({ name }: Policy, callerId: string) => `${name} ${callerId}`;
  const networkKey = (kind: 'stranger' | 'visitor', { request, server }: RateLimitedRequest) =>
    `${kind} ${clientNetwork(request, server, trustedProxyCount)}`;

  return {
    takeAuthenticated: (clientId, context) => admit(usual, bySubject, subjectKey(usual, clientId), context),
    takeCoverage: (callerId, exchange) => admit(coverage, bySubject, subjectKey(coverage, callerId), exchange),
    takeUnauthenticated: (exchange) => admit(usual, byNetwork, networkKey('stranger', exchange), exchange),
    requireUnauthenticated(exchange) {
      const usage = byNetwork.look(networkKey('stranger', exchange), usual.quota);
      if (usage.isOver) usual.apply(usage, exchange.set);
    },
    takeAnonymous: (exchange) => admit(usual, byNetwork, networkKey('visitor', exchange), exchange),
  };
}

type Policy = ReturnType<typeof createPolicy>;

/** A limit as the answers tell it (draft-ietf-httpapi-ratelimit-headers). */
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
    detail: `The caller has used up the limit "${name}" of this minute. Nothing was done.`,
    headers: { 'retry-after': String(resetsInSeconds) },
  });
}

const loopbackName = /^(localhost|.+\.localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const forwardersHeader = /^(forwarded|via|x-forwarded-.+|x-real-ip)$/;

/** Whether a host, as an address writes it, means this machine wherever it is asked. */
export function isLoopbackName(name: string): boolean {
  return loopbackName.test(name.toLowerCase());
}

/**
 * Whether a page was asked for by a browser on this machine that knows it by a name of this machine, or by PUBLIC_URL:
 * only there may it hold tokens. A name alone proves nothing: whoever reaches the port can send any. Nor does a
 * connection from this machine alone: a stranger's page whose name leads here (DNS rebinding) is of the same origin as
 * this service, so it could read whatever that name is answered, and a tunnel ends here but begins somewhere else.
 */
export function isForThisMachine(
  request: Request,
  server: AddressSource | null,
  publicUrl: string | undefined,
): boolean {
  // A page of another origin that may read answers sends one.
  if (request.headers.has('origin')) return false;
  if ([...request.headers.keys()].some((name) => forwardersHeader.test(name))) return false;
  if (!isLoopbackAddress(server?.requestIP(request)?.address ?? '')) return false;
  const host = request.headers.get('host') ?? '';
  return isLoopbackName(host.replace(/:\d{1,5}$/, '')) || (publicUrl !== undefined && host === new URL(publicUrl).host);
}
