import { join } from 'node:path';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';
import { freePort } from './free-port';
import { until } from './until';

/** Debian keeps these in a folder of root's PATH. */
const which = (name: string) => Bun.which(name, { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` });
const programs = { nginx: which('nginx'), haproxy: which('haproxy') };

export type ProxyName = keyof typeof programs;

/** Which proxies are missing; their tests are skipped. */
export const missingProxies = (['nginx', 'haproxy'] as const).filter((name) => programs[name] === null);
if (missingProxies.length > 0) {
  process.stderr.write(`No ${missingProxies.join(' and no ')} is installed here: the tests behind them are skipped.\n`);
}

/** What a configuration is made of. */
export interface ProxyPlace {
  readonly folder: string;
  readonly port: number;
}

/** Runs a real proxy on loopback with a configuration; ended with the tests. */
export async function startProxy(name: ProxyName, configure: (place: ProxyPlace) => string): Promise<string> {
  const place = { folder: temporaryFolder(), port: await freePort() };
  const path = join(place.folder, `${name}.conf`);
  await Bun.write(path, configure(place));
  const options = name === 'nginx' ? ['-p', place.folder, '-c', path, '-e', 'stderr'] : ['-f', path];
  const child = Bun.spawn([programs[name] ?? name, ...options], { stdout: 'ignore', stderr: 'pipe' });
  const complaints = new Response(child.stderr).text();
  atEnd(async () => {
    // nginx's master ends its worker, which a kill would leave behind.
    child.kill('SIGTERM');
    await child.exited;
  });
  const address = `http://127.0.0.1:${place.port}`;
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`${name} ended before it listened:\n${await complaints}`);
    return (await fetch(address).catch(() => undefined)) !== undefined;
  });
  return address;
}
