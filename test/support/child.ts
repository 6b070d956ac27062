/** Programs that tests start in processes of their own. Each loads its modules itself, because tests measure what a start loads. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';

const [name = '', ...args] = process.argv.slice(2);

const programs: Record<string, () => Promise<void>> = {
  /** Starts the service in this process, prints the loaded modules to standard error and exits. */
  'loaded-modules': async () => {
    process.argv.splice(2);
    const { runProcess } = await import('../../src/main');
    await runProcess();
    process.stderr.write(JSON.stringify(Object.keys(require.cache)));
    process.exit(0);
  },

  /** Prints the keys that a start rejects, and a hash of every other value that Bun read from files. */
  'print-settings': async () => {
    const { requireSettingsAsWritten } = await import('../../src/config/env-files');
    const { ConfigError } = await import('../../src/config/settings');
    const { env, execArgv } = process;
    let refused: string[] = [];
    let message = '';
    try {
      requireSettingsAsWritten(env, execArgv);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      refused = error.faults.map(({ key }) => key);
      message = error.message;
    }
    const hashes = Object.entries(env)
      .filter(([key]) => !refused.includes(key))
      .map(([key, value = '']) => [key, createHash('sha256').update(value).digest('hex')]);
    process.stdout.write(JSON.stringify({ refused, message, hashes: Object.fromEntries(hashes) }));
  },

  /**
   * `document-types URL`: prints the types that `openapi-typescript` generates for the document at a URL. It needs the
   * compiler API, which TypeScript 7 does not have, so it gets TypeScript 5.
   */
  'document-types': async () => {
    const exports = await import('typescript-5');
    Bun.plugin({
      name: 'typescript-5',
      setup: (build) => void build.module('typescript', () => ({ exports, loader: 'object' })),
    });
    const { astToString, default: toTypes } = await import('openapi-typescript');
    process.stdout.write(astToString(await toTypes(await (await fetch(args[0] ?? '')).json())));
  },

  /**
   * `document FOLDER`: writes the OpenAPI document and a module with its compiled validators, because compilation takes each
   * test process half a second.
   */
  document: async () => {
    const { default: Ajv2020 } = await import('ajv/dist/2020');
    const { default: standaloneCode } = await import('ajv/dist/standalone');
    const v = await import('valibot');
    const { createTestApp } = await import('./app');
    const { namedSchemas } = await import('./conformance');
    const { cleanUp } = await import('./resources');
    const [folder = ''] = args;
    const { text } = await (await createTestApp()).call('GET', '/swagger/json');
    const ajv = new Ajv2020({
      strict: false,
      validateFormats: false,
      validateSchema: false,
      inlineRefs: false,
      code: { source: true, esm: true },
    });
    const schemas = namedSchemas(JSON.parse(text.replaceAll('"#/components/schemas/', '"'), closed));
    for (const [name, schema] of schemas) ajv.addSchema({ ...schema, $id: name });
    /** Rejects undocumented fields, so that a field that a response schema lacks fails by its name. */
    function closed(_: string, value: unknown): unknown {
      const isObjectSchema = v.is(v.object({ type: v.literal('object'), properties: v.looseObject({}) }), value);
      return isObjectSchema ? { additionalProperties: false, ...Object(value) } : value;
    }

    await Bun.write(join(folder, 'document.json'), text);
    await Bun.write(
      join(folder, 'validators.js'),
      standaloneCode(ajv, Object.fromEntries([...schemas.keys()].map((name) => [name, name]))),
    );
    await cleanUp();
  },

  /** `work URL TASK ARGUMENT`: a task against a database that other processes use. Prints the number of iterations. */
  work: async () => {
    const { sql } = await import('drizzle-orm');
    const { openServiceDatabase, writeBatch } = await import('../../src/db/client');
    const { users } = await import('../../src/db/schema/people');
    const { createUserStore } = await import('../../src/modules/users/store');
    const [url = '', task = '', argument = ''] = args;
    const { DATABASE_ENCRYPTION_KEY: encryptionKey } = process.env;
    const db = await openServiceDatabase({ url, timeoutMs: 10_000, encryptionKey });
    const store = createUserStore(db);
    const save = (section: 'ltcLifetimeCare' | 'lifetimeCare', patch: object) =>
      store.saveSection({ userId: 'shared', section, patch: { ...patch }, requestId: null, now: new Date() });

    const tasks: Record<string, () => Promise<number>> = {
      careCosts: () => times(async (value) => void (await save('ltcLifetimeCare', { careCosts: value }))),
      careSafety: () => times(async (value) => void (await save('lifetimeCare', { careSafety: value }))),
      /** Reads before it writes, which fails in a deferred transaction with a concurrent writer. */
      batch: () =>
        times(async () => {
          await writeBatch(db, [
            db.select().from(users).limit(1),
            db.update(users).set({ version: sql`${users.version} + 1` }),
          ]);
        }),
      /** Saves for eight users in parallel and prints each acknowledged request id, until it is stopped. */
      requests: async () => {
        const saver = async (userId: string) => {
          for (let value = 1; ; value += 1) {
            const requestId = `${userId}-${value}`;
            const patch = { careCosts: value };
            await store.saveSection({ userId, section: 'ltcLifetimeCare', patch, requestId, now: new Date() });
            process.stdout.write(`${requestId}\n`);
            // The pause leaves the machine to the test.
            await Bun.sleep(5);
          }
        };
        await Promise.all(Array.from({ length: 8 }, (_, index) => saver(`${argument}-${index}`)));
        return 0;
      },
    };

    async function times(work: (value: number) => Promise<void>): Promise<number> {
      for (let value = 1; value <= Number(argument); value += 1) await work(value);
      return Number(argument);
    }

    process.stdout.write(`${await tasks[task]?.()}\n`);
    db.$client.close();
  },
};

await programs[name]?.();
