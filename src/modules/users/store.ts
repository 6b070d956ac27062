import { and, eq, or, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { onFirstUse } from '../../db/first-use';
import { users } from '../../db/schema';
import { randomRevision, type UserRow } from '../../db/schema/users';
import type { RequestId } from '../audit/store';
import { type AnswerSection, type Answers, newestAnswersOf, parseAnswers } from './answers';
import { entityTag, type RecordVersion } from './entity-tag';
import type { Purchase } from './model';
import { changedBy, changesOf, laterThanStored, movedBy, storedSection } from './store-changes';
import { answeredSection, clearsOneList, type MergePatch, mergedSection } from './store-section';
import { noteWritten } from './written-versions';

interface SectionSave {
  readonly userId: string;
  readonly section: AnswerSection;
  readonly patch: MergePatch;
  /** Save only the fields that hold no answer, and replace none. */
  readonly onlyEmpty?: boolean;
  /** Save only over a record with one of these entity tags, or over 'any' record. */
  readonly ifMatch?: 'any' | readonly string[] | undefined;
  readonly requestId: RequestId;
  readonly now: Date;
}

/** Merge patches by the section that they would be saved to. */
export type AnswerPatches = Readonly<Partial<Record<AnswerSection, MergePatch>>>;

/** A record as it is answered. */
export interface AnsweredRecord extends RecordVersion, Pick<UserRow, 'id' | 'updatedAt'> {
  /** The JSON members of the user object that hold the sections. */
  readonly sections: string;
}

const { profile, insurance, ltcLifetimeCare, purchase, lifeInsurance, lifetimeCare } = users;
const beforeInsurance = sql<string>`format('"profile":%s,"insurance":', coalesce(${profile}, '{}'))`;
const afterInsurance = sql<string>`format(',"ltc":%s,"purchase":%s,"lifeInsurance":%s,"lifetimeCare":%s',
  coalesce('{"lifetimeCare":' || ${ltcLifetimeCare} || '}', '{}'), coalesce(${purchase}, '{}'),
  coalesce(${answeredSection('lifeInsurance')}, '{}'), coalesce(${answeredSection('lifetimeCare')}, '{}'))`;

/** The database puts the members together: to hand each column through the driver and Drizzle takes longer. */
export const answeredColumns = {
  id: users.id,
  version: users.version,
  revision: users.revision,
  createdAt: users.createdAt,
  updatedAt: users.updatedAt,
  sections: sql<string>`${beforeInsurance} || coalesce(${insurance}, '{}') || ${afterInsurance}`,
} as const;

/** One version of a record: its answers as JSON, and what it is answered with once its insurance is known. */
export interface StoredAnswers
  extends RecordVersion,
    Pick<UserRow, 'updatedAt' | 'insurance' | 'newestAnswers' | AnswerSection> {
  readonly beforeInsurance: string;
  readonly afterInsurance: string;
}
const { createdAt, updatedAt, version, revision, newestAnswers } = users;
const ownVersion = { createdAt, version, revision };
const answers = { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare, newestAnswers };
const storedAnswers = { ...ownVersion, updatedAt, insurance, ...answers, beforeInsurance, afterInsurance };

export function createUserStore(db: Database) {
  const isOfUser = eq(users.id, sql.placeholder('userId'));
  const findAnswers = onFirstUse(() => db.select(storedAnswers).from(users).where(isOfUser).prepare());
  const findAnswered = onFirstUse(() => db.select(answeredColumns).from(users).where(isOfUser).prepare());
  const isSameRecord = and(isOfUser, eq(users.createdAt, sql.placeholder('createdAt')));
  const isSameVersion = and(
    isSameRecord,
    eq(users.version, sql.placeholder('version')),
    eq(users.revision, sql.placeholder('revision')),
  );
  const matchesUpdate = () =>
    db.update(users).set({
      insurance: sql`${sql.placeholder('insurance')}`,
      version: sql`${users.version} + 1`,
      revision: randomRevision,
      updatedAt: laterThanStored(sql`${sql.placeholder('now')}`),
      ...changedBy(sql`true`),
    });
  const updateMatches = onFirstUse(() =>
    matchesUpdate()
      .where(isSameVersion)
      .returning({ ...ownVersion, updatedAt })
      .prepare(),
  );
  const updateMatchesOfMoved = onFirstUse(() =>
    matchesUpdate()
      .where(and(isSameRecord, sql`${insurance} IS ${sql.placeholder('storedInsurance')}`))
      .returning(answeredColumns)
      .prepare(),
  );
  const saves = new Map<string, ReturnType<typeof prepareSave>>();

  const prepareSave = (section: AnswerSection, clears: boolean, onlyEmpty: boolean) =>
    db
      .insert(users)
      .values({
        id: sql.placeholder('userId'),
        [section]: mergedSection(section, storedSection(section), { clears, onlyEmpty }),
        newestAnswers: sql`${sql.placeholder('newest')}`,
        version: 1,
        createdAt: sql.placeholder('now'),
        updatedAt: sql.placeholder('now'),
        requestId: sql.placeholder('requestId'),
        requestVersion: 1,
        requestedAt: sql.placeholder('now'),
      })
      .onConflictDoUpdate({
        target: users.id,
        set: changesOf(section, sql`excluded.${sql.identifier(users[section].name)}`),
      })
      .returning(answeredColumns)
      .prepare();

  /** One for each section, and one more where a list of a pair is cleared or only what is empty is saved. */
  const preparedSave = (section: AnswerSection, clears: boolean, onlyEmpty: boolean) => {
    const name = `${section} ${clears} ${onlyEmpty}`;
    const known = saves.get(name);
    if (known !== undefined) return known;
    const made = prepareSave(section, clears, onlyEmpty);
    saves.set(name, made);
    return made;
  };

  const noted = (record: AnsweredRecord | undefined): AnsweredRecord | undefined => {
    if (record !== undefined) noteWritten(db, record);
    return record;
  };

  return {
    async findAnswers(userId: string): Promise<StoredAnswers | undefined> {
      const [record] = await findAnswers().execute({ userId });
      return record;
    },

    async find(userId: string): Promise<AnsweredRecord | undefined> {
      const [record] = await findAnswered().execute({ userId });
      return record;
    },

    /**
     * Merges the patch into one section, in one statement that touches nothing else, and gives the whole record;
     * the first save makes it. Version and `updatedAt` move only when the section changes.
     *
     * @returns undefined when `ifMatch` is given and no such record exists
     */
    async saveSection(save: SectionSave): Promise<AnsweredRecord | undefined> {
      const { userId, section, patch, onlyEmpty = false, ifMatch, requestId } = save;
      const clears = clearsOneList(section, patch);
      const newest = JSON.stringify(newestAnswersOf(section, patch));
      const values = { userId, patch: JSON.stringify(patch), newest, requestId, now: save.now.getTime() };
      if (ifMatch !== undefined) {
        const isMeant = and(eq(users.id, userId), matchesTag(ifMatch));
        const stored = sql`coalesce(${users[section]}, '{}')`;
        const changes = changesOf(section, mergedSection(section, stored, { clears, onlyEmpty }));
        const [row] = await db
          .update(users)
          .set(changes)
          .where(isMeant)
          .returning(answeredColumns)
          .prepare()
          .execute(values);
        return noted(row);
      }
      const [row] = await preparedSave(section, clears, onlyEmpty).execute(values);
      return noted(row);
    },

    /**
     * Replaces the matches of a record that is still as it was read, or makes the record. Matches that are the same
     * already are not written again.
     *
     * @param matches as JSON
     * @param mayHaveMoved whether answers may have changed since: then the matches are stored as if they had been made
     *   just before, unless other matches were stored meanwhile, which may be of newer answers
     * @returns undefined when the record has moved on since it was read
     */
    async replaceMatches(replacement: {
      userId: string;
      read: StoredAnswers | undefined;
      matches: string;
      mayHaveMoved: boolean;
      requestId: RequestId;
      now: Date;
    }): Promise<AnsweredRecord | undefined> {
      const { userId, read, requestId } = replacement;
      const now = replacement.now.getTime();
      const insurance = `{"matches":${replacement.matches}}`;
      if (read === undefined) {
        const times = { createdAt: now, updatedAt: now };
        const made = { id: userId, insurance, version: 1, ...times, requestId, requestVersion: 1, requestedAt: now };
        const [record] = await db.insert(users).values(made).onConflictDoNothing().returning(answeredColumns);
        return noted(record);
      }
      // Each change of what is answered moves the version, so what was read with it is what the record still holds.
      const { createdAt, version, revision, updatedAt } = read;
      const own = { createdAt, version, revision };
      const record = { id: userId, sections: `${read.beforeInsurance}${insurance}${read.afterInsurance}` };
      if (insurance === read.insurance) return noted({ ...record, ...own, updatedAt });
      const update = { userId, createdAt, insurance, requestId, now };
      if (replacement.mayHaveMoved) {
        const [moved] = await updateMatchesOfMoved().execute({ ...update, storedInsurance: read.insurance });
        return noted(moved);
      }
      const [updated] = await updateMatches().execute({ ...update, version, revision });
      return noted(updated && { ...record, ...updated });
    },

    /**
     * The answers that a record would hold with the patches merged into it; of nobody's without a record. The patches are
     * the newest answers, and of two patches that answer one question the deep dive's.
     */
    async mergeAnswers(userId: string, patches: AnswerPatches): Promise<Answers> {
      const merged = (section: AnswerSection) => {
        const stored = sql`coalesce((SELECT ${users[section]} FROM ${users} WHERE ${users.id} = ${userId}), '{}')`;
        const patch = patches[section] ?? {};
        const clears = clearsOneList(section, patch);
        return mergedSection(section, stored, { patch: sql`${JSON.stringify(patch)}`, clears });
      };
      const newest = { ...answered(patches, 'ltcLifetimeCare'), ...answered(patches, 'lifetimeCare') };
      const row = await db.get<Record<AnswerSection | 'newestAnswers', string | null>>(sql`SELECT
        ${merged('profile')} AS profile, ${merged('ltcLifetimeCare')} AS ltcLifetimeCare,
        ${merged('lifeInsurance')} AS lifeInsurance, ${merged('lifetimeCare')} AS lifetimeCare,
        json_patch(coalesce((SELECT ${newestAnswers} FROM ${users} WHERE ${users.id} = ${userId}), '{}'),
          ${JSON.stringify(newest)}) AS newestAnswers`);
      return parseAnswers(row);
    },
  };
}

function answered(patches: AnswerPatches, section: AnswerSection) {
  return newestAnswersOf(section, patches[section] ?? {});
}

/** The statement that makes an application the purchase of the records it is then restricted to. */
export function purchaseUpdate(
  db: Database,
  partner: NonNullable<Purchase['partner']>,
  { requestId, now }: { requestId: RequestId; now: number },
) {
  const purchase = JSON.stringify({ partner });
  const isChanged = sql`(${users.purchase} IS NOT ${purchase})`;
  return db.update(users).set({
    purchase: sql`${purchase}`,
    ...movedBy(isChanged, sql`${now}`),
    ...changedBy(isChanged, requestId, now),
  });
}

/** A tag of another form matches no record. */
function matchesTag(ifMatch: 'any' | readonly string[]): SQL | undefined {
  if (ifMatch === 'any') return undefined;
  const versions = ifMatch.flatMap((tag) => entityTag.parse(tag) ?? []);
  if (versions.length === 0) return sql`false`;
  return or(
    ...versions.map(({ createdAt, version, revision }) =>
      and(eq(users.createdAt, createdAt), eq(users.version, version), eq(users.revision, revision)),
    ),
  );
}
