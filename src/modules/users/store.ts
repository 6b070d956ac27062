import { and, eq, not, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { compileQuery } from '../../db/queries';
import { randomRevision, type UserRow, users } from '../../db/schema/people';
import type { Preconditions, TagList } from '../../http/response';
import { type AnswerSection, type Answers, type MergePatch, newestAnswersOf, parseAnswers } from '../answers/sections';
import type { RequestId } from '../audit/store';
import type { Purchase } from './model';
import {
  auditColumns,
  changedColumns,
  clearsOneList,
  laterThanStored,
  mergedNewest,
  mergedSection,
  savedColumns,
  savedRow,
  versionColumns,
} from './store-section';
import type { LastWrites, RecordVersion } from './versions';

interface SectionSave {
  readonly userId: string;
  readonly section: AnswerSection;
  readonly patch: MergePatch;
  /** Save only the fields that hold no answer, and replace none. */
  readonly onlyEmpty?: boolean;
  readonly preconditions?: Preconditions | undefined;
  readonly requestId: RequestId;
  readonly now: Date;
}

interface SaveKind extends Preconditions {
  readonly onlyEmpty: boolean;
}

/** Merge patches by section. */
export type AnswerPatches = Readonly<Partial<Record<AnswerSection, MergePatch>>>;

/** The record of a response with a user. */
export interface UserRecord extends RecordVersion, Pick<UserRow, 'id' | 'updatedAt'> {
  /** The JSON members of the user object that hold the sections. */
  readonly sections: string;
}

const { profile, insurance, ltcLifetimeCare, purchase, lifeInsurance, lifetimeCare } = users;
const beforeInsurance = sql<string>`format('"profile":%s,"insurance":', coalesce(${profile}, '{}'))`;
const afterInsurance = sql<string>`format(',"ltc":%s,"purchase":%s,"lifeInsurance":%s,"lifetimeCare":%s',
  coalesce('{"lifetimeCare":' || ${ltcLifetimeCare} || '}', '{}'), coalesce(${purchase}, '{}'),
  coalesce(${lifeInsurance}, '{}'), coalesce(${lifetimeCare}, '{}'))`;

/** The database concatenates the members, which is faster than to pass each column through the driver and Drizzle. */
export const userRecordColumns = {
  id: users.id,
  version: users.version,
  revision: users.revision,
  createdAt: users.createdAt,
  updatedAt: users.updatedAt,
  sections: sql<string>`${beforeInsurance} || coalesce(${insurance}, '{}') || ${afterInsurance}`,
} as const;

/** One version of a record for matching: its answers, and the JSON around the insurance that matching computes. */
interface StoredAnswers
  extends RecordVersion,
    Pick<UserRow, 'updatedAt' | 'insurance' | 'newestAnswers' | AnswerSection> {
  readonly beforeInsurance: string;
  readonly afterInsurance: string;
}
const { createdAt, updatedAt, version, revision, newestAnswers } = users;
const ownVersion = { createdAt, version, revision };
const answers = { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare, newestAnswers };
const storedAnswers = { ...ownVersion, updatedAt, insurance, ...answers, beforeInsurance, afterInsurance };

export type UserStore = ReturnType<typeof createUserStore>;

/** @param lastWrites receives each version that the store writes, if a replica serves reads */
export function createUserStore(db: Database, lastWrites?: LastWrites) {
  const isOfUser = eq(users.id, sql.placeholder('userId'));
  const findAnswers = compileQuery(db, storedAnswers, () => db.select(storedAnswers).from(users).where(isOfUser));
  const findRecord = compileQuery(db, userRecordColumns, () =>
    db.select(userRecordColumns).from(users).where(isOfUser),
  );
  const isSameVersion = and(
    isOfUser,
    eq(users.createdAt, sql.placeholder('createdAt')),
    eq(users.version, sql.placeholder('version')),
    eq(users.revision, sql.placeholder('revision')),
  );
  const updatedColumns = { ...ownVersion, updatedAt };
  const updateMatches = compileQuery(db, updatedColumns, () =>
    db
      .update(users)
      .set({
        insurance: sql`${sql.placeholder('insurance')}`,
        version: sql`${users.version} + 1`,
        revision: randomRevision,
        updatedAt: laterThanStored(sql`${sql.placeholder('now')}`),
        ...auditColumns(sql`true`),
      })
      .where(isSameVersion)
      .returning(updatedColumns),
  );

  const buildSave = (section: AnswerSection, clears: boolean, save: SaveKind) => {
    const { onlyEmpty, ifMatch, ifNoneMatch } = save;
    const isOther = ifNoneMatch && not(isListed(ifNoneMatch, 'ifNoneMatch'));
    if (ifMatch !== undefined) {
      return db
        .update(users)
        .set(changedColumns(section, 'saved'))
        .from(savedRow(section, { clears, onlyEmpty }))
        .where(and(eq(users.id, sql`saved.id`), isListed(ifMatch, 'ifMatch'), isOther))
        .returning(userRecordColumns);
    }
    return db
      .insert(users)
      .values({
        id: sql.placeholder('userId'),
        ...savedColumns(section, { clears, onlyEmpty }),
        version: 1,
        createdAt: sql.placeholder('now'),
        updatedAt: sql.placeholder('now'),
        requestId: sql.placeholder('requestId'),
        requestVersion: 1,
        requestedAt: sql.placeholder('now'),
      })
      .onConflictDoUpdate({
        target: users.id,
        set: changedColumns(section, 'excluded'),
        ...(isOther && { setWhere: isOther }),
      })
      .returning(userRecordColumns);
  };
  const compileSave = (section: AnswerSection, clears: boolean, save: SaveKind) =>
    compileQuery(db, userRecordColumns, () => buildSave(section, clears, save));
  const saves = new Map<string, ReturnType<typeof compileSave>>();

  /** One statement for each section, for patches that clear a list of a pair, and for each kind of save. */
  const saveOf = (section: AnswerSection, clears: boolean, save: SaveKind) => {
    const name = `${section} ${clears} ${save.onlyEmpty} ${kindOf(save.ifMatch)} ${kindOf(save.ifNoneMatch)}`;
    const compiled = saves.get(name) ?? compileSave(section, clears, save);
    saves.set(name, compiled);
    return compiled;
  };

  const remember = (record: UserRecord | undefined): UserRecord | undefined => {
    if (record !== undefined) lastWrites?.add(record);
    return record;
  };

  return {
    async findAnswers(userId: string): Promise<StoredAnswers | undefined> {
      const [record] = await findAnswers({ userId });
      return record;
    },

    async find(userId: string): Promise<UserRecord | undefined> {
      const [record] = await findRecord({ userId });
      return record;
    },

    /**
     * Merges the patch into one section with one statement and returns the whole record; the first save creates it.
     * The version and `updatedAt` change only if the section or `newestAnswers` changes. In the same transaction a
     * trigger writes the audit event: `users_made_audited`, `users_<section>_audited`, or `users_newest_answers_audited`
     * if the section itself is unchanged.
     *
     * @returns undefined when the preconditions do not hold
     */
    async saveSection(save: SectionSave): Promise<UserRecord | undefined> {
      const { userId, section, patch, onlyEmpty = false, preconditions = {}, requestId } = save;
      const { ifMatch, ifNoneMatch } = preconditions;
      const run = saveOf(section, clearsOneList(section, patch), { onlyEmpty, ifMatch, ifNoneMatch });
      const [row] = await run({
        userId,
        requestId,
        now: save.now.getTime(),
        patch: JSON.stringify(patch),
        newest: JSON.stringify(newestAnswersOf(section, patch)),
        ifMatch: JSON.stringify(ifMatch),
        ifNoneMatch: JSON.stringify(ifNoneMatch),
      });
      return remember(row);
    },

    /**
     * Optimistic concurrency: replaces the matches if the record has the version that was read, or creates the record.
     * Unchanged matches are not written.
     *
     * @returns undefined when the record has changed since it was read
     */
    async replaceMatches(replacement: {
      userId: string;
      read: StoredAnswers | undefined;
      /** JSON. */
      matches: string;
      requestId: RequestId;
      now: Date;
    }): Promise<UserRecord | undefined> {
      const { userId, read, requestId } = replacement;
      const now = replacement.now.getTime();
      const insurance = `{"matches":${replacement.matches}}`;
      if (read === undefined) {
        const times = { createdAt: now, updatedAt: now };
        const created = { id: userId, insurance, version: 1, ...times, requestId, requestVersion: 1, requestedAt: now };
        const [record] = await db.insert(users).values(created).onConflictDoNothing().returning(userRecordColumns);
        return remember(record);
      }
      // Each change of the record changes its version, so the rest of the record is as it was read.
      const { createdAt, version, revision, updatedAt } = read;
      const own = { createdAt, version, revision };
      const record = { id: userId, sections: `${read.beforeInsurance}${insurance}${read.afterInsurance}` };
      if (insurance === read.insurance) return remember({ ...record, ...own, updatedAt });
      const [updated] = await updateMatches({ userId, ...own, insurance, requestId, now });
      return remember(updated && { ...record, ...updated });
    },

    /**
     * Makes a submitted application the purchase of its user. A record that has this purchase already is not changed.
     *
     * @returns undefined when the user or the application is erased
     */
    async setPurchase(purchase: {
      userId: string;
      applicationId: string;
      partner: NonNullable<Purchase['partner']>;
      requestId: RequestId;
      now: number;
    }): Promise<UserRecord | undefined> {
      const { userId, applicationId, partner, ...origin } = purchase;
      // An erasure keeps the application without its user.
      const isOfApplicant = sql`EXISTS (SELECT 1 FROM applications WHERE id = ${applicationId} AND user_id = ${userId})`;
      const [record] = await purchaseUpdate(db, partner, origin)
        .where(and(eq(users.id, userId), isOfApplicant))
        .returning(userRecordColumns);
      return remember(record);
    },

    /**
     * Returns the saved answers with the patches merged in; without a record, the patches alone. The patches count as the
     * newest answers. If two patches answer one question, the deep dive's counts.
     */
    async mergeAnswers(userId: string, patches: AnswerPatches): Promise<Answers> {
      const id = sql`${userId}`;
      const merged = (section: AnswerSection) => {
        const patch = patches[section] ?? {};
        const clears = clearsOneList(section, patch);
        return mergedSection(section, { patch: sql`${JSON.stringify(patch)}`, clears, userId: id });
      };
      const newest = { ...answered(patches, 'ltcLifetimeCare'), ...answered(patches, 'lifetimeCare') };
      const row = await db.get<Record<AnswerSection | 'newestAnswers', string | null>>(sql`SELECT
        ${merged('profile')} AS profile, ${merged('ltcLifetimeCare')} AS ltcLifetimeCare,
        ${merged('lifeInsurance')} AS lifeInsurance, ${merged('lifetimeCare')} AS lifetimeCare,
        ${mergedNewest(sql`${JSON.stringify(newest)}`, id)} AS newestAnswers`);
      return parseAnswers(row);
    },
  };
}

function answered(patches: AnswerPatches, section: AnswerSection) {
  return newestAnswersOf(section, patches[section] ?? {});
}

/** The statement that sets the purchase; the caller adds the WHERE clause. */
export function purchaseUpdate(
  db: Database,
  partner: NonNullable<Purchase['partner']>,
  { requestId, now }: { requestId: RequestId; now: number },
) {
  const purchase = JSON.stringify({ partner });
  const isChanged = sql`(${users.purchase} IS NOT ${purchase})`;
  return db.update(users).set({
    purchase: sql`${purchase}`,
    ...versionColumns(isChanged, sql`${now}`),
    ...auditColumns(isChanged, requestId, now),
  });
}

const storedTag = sql`format('"%d-%d-%s"', ${createdAt}, ${version}, ${revision})`;

/** Whether the list has the tag of the stored record. `name` is the placeholder of the list as JSON. */
function isListed(list: TagList, name: keyof Preconditions): SQL {
  return list === 'any' ? sql`true` : sql`${storedTag} IN (SELECT value FROM json_each(${sql.placeholder(name)}))`;
}

/** 'any', 'object' for a list of tags, or 'undefined'. */
function kindOf(list: TagList | undefined): string {
  return typeof list === 'string' ? list : typeof list;
}
