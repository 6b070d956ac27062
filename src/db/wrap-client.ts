import type { Client, InArgs, InStatement } from '@libsql/client';
import { kindOf, toStatement } from './statement';

type Replaced = {
  readonly execute: (statement: InStatement, args?: InArgs) => ReturnType<Client['execute']>;
} & Partial<Pick<Client, 'batch' | 'executeMultiple' | 'migrate' | 'sync' | 'transaction' | 'reconnect' | 'close'>>;

/** The client with some of its methods replaced; the others are its own. */
export function wrapClient(client: Client, replaced: Replaced): Client {
  return {
    batch: (statements, mode) => client.batch(statements, mode),
    executeMultiple: (sql) => client.executeMultiple(sql),
    migrate: (statements) => client.migrate(statements),
    sync: () => client.sync(),
    transaction: () => client.transaction('write'),
    reconnect: () => client.reconnect(),
    close: () => client.close(),
    get closed() {
      return client.closed;
    },
    get protocol() {
      return client.protocol;
    },
    ...replaced,
  };
}

/** What a statement, or several together, are run inside of. */
export type Guard = <Result>(work: () => Promise<Result>) => Promise<Result>;

/** The client with its reads and its writes run inside of guards; it has no interactive transactions. */
export function guardClient(client: Client, read: Guard, write: Guard, reconnect: Client['reconnect']): Client {
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return (kindOf(whole) === 'read' ? read : write)(() => client.execute(whole));
    },
    batch: (statements, mode) => (mode === 'read' ? read : write)(() => client.batch(statements, mode)),
    migrate: (statements) => write(() => client.migrate(statements)),
    executeMultiple: (sql) => write(() => client.executeMultiple(sql)),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    sync: () => write(() => client.sync()),
    reconnect,
  });
}
