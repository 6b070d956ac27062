import { appendFileSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';

export interface SmallDisk {
  readonly folder: string;
  /** Takes all the room that is left. */
  fill(): void;
  free(): void;
}

const mount = (...args: string[]) => Bun.spawnSync(['mount', ...args], { stderr: 'ignore' }).exitCode === 0;

/** A file system of its own in memory; undefined where this user may not mount one. */
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
        // It is full.
      }
    },
    free: () => rmSync(filler, { force: true }),
  };
}

export interface FailingDisk {
  readonly folder: string;
  /** Makes the file system find an error, upon which it turns read-only beneath whoever has files open on it. */
  fail(): void;
  /** Checks and mounts it anew, once nobody uses it. */
  mend(): void;
}

/** A file system of its own in a file; undefined where this user may not mount one. */
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
      if (!mount('-o', options, image, folder)) throw new Error('It cannot be mounted anew');
    },
  };
}
