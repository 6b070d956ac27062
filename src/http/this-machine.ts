import type { AddressSource } from '../deps';
import { isLoopbackAddress } from './client-address';

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
