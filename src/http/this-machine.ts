import type { AddressSource } from './client-address';

const loopbackName = /^(localhost|.+\.localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const loopbackAddress = /^(127\.|::1$|::ffff:127\.)/;

/**
 * Whether a page was asked for by a browser on this machine that knows it by a name of this machine, or by PUBLIC_URL:
 * only there may it hold tokens. A stranger's page whose name leads here (DNS rebinding) is of the same origin as this
 * service, so it could read whatever that name is answered.
 */
export function isForThisMachine(
  request: Request,
  server: AddressSource | null,
  publicUrl: string | undefined,
): boolean {
  // A page of another origin that may read answers sends one.
  if (request.headers.has('origin')) return false;
  const host = request.headers.get('host') ?? '';
  if (publicUrl !== undefined && host === new URL(publicUrl).host) return true;
  const name = host.replace(/:\d{1,5}$/, '').toLowerCase();
  return loopbackName.test(name) && loopbackAddress.test(server?.requestIP(request)?.address ?? '');
}
