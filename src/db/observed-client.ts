import type { Client, InArgs, InStatement } from '@libsql/client';
import type { CallKind, DatabaseObserver } from '../telemetry/observers';
import { kindOf, toStatement } from './statement';
import { wrapClient } from './wrap-client';

/** The client with its calls run by observers, the first of them outermost; the client itself where nobody observes. */
export function observeClient(client: Client, observers: readonly DatabaseObserver[]): Client {
  if (observers.length === 0) return client;
  const observe = <Result>(kind: CallKind, work: () => Promise<Result>): Promise<Result> =>
    observers.reduceRight<() => Promise<Result>>((inner, observer) => () => observer.observe(kind, inner), work)();
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return observe(kindOf(whole), () => client.execute(whole));
    },
    batch: (statements, mode) => observe(mode === 'read' ? 'read' : 'write', () => client.batch(statements, mode)),
    executeMultiple: (sql) => observe('other', () => client.executeMultiple(sql)),
  });
}
