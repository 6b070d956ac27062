import { userInfo } from 'node:os';
import type { Operator } from '../modules/audit/store';

let operator: Operator | undefined;

/** Who runs this command, as the machine knows them, and an id of this one run. */
export function currentOperator(): Operator {
  operator ??= { actorId: loginName(), requestId: Bun.randomUUIDv7() };
  return operator;
}

/** In a container a user may have a number alone. */
function loginName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}
