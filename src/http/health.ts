import { Elysia } from 'elysia';
import * as v from 'valibot';
import { isMigrated } from '../db/migrate';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { Problem } from './problem';

const Live = v.object({ status: v.literal('live') });
const Ready = v.object({ status: v.literal('ready') });

/** For whoever watches the process: is it alive (no database asked), and can it serve right now. */
export function createHealthRoutes({ db, lifecycle }: Pick<AppDeps, 'db' | 'lifecycle'>) {
  return new Elysia({ prefix: '/health', tags: ['Operation'] })
    .get('/live', () => ({ status: 'live' as const }), {
      response: { 200: Live },
      detail: { summary: 'Tell that the process runs', operationId: 'getLiveness' },
    })
    .get(
      '/ready',
      async () => {
        if (lifecycle.isDraining) throw new AppError('shutting-down');
        if (lifecycle.hasLostDisk) {
          throw new AppError('database-unavailable', {
            detail: 'The disk has failed; the service must be started anew.',
          });
        }
        if (!(await isMigrated(db))) {
          throw new AppError('database-unavailable', { detail: 'The schema is older than this build needs.' });
        }
        return { status: 'ready' as const };
      },
      {
        response: { 200: Ready, 503: Problem },
        detail: {
          summary: 'Tell that the database answers and its migrations are applied',
          operationId: 'getReadiness',
        },
      },
    );
}
