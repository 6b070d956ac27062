const loopback = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/**
 * Whether a page was asked for by a name of this machine or by the public one. No page of another site can make a
 * browser do so and read the answer; with a name of its own that leads here it could (DNS rebinding).
 */
export function isOwnHost({ url }: Request, publicUrl: string | undefined): boolean {
  const authority = authorityOf(url);
  const host = authority?.replace(/:\d+$/, '') ?? '';
  return loopback.test(host) || (publicUrl !== undefined && authority === authorityOf(publicUrl));
}

function authorityOf(url: string): string | undefined {
  return /^[a-z]+:\/\/([^/?#]*)/.exec(url)?.[1]?.toLowerCase();
}
