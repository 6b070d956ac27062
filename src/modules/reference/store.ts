import { asc, eq, sql } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { referenceLists, referenceOptions } from '../../db/schema/lists';
import { Envelope } from '../../http/response';

/** The titles of the reference lists. The index is the option's id: reword titles, but never move them. */
const referenceListTitles = {
  climate: ['Warm and sunny all year', 'Mild with four seasons', 'Cool summers and snowy winters', 'Dry desert air'],
  hobbies: [
    'Gardening',
    'Reading',
    'Walking',
    'Hiking',
    'Fishing',
    'Golf',
    'Tennis',
    'Pickleball',
    'Swimming',
    'Cycling',
    'Yoga',
    'Tai chi',
    'Dancing',
    'Bowling',
    'Boating',
    'Camping',
    'Birdwatching',
    'Photography',
    'Painting',
    'Drawing',
    'Pottery',
    'Woodworking',
    'Knitting',
    'Quilting',
    'Sewing',
    'Jewelry making',
    'Scrapbooking',
    'Calligraphy',
    'Playing an instrument',
    'Singing in a choir',
    'Listening to music',
    'Going to concerts',
    'Theater',
    'Movies',
    'Museums and galleries',
    'Cooking',
    'Baking',
    'Wine tasting',
    'Home brewing',
    'Card games',
    'Board games',
    'Chess',
    'Crossword puzzles',
    'Jigsaw puzzles',
    'Genealogy',
    'Local history',
    'Writing',
    'Learning a language',
    'Volunteering',
    'Mentoring',
    'Church activities',
    'Caring for pets',
    'Collecting',
    'Restoring classic cars',
    'Time with grandchildren',
  ],
  travel: ['I love to travel', 'I prefer to stay close to home'],
  food: [
    'American',
    'Barbecue',
    'Southern comfort food',
    'Cajun and Creole',
    'Tex-Mex',
    'Mexican',
    'Cuban',
    'Puerto Rican',
    'Jamaican',
    'Brazilian',
    'Peruvian',
    'Argentinian',
    'Italian',
    'Pizza',
    'French',
    'Spanish',
    'Portuguese',
    'Greek',
    'Mediterranean',
    'Turkish',
    'Lebanese',
    'Israeli',
    'Moroccan',
    'Ethiopian',
    'West African',
    'German',
    'Polish',
    'Russian',
    'Hungarian',
    'Scandinavian',
    'British',
    'Irish',
    'Indian',
    'Pakistani',
    'Thai',
    'Vietnamese',
    'Chinese',
    'Japanese',
    'Sushi',
    'Korean',
    'Filipino',
    'Indonesian',
    'Hawaiian',
    'Seafood',
    'Steakhouse',
    'Soups and stews',
    'Salads',
    'Vegetarian',
    'Vegan',
    'Gluten-free',
    'Kosher',
    'Halal',
    'Desserts',
  ],
  rest: [
    'Afternoon naps',
    'Sleeping in',
    'Early nights',
    'Meditation',
    'Breathing exercises',
    'Prayer',
    'Massage',
    'Spa days',
    'Hot baths',
    'Sauna',
    'Hot tub',
    'Sunbathing',
    'Sitting on the porch',
    'Watching the sunset',
    'Stargazing',
    'A day at the beach',
    'A day at the lake',
    'A cabin in the mountains',
    'Walks in the woods',
    'Quiet time in the garden',
    'Reading a good book',
    'Audiobooks',
    'Podcasts',
    'Calm music',
    'Watching television',
    'A movie night',
    'Coffee with friends',
    'Afternoon tea',
    'A glass of wine',
    'Family dinners',
    'Cuddling a pet',
    'Coloring books',
    'Doing nothing at all',
  ],
} as const;

type ReferenceListName = keyof typeof referenceListTitles;

/** Returns an object with a value for each list, in the order of the response. */
function forEachList<Value>(create: (name: ReferenceListName) => Value) {
  return {
    climate: create('climate'),
    hobbies: create('hobbies'),
    travel: create('travel'),
    food: create('food'),
    rest: create('rest'),
  } satisfies Record<ReferenceListName, Value>;
}

export function createReferenceStore(db: Database) {
  /** Whether every list and option is stored as shipped. */
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
    /** Returns each list in the order of its ids. */
    async findLists(): Promise<ReferenceLists> {
      const options = await db
        .select()
        .from(referenceOptions)
        .orderBy(asc(referenceOptions.list), asc(referenceOptions.id));
      const optionsOf = (name: ReferenceListName) =>
        options.filter(({ list }) => list === name).map(({ id, title }) => ({ id, title }));
      return forEachList(optionsOf);
    },

    /** Stores the shipped lists; running it again changes nothing. */
    async seed(): Promise<void> {
      // Saves most starts from building a large statement that changes nothing.
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

export const ReferenceOption = v.object({ id: v.number(), title: v.string() });

const ReferenceOptions = v.array(ReferenceOption);

const ReferenceLists = v.object(forEachList(() => ReferenceOptions));
type ReferenceLists = v.InferOutput<typeof ReferenceLists>;

const ChatTokens = v.object({
  'chat-id': v.pipe(v.string(), v.description('Identifier for the embedded chat widget')),
  'chat-token': v.pipe(v.string(), v.description('Token for the same widget')),
});

export const HealthAndCareBody = Envelope(ReferenceLists, ChatTokens);
