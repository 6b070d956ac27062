import { join } from 'node:path';
import { openDatabase } from '../../src/db/client';
import { copyTemplate } from '../support/database';
import {
  anonymousRequests,
  authenticatedRequests,
  costMicros,
  plainRequests,
  type SentRequest,
  statusOf,
} from '../support/http';
import { temporaryFolder } from '../support/resources';
import type { Figure } from './figure';
import { authorizationOf, startServiceOn } from './servers';

const warmUpRequests = 1_000;
const measured = { rounds: 5, requests: 20 };
/** The maximum CPU time of one request. */
const mostMicros = 5_000;

/** Compares the CPU time of expensive requests with that of an ordinary request. */
export async function compareRequestCosts(report: (name: string) => void): Promise<Figure[]> {
  const cwd = temporaryFolder();
  const path = join(cwd, 'planning.db');
  await copyTemplate(path);
  await storeApplications(path);
  const { address, pid } = await startServiceOn(path, cwd);
  const service = { pid, port: Number(new URL(address).port) };
  const authorization = await authorizationOf('attacker');
  const { head, longHead, read, save, longBody } = plainRequests(authorization);
  report('request cost, warming up');
  for (let sent = 0; sent < warmUpRequests; sent += 1) {
    for (const { bytes } of [head, read, save]) await statusOf(service.port, bytes);
  }

  const figures: Figure[] = [];
  const compare = async (plain: SentRequest, others: readonly SentRequest[]) => {
    const plainMicros = await costMicros(service, plain.bytes, measured);
    for (const { name, bytes } of others) {
      report(`request cost, ${name}`);
      const value = await costMicros(service, bytes, measured);
      figures.push({
        name,
        beside: `${plain.name}, ${plainMicros.toFixed(0)} µs: ${(value / plainMicros).toFixed(1)} ×`,
        value,
        unit: 'µs',
        atMost: mostMicros,
      });
    }
  };
  await compare(head, [longHead, ...anonymousRequests()]);
  await compare(read, [save, longBody, ...authenticatedRequests(authorization)]);
  return figures;
}

/** The number of applications that one account could start in a day without a cap. */
async function storeApplications(path: string): Promise<void> {
  const { $client } = await openDatabase({ url: `file:${path}`, timeoutMs: 10_000 });
  await $client.execute(`INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state,
    attempt, attempt_started_at, created_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 43200)
    SELECT format('%036d', i), 'attacker', 'ltc', i, 0, json_object('firstName', hex(zeroblob(200))), 'declined', 1, i, i FROM n`);
  $client.close();
}
