import { join } from 'node:path';
import * as v from 'valibot';
import { signToken } from '../../src/auth/signing';
import { type Call, callerOf } from './app';
import { createCommandLine } from './command';
import { startSandbox } from './sandbox';
import { type Service, type Start, startService } from './service';

const issuer = 'https://issuer.example';
const audience = 'planning';
const authSecret = 'kI8sJd72bXqPz0VnM4tYwQe1RuA9cLf6';

/** Every setting that production requires; the carrier is not reachable. */
export const productionSettings = {
  NODE_ENV: 'production',
  AUTH_SECRET: authSecret,
  AUTH_ISSUER: issuer,
  AUTH_AUDIENCE: audience,
  CARRIER_URL: 'http://127.0.0.1:1',
  CARRIER_API_KEY: 'test-key',
  CHAT_ID: 'room-7',
  CHAT_TOKEN: 'q7Vd2mXc9Lz4',
} as const;

const LogLine = v.looseObject({ level: v.union([v.string(), v.number()]), msg: v.string() });

export interface Production extends Service {
  /** Sends a request with a token of this service; `as` names the subject. */
  readonly call: Call;
  /** The lines of the log so far that are JSON, parsed. */
  logLines(): v.InferOutput<typeof LogLine>[];
  /** HTTP status of a health path. */
  health(path?: 'live' | 'ready'): Promise<number>;
}

/** A token that a production service with `productionSettings` accepts. */
export function productionToken(id: string, roles: readonly string[] = []): Promise<string> {
  return signToken({
    id,
    roles,
    secret: authSecret,
    issuer,
    audience,
    rolesClaim: 'roles',
    ttlSeconds: 3600,
    now: new Date(),
  });
}

/**
 * A deployment in production mode: the built bundle in a working folder of its own, with a migrated database at
 * `data/planning.db` unless `isEmpty`, and the real sandbox carrier. The settings in `without` are not set.
 *
 * `planning` runs the command line with the same settings, `start` the service.
 */
export async function createProduction(
  environment: Record<string, string> = {},
  { isEmpty = false, without = [] }: { isEmpty?: boolean; without?: readonly string[] } = {},
) {
  const sandbox = await startSandbox(() => new Date());
  const all = { ...productionSettings, CARRIER_URL: sandbox.url, ...environment };
  const settings = Object.fromEntries(Object.entries(all).filter(([key]) => !without.includes(key)));
  const line = await createCommandLine(settings, { isEmpty, isProcess: true });
  return {
    ...line,
    sandbox,
    settings,
    databasePath: join(line.cwd, 'data/planning.db'),
    async start(start: Start = {}): Promise<Production> {
      const service = await startService({
        cwd: line.cwd,
        hasErrorsInOutput: true,
        ...start,
        environment: { ...settings, ...start.environment },
      });
      const call = callerOf(service.address);
      return {
        ...service,
        async call(method, path, { as, roles, headers, ...options } = {}) {
          const token = as === undefined ? {} : { authorization: `Bearer ${await productionToken(as, roles)}` };
          return call(method, path, { ...options, headers: { ...token, ...headers } });
        },
        logLines: () =>
          service
            .output()
            .split('\n')
            .flatMap((text) => {
              const line = v.safeParse(v.pipe(v.string(), v.parseJson(), LogLine), text);
              return line.success ? [line.output] : [];
            }),
        health: async (path = 'ready') => (await fetch(`${service.address}/health/${path}`)).status,
      };
    },
  };
}

/** Starts the service of a new deployment in production mode. */
export async function startProduction(environment: Record<string, string> = {}): Promise<Production> {
  return (await createProduction(environment)).start();
}
