import { join } from 'node:path';
import { createSchema, hashesOf, migrationsFolder, readMigrations } from '../src/db/migrations';

/** Writes the schema that the migrations create, which each start compares with its database. */
const migrations = readMigrations();
const schema = { hashes: hashesOf(migrations), objects: createSchema(migrations) };
await Bun.write(join(migrationsFolder, 'meta/_schema.json'), `${JSON.stringify(schema, null, 2)}\n`);
