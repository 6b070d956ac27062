import { isIP } from 'node:net';

/** What tells where a connection comes from: Bun's server, or nothing where no server listens. */
export interface AddressSource {
  requestIP(request: Request): { readonly address: string } | null;
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
 * An IPv4 address as it is, and of an IPv6 address its first 64 bits: one household or machine has all the others. Some
 * proxies add a port.
 */
export function networkOf(text: string): string | undefined {
  if (isIP(text) === 4) return text;
  const address = /^\[(.+)\](?::\d{1,5})?$/.exec(text)?.[1] ?? /^([\d.]+):\d{1,5}$/.exec(text)?.[1] ?? text;
  const kind = isIP(address);
  if (kind !== 6) return kind === 4 ? address : undefined;
  const mapped = /^::ffff:([\d.]+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  const [head = '', tail] = address.replace(/%.*$/, '').split('::');
  const groups = head === '' ? [] : head.split(':');
  const tailLength = tail === undefined || tail === '' ? 0 : tail.split(':').length + (tail.includes('.') ? 1 : 0);
  const missing = tail === undefined ? 0 : 8 - groups.length - tailLength;
  const whole = [...groups, ...Array<string>(missing).fill('0'), ...(tail?.split(':') ?? [])];
  return `${whole
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}
