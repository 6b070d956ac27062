import { Database as SqliteDatabase } from 'bun:sqlite';
import { appendFileSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Call, TestResponse } from './app';
import { atEnd, temporaryFolder } from './resources';

interface SmallDisk {
  readonly folder: string;
  /** Uses up the remaining space. */
  fill(): void;
  free(): void;
}

const mount = (...args: string[]) => Bun.spawnSync(['mount', ...args], { stderr: 'ignore' }).exitCode === 0;

/** Mounts a file system in memory; returns undefined without the permission to mount. */
export function mountSmallDisk(megabytes: number): SmallDisk | undefined {
  const folder = temporaryFolder();
  if (Bun.which('mount') === null) return undefined;
  if (!mount('-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder)) return undefined;
  atEnd(() => Bun.spawnSync(['umount', '-l', folder]));
  const filler = join(folder, 'filler');
  return {
    folder,
    fill() {
      try {
        writeFileSync(filler, '');
        for (;;) appendFileSync(filler, Buffer.alloc(4096));
      } catch {
        // The disk is full.
      }
    },
    free: () => rmSync(filler, { force: true }),
  };
}

interface FailingDisk {
  readonly folder: string;
  /** Triggers a file system error, after which the mount is read-only, also for open files. */
  fail(): void;
  /** Repairs and remounts an unused file system. */
  mend(): void;
}

/** Mounts a file system in a file; returns undefined without the permission to mount. */
export function mountFailingDisk(): FailingDisk | undefined {
  if (Bun.which('mkfs.ext4') === null || Bun.which('findmnt') === null) return undefined;
  const image = join(temporaryFolder(), 'image');
  const folder = temporaryFolder();
  writeFileSync(image, Buffer.alloc(16 * 1024 * 1024));
  Bun.spawnSync(['mkfs.ext4', '-q', '-O', '^has_journal', image]);
  const options = 'loop,errors=remount-ro';
  if (!mount('-o', options, image, folder)) return undefined;
  atEnd(() => Bun.spawnSync(['umount', '-l', folder]));
  const device = Bun.spawnSync(['findmnt', '-no', 'SOURCE', folder]).stdout.toString().trim().split('/').at(-1);
  const trigger = `/sys/fs/ext4/${device}/trigger_fs_error`;
  if (!existsSync(trigger)) return undefined;
  return {
    folder,
    fail: () => writeFileSync(trigger, 'on purpose'),
    mend() {
      Bun.spawnSync(['umount', folder]);
      Bun.spawnSync(['e2fsck', '-fy', image], { stdout: 'ignore', stderr: 'ignore' });
      if (!mount('-o', options, image, folder)) throw new Error('The file system cannot be remounted');
    },
  };
}

interface Save {
  readonly userId: string;
  readonly requestId: string;
  readonly version: number;
  readonly careCosts: number | undefined;
}

/**
 * Compares the saves that a service acknowledged with the history that its database has. The last values alone do not
 * show a lost save that a later one has overwritten.
 */
export function createSaveHistory() {
  const acknowledged: Save[] = [];
  const erased = new Map<string, string>();
  return {
    acknowledged,

    /**
     * @param response to a save that changed one section
     * @param careCosts the saved value of the long-term-care flow, to compare it if no later save is acknowledged
     */
    note(userId: string, { headers }: TestResponse, careCosts?: number): void {
      const version = Number(/^"-?\d+-(\d+)-/.exec(headers.get('etag') ?? '')?.[1]);
      acknowledged.push({ userId, requestId: headers.get('x-request-id') ?? '', version, careCosts });
    },

    /** @param keptAs the id that the user's events have since the erasure */
    noteErasure(userId: string, keptAs: string): void {
      erased.set(userId, keptAs);
    },

    /**
     * The inconsistencies of a database file. Each version has one event, each acknowledged save is the event of its version, the
     * last acknowledged value of each user is stored, and an erased user has an event for each save and no record.
     */
    faultsOf(path: string): string[] {
      const database = new SqliteDatabase(path, { readonly: true });
      try {
        const users = database
          .query<{ id: string; version: number; careCosts: number | null }, []>(
            `SELECT id, version, json_extract(ltc_lifetime_care, '$.careCosts') AS careCosts FROM users`,
          )
          .all();
        const events = database
          .query<{ userId: string; requestId: string }, []>(
            `SELECT user_id AS userId, request_id AS requestId FROM audit_events WHERE action = 'saved' ORDER BY id`,
          )
          .all();
        const records = new Map(users.map((user) => [user.id, user]));
        const history = Map.groupBy(events, ({ userId }) => userId);
        const gaps = users.filter(({ id, version }) => history.get(id)?.length !== version);
        const lost = acknowledged.filter(
          ({ userId, requestId, version }) =>
            !erased.has(userId) && history.get(userId)?.[version - 1]?.requestId !== requestId,
        );
        const wrong = acknowledged.filter(({ userId, version, careCosts }) => {
          const record = records.get(userId);
          return careCosts !== undefined && record?.version === version && record.careCosts !== careCosts;
        });
        const saves = Map.groupBy(acknowledged, ({ userId }) => userId);
        const incomplete = [...erased].filter(
          ([userId, keptAs]) =>
            records.has(userId) || (history.get(keptAs)?.length ?? 0) < (saves.get(userId)?.length ?? 0),
        );
        return [
          ...gaps.map(({ id, version }) => `${id} has version ${version}, and ${history.get(id)?.length} events`),
          ...lost.map(({ userId, requestId, version }) => `${requestId}, version ${version} of ${userId}, is lost`),
          ...wrong.map(({ userId, version }) => `the value of version ${version} of ${userId} is lost`),
          ...incomplete.map(([userId, keptAs]) => `${userId}, erased, has ${history.get(keptAs)?.length} events`),
        ];
      } finally {
        database.close();
      }
    },
  };
}

/** Saves as four users until `count` more saves are acknowledged. */
export async function saveMany(
  call: Call,
  history: ReturnType<typeof createSaveHistory>,
  count: number,
): Promise<void> {
  const total = history.acknowledged.length + count;
  const save = async (as: string) => {
    for (let careCosts = 1; history.acknowledged.length < total; careCosts += 1) {
      const response = await call('POST', '/v2/private/ltc/lifetimeCare', { as, body: { careCosts } });
      if (response.status !== 200) throw new Error(`A save returned ${response.status}`);
      history.note(as, response, careCosts);
    }
  };
  await Promise.all(['ada', 'bob', 'eve', 'joe'].map(save));
}
