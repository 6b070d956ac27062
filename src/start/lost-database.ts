import { readdirSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { UnfitError } from '../db/backup';
import { nameOfFile } from '../db/database-file';
import { describeLoss, type OnLoss } from '../db/loss';
import type { Lifecycle } from '../deps';
import { describeError, type Log } from '../log';

const keptCopy = 'Every acknowledged save is in the rescued copy that the log names. Stop the service and restore it.';
const copyFirst = 'Before you stop the service, copy the files that it has open: see its log.';

/** Logs the loss of the database and the result of its rescue, and gives readiness the reason and the remedy. */
export function createLossReport(log: Log, lifecycle: Lifecycle, path: string | undefined): OnLoss {
  // The name leads elsewhere once the file is gone.
  const database = path === undefined ? undefined : nameOfFile(path);
  return (failure, rescued) => {
    const { reason, remedy, line } = describeLoss(failure.code);
    lifecycle.hasLostDisk = true;
    lifecycle.lossReason = reason;
    lifecycle.lossRemedy = remedy;
    log.fatal(describeError(failure), line);
    rescued?.then(
      (copy) => {
        lifecycle.lossRemedy = keptCopy;
        log.error(
          { rescued: copy },
          'every acknowledged save is in the rescued copy: stop the service and put the copy in place with planning restore',
        );
      },
      (error: unknown) => {
        lifecycle.lossRemedy = copyFirst;
        const fields = error instanceof UnfitError ? {} : describeError(error);
        log.fatal(
          { ...fields, descriptors: database === undefined ? [] : descriptorsOf(database) },
          'the rescue of the database has failed: before you stop the service, copy the file and its log (-wal) from /proc/PID/fd',
        );
      },
    );
  };
}

/** The descriptors of a database file and its log, such as `/proc/7/fd/12 -> /data/planning.db (deleted)`. */
function descriptorsOf(database: string): string[] {
  const folder = `/proc/${process.pid}/fd`;
  // The files, or their folder, may have been moved.
  const file = basename(database);
  const found = new Map<string, string>();
  try {
    for (const descriptor of readdirSync(folder)) {
      const target = targetOf(`${folder}/${descriptor}`);
      const name = basename(target.replace(/ \(deleted\)$/, ''));
      if (name === file || name === `${file}-wal`) found.set(target, `${folder}/${descriptor} -> ${target}`);
    }
  } catch {
    // Only Linux has the folder.
  }
  return [...found.values()];
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return '';
  }
}
