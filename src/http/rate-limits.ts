import type { Config } from '../config';
import type { LimitedExchange, RateLimits } from '../deps';
import { AppError } from '../errors';
import { createRateWindows, type RateWindows, type Usage } from '../rate-window';
import { clientNetwork } from './client-address';
import { addToHeader } from './list-header';

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
  clock: () => Date,
): RateLimits | undefined {
  if (perMinute === 0) return undefined;
  const options = { windowMs: windowSeconds * 1000, maxCallers, nowMs: () => clock().getTime() };
  const bySubject = createRateWindows(options);
  const byNetwork = createRateWindows(options);
  const counted = new WeakSet<Request>();
  const usual = createPolicy('default', perMinute);
  const coverage = createPolicy('coverage', Math.ceil(perMinute / coverageShare));

  const admit = (policy: Policy, windows: RateWindows, key: string, { set }: LimitedExchange) =>
    policy.apply(windows.take(key, policy.quota), set);
  const subjectKey = ({ name }: Policy, callerId: string) => `${name} ${callerId}`;
  const networkKey = (kind: 'stranger' | 'visitor', { request, server }: LimitedExchange) =>
    `${kind} ${clientNetwork(request, server, trustedProxyCount)}`;

  return {
    takeCaller(callerId, exchange) {
      if (counted.has(exchange.request)) return;
      counted.add(exchange.request);
      admit(usual, bySubject, subjectKey(usual, callerId), exchange);
    },
    takeCoverage: (callerId, exchange) => admit(coverage, bySubject, subjectKey(coverage, callerId), exchange),
    takeStranger: (exchange) => admit(usual, byNetwork, networkKey('stranger', exchange), exchange),
    requireStranger(exchange) {
      const usage = byNetwork.look(networkKey('stranger', exchange), usual.quota);
      if (usage.isOver) usual.apply(usage, exchange.set);
    },
    takeVisitor: (exchange) => admit(usual, byNetwork, networkKey('visitor', exchange), exchange),
  };
}

type Policy = ReturnType<typeof createPolicy>;

/** A limit as the answers tell it (draft-ietf-httpapi-ratelimit-headers). */
function createPolicy(name: string, quota: number) {
  const header = `"${name}";q=${quota};w=${windowSeconds}`;
  return {
    name,
    quota,
    apply({ isOver, remaining, resetsInSeconds }: Usage, { headers }: LimitedExchange['set']): void {
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
