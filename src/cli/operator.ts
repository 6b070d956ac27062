import { existsSync } from 'node:fs';
import type { Operator } from '../modules/audit/store';

const idProgram = '/usr/bin/id';
let operator: Operator | undefined;

/** Who runs this command, as the machine knows them, and an id of this one run. */
export function currentOperator(): Operator {
  operator ??= { actorId: loginName(), requestId: Bun.randomUUIDv7() };
  return operator;
}

/** Asked of the system: what Bun's `userInfo` says is the variable USER, which anybody can set (bun#39859). */
function loginName(): string {
  const found = existsSync(idProgram) ? Bun.spawnSync([idProgram, '-un'], { env: {}, stderr: 'ignore' }) : undefined;
  // In a container a user may have a number alone.
  return found?.success ? found.stdout.toString().trim() : `uid ${process.getuid?.() ?? 'unknown'}`;
}
