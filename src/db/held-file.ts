import Connection from 'libsql';
import { isBusy } from './errors';

/** Never closed, so that each is held for as long as this process lives. */
const held: Connection.Database[] = [];

/** Whether a file is this process's until it ends, however it ends: the lock is the operating system's. */
export function holdFile(path: string): boolean {
  const connection = new Connection(path);
  try {
    // Or a second file lies beside it.
    connection.exec('PRAGMA journal_mode = MEMORY');
    connection.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    connection.close();
    if (!isBusy(error)) throw error;
    return false;
  }
  held.push(connection);
  return true;
}
