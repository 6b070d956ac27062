import { and, asc, eq, gt, isNotNull, isNull, lt, min, ne, or, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { applications } from '../../db/schema';
import { type ApplicationRow, applicationStates, erasedUserId } from '../../db/schema/applications';
import { isOpenState } from './store-outcomes';

/** The states that an operator sees. An abandoned application is stored as `unknown`. */
export const shownStates = [...applicationStates, 'abandoned'] as const;
export type ShownState = (typeof shownStates)[number];

const pageRows = 500;

const isOfPerson = ne(applications.userId, erasedUserId);
const isWaiting = and(isOpenState, isNull(applications.abandonedAt), isOfPerson);

export function shownState({ state, abandonedAt }: Pick<ApplicationRow, 'state' | 'abandonedAt'>): ShownState {
  const isOpen = state === 'submitting' || state === 'unknown';
  return isOpen && abandonedAt !== null ? 'abandoned' : state;
}

/** What operators ask of the applications of all persons. */
export function createOperationStore(db: Database) {
  return {
    async findById(id: string): Promise<ApplicationRow | undefined> {
      const [row] = await db.select().from(applications).where(eq(applications.id, id));
      return row;
    },

    /** The applications in one of the states that were created before an instant, if one is given, in the order of their ids. */
    async *pages(states: readonly ShownState[], createdBefore?: number): AsyncGenerator<ApplicationRow[]> {
      const isOpenOnly = states.every((state) => state !== 'submitted' && state !== 'declined');
      // The few open ones have an index of their own, which the planner would not choose.
      const id = isOpenOnly ? sql`+${applications.id}` : sql`${applications.id}`;
      let after = '';
      for (;;) {
        const page = await db
          .select()
          .from(applications)
          .where(
            and(
              isOpenOnly ? isOpenState : undefined,
              or(...states.map(isInState)),
              isOfPerson,
              createdBefore === undefined ? undefined : lt(applications.createdAt, createdBefore),
              gt(id, after),
            ),
          )
          .orderBy(asc(id))
          .limit(pageRows);
        const last = page.at(-1);
        if (last === undefined) return;
        yield page;
        after = last.id;
      }
    },

    /** The age in seconds of the oldest application that has no decision and is not abandoned. */
    async findOldestOpenAge(now: number): Promise<number | undefined> {
      const [row] = await db
        .select({ createdAt: min(applications.createdAt) })
        .from(applications)
        .where(isWaiting);
      const createdAt = row?.createdAt ?? undefined;
      return createdAt === undefined ? undefined : Math.max(0, (now - createdAt) / 1000);
    },
  };
}

function isInState(state: ShownState) {
  if (state === 'abandoned') return and(isOpenState, isNotNull(applications.abandonedAt));
  if (state === 'submitted' || state === 'declined') return eq(applications.state, state);
  return and(eq(applications.state, state), isNull(applications.abandonedAt));
}
