import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { AddressSource } from '../deps';

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

export function isLoopbackAddress(text: string): boolean {
  return addressOf(text)?.range() === 'loopback';
}

/** The library would also accept short and octal forms of IPv4. */
function addressOf(text: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  return isIP(text) === 0 ? undefined : ipaddr.process(text);
}
