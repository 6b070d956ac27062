import { describe, expect, test } from 'bun:test';
import { applicant, callerOf, type TestResponse, testSecret } from '../support/app';
import { startService } from '../support/processes';
import { missingProxies, nginxTemporaryFiles, type ProxyName, type ProxyPlace, startProxy } from '../support/servers';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const tagOf = ({ headers }: TestResponse) => headers.get('etag') ?? '';

/** The default nginx configuration: HTTP/1.0 to the service, gzip for JSON of any length. */
const nginx =
  (target: string) =>
  ({ folder, port }: ProxyPlace) =>
    `
daemon off;
master_process on;
worker_processes 1;
pid ${folder}/pid;
error_log stderr;
events {}
http {
  access_log off;
  ${nginxTemporaryFiles(folder)}
  gzip on;
  gzip_proxied any;
  gzip_min_length 1;
  gzip_types application/json application/problem+json;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass ${target};
    }
  }
}
`;

const haproxy =
  (target: string) =>
  ({ port }: ProxyPlace) =>
    `
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend front
  bind 127.0.0.1:${port}
  default_backend service
backend service
  compression algo gzip
  compression type application/json application/problem+json
  server one ${new URL(target).host}
`;

const proxies: { name: ProxyName; configure: (target: string) => (place: ProxyPlace) => string }[] = [
  { name: 'nginx', configure: nginx },
  { name: 'haproxy', configure: haproxy },
];

const service = await startService({ environment: { AUTH_SECRET: testSecret } });

describe.each(proxies)('service behind $name with compression', ({ name, configure }) => {
  test.skipIf(missingProxies.includes(name))(
    'accepts the weak ETag in If-Match of saves, matches and applications, and returns 304',
    async () => {
      const send = callerOf(await startProxy(name, configure(service.address)));
      const call = (method: string, path: string, headers: Record<string, string> = {}, body?: object) =>
        send(method, path, { as: name, headers: { 'accept-encoding': 'gzip', ...headers }, body });

      const made = await call('POST', profile, {}, { heightCm: 160 });
      expect([made.status, made.headers.get('vary')]).toEqual([200, expect.stringContaining('Authorization')]);
      // A weak tag shows that the proxy has compressed the response.
      expect(tagOf(made)).toStartWith('W/"');

      for (const [path, body] of [
        [profile, { heightCm: 161 }],
        ['/v2/private/engine/matches', {}],
        ['/v2/private/engine/matches?explain=true', {}],
        ['/v2/private/ltc/totalCoverage', applicant],
      ] as const) {
        const current = tagOf(await call('GET', user));
        expect(current).toStartWith('W/"');
        const unchanged = await call('GET', user, { 'if-none-match': current });
        expect([path, unchanged.status, unchanged.text]).toEqual([path, 304, '']);
        expect([path, (await call('POST', path, { 'if-match': current }, body)).status]).toEqual([path, 200]);
      }

      const stale = await call('POST', profile, { 'if-match': tagOf(made) }, { heightCm: 162 });
      const type = expect.stringContaining('/problems/precondition-failed');
      expect(stale).toMatchObject({ status: 412, body: { type } });
      const saved = await call('POST', profile, { 'if-match': tagOf(stale) }, { heightCm: 163 });
      expect(saved.body).toMatchObject({ user: { profile: { heightCm: 163 } } });
    },
    60_000,
  );
});
