import { appendFileSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';

export interface SmallDisk {
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

export interface FailingDisk {
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
