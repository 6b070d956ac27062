import { BlockList, isIP } from 'node:net';

type Environment = Readonly<Record<string, string | undefined>>;

/** The addresses of this machine, in the form of NO_PROXY. */
const loopback = ['localhost', '127.0.0.0/8', '::1', '0.0.0.0', '::'];

/**
 * Excludes this machine from the proxies of an environment. Bun's `fetch` sends loopback calls through `HTTP_PROXY` too;
 * it reads these variables at each call, and the lower-case one first.
 */
export function excludeLoopback(environment: Record<string, string | undefined>): void {
  const known = read(environment, 'no_proxy');
  const list = [...(known === undefined ? [] : [known]), ...loopback].join(',');
  environment.NO_PROXY = list;
  environment.no_proxy = list;
}

/**
 * Returns the host of the proxy that Bun's `fetch` uses for an http or https address, without credentials, or undefined
 * if it uses none.
 */
export function proxyHostFor(address: string, environment: Environment): string | undefined {
  const { protocol, hostname, port } = new URL(address);
  const proxy =
    read(environment, protocol === 'http:' ? 'http_proxy' : 'https_proxy') ??
    // In all_proxy, Bun ignores other schemes, such as socks5.
    read(environment, 'all_proxy')?.replace(/^(?!https?:)\w+:.*/, '');
  if (!proxy) return undefined;
  const target = { host: bare(hostname), port: port || (protocol === 'http:' ? '80' : '443') };
  if ((read(environment, 'no_proxy') ?? '').split(/[\s,]+/).some((entry) => excludes(entry, target))) return undefined;
  return URL.parse(proxy.includes('://') ? proxy : `http://${proxy}`)?.host ?? 'an unreadable address';
}

/** Reads a variable as Bun does: the lower-case name first; an empty pair of quotes is empty. */
function read(environment: Environment, name: string): string | undefined {
  return [environment[name], environment[name.toUpperCase()]].find((text) => text && !/^(?:""|'')$/.test(text));
}

/** Whether an entry of NO_PROXY (a name with its subdomains, an address or a network, with or without a port) matches. */
function excludes(entry: string, target: { readonly host: string; readonly port: string }): boolean {
  if (entry === '*') return true;
  const { name = '', port = target.port } = /^(?<name>\[.*\]|[^:]*):(?<port>\d+)$/.exec(entry)?.groups ?? {
    name: entry,
  };
  const host = bare(name.replace(/^\*?\./, ''));
  if (host === '' || port !== target.port) return false;
  if (isIP(target.host) === 0) return `.${target.host}`.endsWith(`.${host}`);
  const [network = '', bits = isIP(host) === 6 ? '128' : '32'] = host.split('/');
  const list = new BlockList();
  try {
    list.addSubnet(network, Number(bits), family(network));
    return list.check(target.host, family(target.host));
  } catch {
    return false;
  }
}

function bare(host: string): string {
  return host.toLowerCase().replace(/^\[|\]$|\.$/g, '');
}

function family(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 6 ? 'ipv6' : 'ipv4';
}
