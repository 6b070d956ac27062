import { existsSync } from 'node:fs';
import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import Connection from 'libsql';
import { encryptionOption } from './encryption';
import { DatabaseError, toDatabaseError } from './errors';
import { createStatementCache } from './kept-statements';
import { inodeOf, syncedMark } from './replica-messages';
import { type ReplicaProcessSettings, startReplicaProcess } from './replica-process';
import { kindOf, toStatement } from './statement';

/**
 * An embedded replica: a file beside this process that a process of its own keeps up to date, and that is read here
 * through a connection that cannot write.
 *
 * Reads throw DatabaseError `REPLICA_NOT_READY` until the file has been whole once, and while it is older than it should
 * be.
 */
export function openReplicaFile(settings: ReplicaProcessSettings): Client {
  const { path, encryptionKey } = settings;
  const syncing = startReplicaProcess(settings);
  let reader: Reader | undefined;
  let isClosed = false;

  const closeReader = () => {
    reader?.connection.close();
    reader = undefined;
  };
  const read = (statement: InStatement): ResultSet => {
    if (kindOf(statement) !== 'read') throw new TypeError('A replica is only read');
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    if (!syncing.isCurrent()) throw new DatabaseError('REPLICA_NOT_READY', true);
    // Another process may have made it anew: what was removed would be read for ever.
    if (reader !== undefined && inodeOf(path) !== reader.inode) closeReader();
    if (reader === undefined) {
      if (!existsSync(syncedMark(path)) || !existsSync(path)) throw new DatabaseError('REPLICA_NOT_READY', true);
      reader = openReader(path, encryptionKey);
    }
    try {
      return reader.statements.run(statement, true);
    } catch (error) {
      // After a lock, what the connection says next may be wrong (local-client.ts).
      closeReader();
      throw toDatabaseError(error);
    }
  };
  const refuse = () => Promise.reject(new TypeError('A replica is only read'));

  return {
    execute: async (statement: InStatement, args?: InArgs) => read(toStatement(statement, args)),
    batch: refuse,
    executeMultiple: refuse,
    migrate: refuse,
    transaction: refuse,
    sync: refuse,
    reconnect: closeReader,
    close() {
      isClosed = true;
      closeReader();
      syncing.stop();
    },
    get closed() {
      return isClosed;
    },
    protocol: 'file',
  };
}

interface Reader {
  readonly inode: number | undefined;
  readonly connection: Connection.Database;
  readonly statements: ReturnType<typeof createStatementCache>;
}

function openReader(path: string, encryptionKey: string | undefined): Reader {
  try {
    const inode = inodeOf(path);
    const connection = new Connection(path, { timeout: 0, ...encryptionOption(encryptionKey) });
    connection.exec('PRAGMA query_only = ON');
    return { inode, connection, statements: createStatementCache(connection) };
  } catch (error) {
    throw toDatabaseError(error);
  }
}
