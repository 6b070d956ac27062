import { and, eq, or, type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { onFirstUse } from '../../db/first-use';
import { users } from '../../db/schema';
import { randomRevision, type UserRow } from '../../db/schema/users';
import type { RequestId } from '../audit/store';
import { type AnswerSection, type Answers, parseAnswers } from './answers';
import { entityTag, type RecordVersion } from './entity-tag';
import type { Purchase } from './model';
import { noteWritten } from './written-versions';

/** An RFC 7396 merge patch: a key that is absent or undefined stays as it is, null clears it, a list is replaced. */
export type MergePatch = Readonly<Record<string, unknown>>;

interface SectionSave {
  readonly userId: string;
  readonly section: AnswerSection;
  readonly patch: MergePatch;
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
const beforeInsurance = sql<string>`format('%s"insurance":', '"profile":' || ${profile} || ',')`;
const afterInsurance = sql<string>`format(',"ltc":%s,"purchase":%s%s%s',
  coalesce('{"lifetimeCare":' || ${ltcLifetimeCare} || '}', '{}'), coalesce(${purchase}, '{}'),
  ',"lifeInsurance":' || ${lifeInsurance}, ',"lifetimeCare":' || ${lifetimeCare})`;

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
export interface StoredAnswers extends RecordVersion, Pick<UserRow, 'updatedAt' | 'insurance' | AnswerSection> {
  readonly beforeInsurance: string;
  readonly afterInsurance: string;
}
const { createdAt, updatedAt, version, revision } = users;
const ownVersion = { createdAt, version, revision };
const answers = { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare };
const storedAnswers = { ...ownVersion, updatedAt, insurance, ...answers, beforeInsurance, afterInsurance };

export function createUserStore(db: Database) {
  const isOfUser = eq(users.id, sql.placeholder('userId'));
  const findAnswers = onFirstUse(() => db.select(storedAnswers).from(users).where(isOfUser).prepare());
  const findAnswered = onFirstUse(() => db.select(answeredColumns).from(users).where(isOfUser).prepare());
  const isStillRead = and(
    isOfUser,
    eq(users.createdAt, sql.placeholder('createdAt')),
    eq(users.version, sql.placeholder('version')),
    eq(users.revision, sql.placeholder('revision')),
  );
  const updateMatches = onFirstUse(() =>
    db
      .update(users)
      .set({
        insurance: sql`${sql.placeholder('insurance')}`,
        version: sql`${users.version} + 1`,
        revision: randomRevision,
        updatedAt: laterThanStored(sql`${sql.placeholder('now')}`),
        ...changedBy(sql`true`),
      })
      .where(isStillRead)
      .returning({ ...ownVersion, updatedAt })
      .prepare(),
  );
  const saves = new Map<string, ReturnType<typeof prepareSave>>();

  const prepareSave = (section: AnswerSection, mayEmpty: readonly string[]) =>
    db
      .insert(users)
      .values({
        id: sql.placeholder('userId'),
        [section]: mergedSection(storedSection(section), mayEmpty),
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

  /** One for each section and each set of its members that a patch may empty, of which there are few. */
  const preparedSave = (section: AnswerSection, mayEmpty: readonly string[]) => {
    const name = [section, ...mayEmpty].join(' ');
    const known = saves.get(name);
    if (known !== undefined) return known;
    const made = prepareSave(section, mayEmpty);
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
    async saveSection({ userId, section, patch, ifMatch, ...by }: SectionSave): Promise<AnsweredRecord | undefined> {
      const mayEmpty = keysThatMayEmpty(patch);
      const values = { userId, patch: JSON.stringify(patch), requestId: by.requestId, now: by.now.getTime() };
      if (ifMatch !== undefined) {
        const isMeant = and(eq(users.id, userId), matchesTag(ifMatch));
        const changes = changesOf(section, mergedSection(sql`coalesce(${users[section]}, '{}')`, mayEmpty));
        const [row] = await db
          .update(users)
          .set(changes)
          .where(isMeant)
          .returning(answeredColumns)
          .prepare()
          .execute(values);
        return noted(row);
      }
      const [row] = await preparedSave(section, mayEmpty).execute(values);
      return noted(row);
    },

    /**
     * Replaces the matches of a record that is still as it was read, or makes the record. Matches that are the same
     * already are not written again.
     *
     * @param matches as JSON
     * @returns undefined when the record has moved on since it was read
     */
    async replaceMatches(replacement: {
      userId: string;
      read: StoredAnswers | undefined;
      matches: string;
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
      const [updated] = await updateMatches().execute({ userId, ...own, insurance, requestId, now });
      return noted(updated && { ...record, ...updated });
    },

    /** The answers that a record would hold with the patches merged into it; of nobody's without a record. */
    async mergeAnswers(userId: string, patches: AnswerPatches): Promise<Answers> {
      const merged = (section: AnswerSection) =>
        sql`json_patch(coalesce((SELECT ${users[section]} FROM ${users} WHERE ${users.id} = ${userId}), '{}'),
          ${JSON.stringify(patches[section] ?? {})})`;
      const row = await db.get<Record<AnswerSection, string>>(sql`SELECT ${merged('profile')} AS profile,
        ${merged('ltcLifetimeCare')} AS ltcLifetimeCare, ${merged('lifeInsurance')} AS lifeInsurance,
        ${merged('lifetimeCare')} AS lifetimeCare`);
      return parseAnswers(row);
    },
  };
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

/** A clock that was set back must not make a record look older than it was, or than its own beginning. */
function laterThanStored(now: SQL): SQL {
  return sql`max(${users.updatedAt}, ${now})`;
}

/** What a save changes in a record that exists, when its section becomes `merged`. */
function changesOf(section: AnswerSection, merged: SQL) {
  const isChanged = sql`(${merged} IS NOT ${users[section]})`;
  return {
    [section]: merged,
    ...movedBy(isChanged, sql`${sql.placeholder('now')}`),
    ...changedBy(isChanged),
  };
}

/** The next version of a record, if it changes. */
function movedBy(isChanged: SQL, now: SQL) {
  return {
    version: sql`${users.version} + ${isChanged}`,
    revision: sql`CASE WHEN ${isChanged} THEN ${randomRevision} ELSE ${users.revision} END`,
    updatedAt: sql`CASE WHEN ${isChanged} THEN ${laterThanStored(now)} ELSE ${users.updatedAt} END`,
  };
}

/** What the database writes into the audit trail, if the record changes. */
function changedBy(
  isChanged: SQL,
  requestId: RequestId | Placeholder = sql.placeholder('requestId'),
  now: number | Placeholder = sql.placeholder('now'),
) {
  return {
    requestId: sql`${requestId}`,
    requestVersion: sql`${users.version} + ${isChanged}`,
    requestedAt: sql`${now}`,
  };
}

/** What an upsert merges into, read before it, so that `json_patch` runs once and not for every column that moves with it. */
function storedSection(section: AnswerSection): SQL {
  return sql`coalesce((SELECT ${users[section]} FROM ${users} WHERE ${users.id} = ${sql.placeholder('userId')}), '{}')`;
}

/**
 * `json_patch` gives the same text for the same content, so it also tells whether anything changed. On an insert
 * it must run too: a plain value would keep the nulls that a patch drops. What holds no answer any more is absent:
 * NULL for the section, and no empty object inside it.
 */
function mergedSection(section: SQL, mayEmpty: readonly string[]): SQL {
  let merged = sql`json_patch(${section}, ${sql.placeholder('patch')})`;
  for (const key of mayEmpty) {
    const path = `$.${key}`;
    merged = sql`CASE WHEN json_extract(${merged}, ${path}) = '{}' THEN json_remove(${merged}, ${path}) ELSE ${merged} END`;
  }
  return sql`nullif(${merged}, '{}')`;
}

/** The members of a section that are objects themselves and of which the patch clears a part. */
function keysThatMayEmpty(patch: MergePatch): string[] {
  return Object.keys(patch).filter((key) => {
    const value = patch[key];
    return typeof value === 'object' && value !== null && Object.values(value).includes(null);
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
