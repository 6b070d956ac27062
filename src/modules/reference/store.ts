import { asc, eq, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { referenceLists, referenceOptions } from '../../db/schema';
import { type ReferenceListName, referenceListTitles } from './lists';
import type { ReferenceLists } from './model';

export function createReferenceStore(db: Database) {
  /** Whether every shipped option is there as it is shipped, and its list. */
  const isSeeded = async (): Promise<boolean> => {
    const rows = await db
      .select({ list: referenceOptions.list, id: referenceOptions.id, title: referenceOptions.title })
      .from(referenceOptions)
      .innerJoin(referenceLists, eq(referenceLists.name, referenceOptions.list));
    const stored = new Map(rows.map(({ list, id, title }) => [`${list} ${id}`, title]));
    return Object.entries(referenceListTitles).every(([list, titles]) =>
      titles.every((title, id) => stored.get(`${list} ${id}`) === title),
    );
  };

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
      // Most starts find it so, and need not build a large statement that changes nothing.
      if (await isSeeded()) return;
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
