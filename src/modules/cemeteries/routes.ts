import { Elysia } from 'elysia';
import type { CemeteryRow } from '../../db/schema/lists';
import type { RouteDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { requestParameters } from '../../http/request-body';
import { type Cemetery, CemeteryPage, CemeteryQuery } from './model';
import type { CemeteryStore } from './store';

export function createCemeteryRoutes(deps: RouteDeps, store: CemeteryStore) {
  return new Elysia({ prefix: '/cemetery', tags: ['Lists'] }).use(createAuth(deps)).get(
    '/all',
    async ({ query, set }) => {
      const { rows, count } = await store.listPage(query);
      set.headers['cache-control'] = 'private, no-store';
      return { data: { cemeteries: rows.map(toCemetery), count } };
    },
    {
      query: requestParameters(CemeteryQuery),
      response: { 200: CemeteryPage, ...problems(...readProblems) },
      detail: {
        summary: 'List cemeteries by name, a page at a time',
        description: '`count` is the number of all cemeteries. A page past the end is empty.',
        operationId: 'listCemeteries',
      },
    },
  );
}

function toCemetery(row: CemeteryRow): Cemetery {
  return {
    _id: row.id,
    name: row.name,
    address: { street: row.street, city: row.city, state: row.state, zip: row.zip },
    createdBy: row.createdBy,
    createdAt: new Date(row.createdAt).toISOString(),
    updatedAt: new Date(row.updatedAt).toISOString(),
    __v: row.version,
  };
}
