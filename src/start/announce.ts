import { magicLastNames } from '../carrier-sandbox/server';
import type { SettingSources } from '../config/env-files';
import type { Config } from '../config/settings';
import { placeOf } from '../db/client';
import type { Demo } from '../demo/demo';
import { isLoopbackName } from '../http/rate-limits';
import type { Log } from '../log';
import { buildIdentity, commandName } from '../shared/build';
import { describeZone } from '../shared/calendar';
import type { KeptTokens } from './services';

interface Started {
  readonly config: Config;
  readonly sources: SettingSources;
  readonly log: Log;
  readonly tokens: KeptTokens | undefined;
  readonly demo: Demo | undefined;
}

/** People at a terminal get lines to read and paste; production gets one line of JSON like every other. */
export function announce(address: string, { config, sources, log, tokens, demo }: Started): void {
  const base = config.publicUrl ?? address;
  const data = placeOf(config.database.url);
  const timeZone = describeZone(config.reportTimeZone, new Date());
  if (config.isProduction) {
    log.info({ address, docs: `${base}/swagger`, database: data, timeZone, ...buildIdentity }, 'listening');
    return;
  }
  const hint = config.auth.key.kind === 'secret' ? `${commandName} token --sub NAME signs one` : 'of your issuer';
  const token = tokens?.tokens['demo-user'] ?? '<token>';
  // Tokens are shown under a name of this machine alone, and the address that means all of them is none.
  const ownAddress = address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
  const hasPage = tokens !== undefined && isLoopbackName(new URL(ownAddress).hostname);
  const page = hasPage ? `  page     ${ownAddress}/\n` : '';
  process.stdout.write(`
Personal planning service
  address  ${base}
${page}  docs     ${config.publicUrl ?? ownAddress}/swagger
  data     ${data}
  tokens   ${tokens?.path ?? hint}
  mode     ${sources.mode}, with settings from the environment${sources.files.map((file) => ` and ${file}`).join('')}
${config.reportTimeZone === 'UTC' ? '' : `  months   ${timeZone}\n`}${demo === undefined ? '' : demoLines(demo)}
Try it:
  curl ${base}/v2/private/healthAndCare/ -H 'Authorization: Bearer ${token}'

`);
}

function demoLines({ stoppedAt }: Demo): string {
  const clock = stoppedAt === undefined ? '' : ` The clock stands at ${stoppedAt.toISOString()}.`;
  return `
Demo data, created again by each start with --demo. A start without --demo serves your data.${clock}
The carrier fails for the last names ${Object.keys(magicLastNames).join(', ')}.
`;
}
