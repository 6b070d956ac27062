import { join } from 'node:path';
import { copyTemplate } from '../support/database';
import { temporaryFolder } from '../support/resources';
import type { Figure } from './figure';
import { authorizationOf, startServiceOn } from './servers';
import { measure } from './wrk';

const firstRequests = 50_000;
const allRequests = 500_000;
const secondsAtATime = 5;
const body = JSON.stringify({ livingStatus: 'stayHome', customSelections: [{ title: 'My niece %d' }] });

/** Compares the memory after many requests of every kind with the memory after the first tenth of them. */
export async function measureMemory(report: (name: string) => void): Promise<Figure[]> {
  const cwd = temporaryFolder();
  const path = join(cwd, 'planning.db');
  await copyTemplate(path);
  const { address, pid } = await startServiceOn(path, cwd);
  const megabytes = () => Number(Bun.spawnSync(['ps', '-o', 'rss=', '-p', String(pid)]).stdout) / 1024;
  const headers = { authorization: await authorizationOf('reader'), 'content-type': 'application/json' };
  const save = { path: '/v2/private/deepDives/lifeInsurance', method: 'POST', headers, body } as const;
  const get = (route: string) => ({ path: route, headers });
  const requests = [
    save,
    get('/v2/private/user'),
    get('/v2/private/healthAndCare/'),
    get('/v2/private/cemetery/all'),
    get('/v2/private/user'),
    get('/v2/private/healthAndCare/'),
  ];
  const idle = megabytes();
  let sent = 0;
  const until = async (count: number) => {
    while (sent < count) {
      report(`memory, ${sent} of ${allRequests} requests`);
      sent += (await measure({ address, requests, connections: 16, seconds: secondsAtATime })).requests;
    }
    return megabytes();
  };
  const first = await until(firstRequests);
  const last = await until(allRequests);
  return [
    {
      name: 'memory, after 500,000 requests',
      beside: `after 50,000: ${first.toFixed(0)} MB; idle: ${idle.toFixed(0)} MB`,
      value: last / first,
      unit: '×',
      atMost: 1.1,
    },
    { name: 'memory, after 500,000 requests', value: last, unit: 'MB', atMost: 200 },
  ];
}
