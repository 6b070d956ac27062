import { asc, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { referenceLists, referenceOptions } from '../../db/schema';
import { type ReferenceListName, referenceListTitles } from './lists';
import type { ReferenceLists } from './model';

export function createReferenceStore(db: Database) {
  return {
    /** All five lists, each in the order of its ids. */
    async findLists(): Promise<ReferenceLists> {
      const options = await db
        .select()
        .from(referenceOptions)
        .orderBy(asc(referenceOptions.list), asc(referenceOptions.id));
      const optionsOf = (name: ReferenceListName) =>
        options.filter(({ list }) => list === name).map(({ id, title }) => ({ id, title }));
      return {
        climate: optionsOf('climate'),
        hobbies: optionsOf('hobbies'),
        travel: optionsOf('travel'),
        food: optionsOf('food'),
        rest: optionsOf('rest'),
      };
    },

    /** Stores the shipped lists; running it again changes nothing. */
    async seed(): Promise<void> {
      const lists = Object.entries(referenceListTitles);
      await writeBatch(db, [
        db
          .insert(referenceLists)
          .values(lists.map(([name]) => ({ name })))
          .onConflictDoNothing(),
        db
          .insert(referenceOptions)
          .values(lists.flatMap(([list, titles]) => titles.map((title, id) => ({ list, id, title }))))
          .onConflictDoUpdate({
            target: [referenceOptions.list, referenceOptions.id],
            set: { title: sql`excluded.title` },
            setWhere: sql`${referenceOptions.title} <> excluded.title`,
          }),
      ]);
    },
  };
}

export type ReferenceStore = ReturnType<typeof createReferenceStore>;
