import { readdirSync, readFileSync, statSync } from 'node:fs';

/** The resources of a process at one time. */
export interface Sample {
  readonly rssMb: number;
  readonly descriptors: number;
  readonly threads: number;
  readonly walMb: number;
}

/** Reads the resources from /proc (Linux only). */
export function takeSample(pid: number, databasePath: string): Sample {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const number = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
  const walBytes = statSync(`${databasePath}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  return {
    rssMb: number('VmRSS') / 1024,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    threads: number('Threads'),
    walMb: walBytes / 1024 / 1024,
  };
}
