import { describe, expect, test } from 'bun:test';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Glob } from 'bun';
import packageJson from '../../package.json';
import { operations } from '../../src/client/api';
import { testSecret, testToken } from '../support/app';
import { startService } from '../support/processes';
import { runProgram as run, temporaryFolder } from '../support/resources';
import { createFrontend } from './frontend';

const root = join(import.meta.dirname, '../..');
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const pages = await Promise.all(['README.md', 'docs/frontend.md'].map((path) => Bun.file(join(root, path)).text()));

/** Compiles test files with the strict options of the service; `types` maps import names to files. */
async function compileWith(types: Readonly<Record<string, string>>, files: readonly string[]) {
  const paths = Object.fromEntries(Object.entries(types).map(([name, path]) => [name, [path]]));
  const config = { extends: join(root, 'tsconfig.json'), compilerOptions: { paths, types: [] }, files, exclude: [] };
  const project = join(temporaryFolder(), 'tsconfig.json');
  await Bun.write(project, JSON.stringify({ ...config, include: [] }));
  await run(root, [process.execPath, tsc, '-p', project]);
}

const frontend = await createFrontend();
const installed = join(frontend, 'node_modules', packageJson.name);
const service = await startService({ environment: { AUTH_SECRET: testSecret, CARRIER_BREAKER_FAILURES: '1000' } });

describe('client package', () => {
  test('installs without other packages and contains no code or path of the service', async () => {
    expect([...new Glob('*').scanSync({ cwd: join(frontend, 'node_modules'), onlyFiles: false })]).toEqual([
      packageJson.name,
    ]);
    const files = [...new Glob('**').scanSync(installed)];
    expect(files.filter((path) => !path.endsWith('.d.ts')).sort()).toEqual(
      ['client.js', 'package.json', 'commonjs/client.js', 'commonjs/package.json'].sort(),
    );
    for (const file of files) {
      const text = await Bun.file(join(installed, file)).text();
      expect(text).not.toContain(root);
      // Bun adds a comment with the path of each module, relative to the build folder.
      expect(text.match(/^\/\/ (?!src\/).*/gm)).toBeNull();
      expect(text.match(/from ['"](?!\.\/)[^'"]+/g)).toBeNull();
      expect(text).not.toMatch(/elysia|valibot|drizzle|libsql|\bBun\b|node:/i);
    }
  });

  test('has the size that docs/frontend.md states', async () => {
    const { outputs } = await Bun.build({ entrypoints: [join(installed, 'client.js')], minify: true });
    expect(Bun.gzipSync((await outputs[0]?.text()) ?? '').byteLength).toBeLessThan(4750);
    expect(pages.join()).toContain('is 4.5 kB minified and gzipped');
  });

  test('has inlined types and a comment for every operation, without any or unknown', async () => {
    const api = await Bun.file(join(installed, 'client/api.d.ts')).text();
    expect(api).toContain('"assistedLiving" | "inHome"');
    expect(api).toMatch(/readonly 'carrier-declined': \{\s+readonly code: 313;/);
    expect(api).not.toMatch(/\b(any|unknown|never|import)\b(?!")/);
    for (const name of Object.keys(operations)) expect(api).toMatch(new RegExp(`/\\*\\* .+ \\*/\\n    ${name}: {`));
  });
});

const examples = [...pages.join('\n').matchAll(/```ts\n([\s\S]*?)```/g)].map(([, block = '']) => block).join('\n');
const exampleFor = (token: string) =>
  examples.replace('http://127.0.0.1:3000', service.address).replace('TOKEN', token);
const tokenOf = (id: string) => testToken({ id, now: new Date() });

describe('client in a frontend', () => {
  const resolutions = [
    { module: 'preserve', moduleResolution: 'bundler' },
    { module: 'nodenext', moduleResolution: 'nodenext' },
  ];
  const strict = { target: 'es2023', strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, types: [] };
  const compile = async (name: string, text: string, options: object) => {
    await Bun.write(join(frontend, `${name}.ts`), text);
    const config = { compilerOptions: { ...strict, lib: ['es2023', 'dom'], ...options }, files: [`${name}.ts`] };
    await Bun.write(join(frontend, `${name}.json`), JSON.stringify(config));
    return run(frontend, [process.execPath, tsc, '-p', `${name}.json`]).then(
      () => '',
      (error: Error) => error.message,
    );
  };

  test.each(resolutions)(
    'compiles the code of README and docs/frontend.md in strict mode with $moduleResolution',
    async (options) => {
      expect(await compile('readme', exampleFor('TOKEN'), { ...options, noEmit: true })).toBe('');
      expect(examples).toContain('createClient(');
    },
  );

  test.each(resolutions)('rejects invalid calls at compile time with $moduleResolution', async (options) => {
    const text = `
      import { type ClientError, createClient } from '${packageJson.name}/client';
      const client = createClient({ baseUrl: 'http://127.0.0.1', token: '' });
      void client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
      void client.startLtcApplication({ firstName: 'Ada' });
      export function unhandled(error: ClientError): string {
        switch (error.slug) { case 'invalid-input': return error.detail; }
      }
    `;
    const refusal = await compile('refused', text, { ...options, noEmit: true });
    const lines = [...refusal.matchAll(/refused\.ts\((\d+),\d+\): error/g)].map(([, line]) => Number(line));
    expect(lines).toEqual([4, 5, 6]);
  });

  test('works from a CommonJS file with the same types', async () => {
    const text = `
      import { createClient, type Result, type User } from '${packageJson.name}/client';
      const client = createClient({ baseUrl: '${service.address}', token: '${await tokenOf('commonjs')}' });
      // @ts-expect-error: a wrong value of an enum
      client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
      const saved: Promise<Result<{ readonly user: User }>> = client.saveProfile({ firstName: 'Ada' });
      void saved.then(({ data }) => process.stdout.write(String(data?.user.profile?.firstName)));
      declare const process: { readonly stdout: { write(text: string): void } };
    `;
    await Bun.write(join(frontend, 'old.cts'), text);
    const options = ['--ignoreConfig', '--strict', '--target', 'es2020', '--module', 'nodenext', '--outDir', 'out'];
    await run(frontend, [process.execPath, tsc, ...options, 'old.cts']);
    const node = Bun.which('node');
    if (node !== null) expect(await run(frontend, [node, 'out/old.cjs'])).toBe('Ada');
  });

  test('resolves to the built client when the service is a workspace of the frontend', async () => {
    const workspace = temporaryFolder();
    const linked = join(workspace, 'node_modules', packageJson.name);
    await Bun.write(join(linked, 'package.json'), JSON.stringify(packageJson));
    await mkdir(join(linked, 'dist'));
    await symlink(installed, join(linked, 'dist/client'));
    const imported = `import { createClient } from '${packageJson.name}/client';`;
    await Bun.write(join(workspace, 'main.ts'), `${imported} process.stdout.write(typeof createClient);`);
    expect(await run(workspace, [process.execPath, 'main.ts'])).toBe('function');
    const options = ['--ignoreConfig', '--noEmit', '--strict', '--module', 'nodenext', 'main.ts'];
    await Bun.write(join(workspace, 'main.ts'), `${imported}\n// @ts-expect-error: no token\ncreateClient({});`);
    await run(workspace, [process.execPath, tsc, ...options]);
  });

  const expectedOutput = [/^Ada$/, /^\S.+$/, /^true$/, /^undefined$/];
  const isAsExpected = (output: string) => {
    const lines = output.trim().split('\n');
    expect(lines.length).toBe(expectedOutput.length);
    for (const [index, line] of lines.entries()) expect(line).toMatch(expectedOutput[index] ?? /^$/);
  };

  test('runs the code of README and docs/frontend.md in Bun and Node.js', async () => {
    await Bun.write(join(frontend, 'in-bun.ts'), exampleFor(await tokenOf('readme-in-bun')));
    isAsExpected(await run(frontend, [process.execPath, 'in-bun.ts']));
    const node = Bun.which('node');
    if (node === null) return;
    const options = { ...resolutions[1], outDir: 'out' };
    expect(await compile('in-node', exampleFor(await tokenOf('readme-in-node')), options)).toBe('');
    isAsExpected(await run(frontend, [node, 'out/in-node.js']));
  });
});

describe('types of openapi-typescript', () => {
  const [agreements, program] = [
    join(root, 'test/client/generated/types.test-d.ts'),
    join(root, 'test/client/generated/walk.ts'),
  ] as const;

  test('compile in strict mode, reject invalid requests and equal the types of the client', async () => {
    const generate = [process.execPath, join(root, 'test/client/generate-types.ts'), `${service.address}/swagger/json`];
    const generated = join(temporaryFolder(), 'types.ts');
    await Bun.write(generated, await run(root, generate));
    const ofClient = join(installed, 'client/api.d.ts');
    await compileWith({ 'types-of-document': generated, 'api-of-client': ofClient }, [agreements, program]);
  });

  test('support a journey from a profile to an application', async () => {
    const load = (path: string) => import(path);
    expect(await (await load(program)).walk(service.address, await tokenOf('walking'))).toEqual({
      firstName: 'Ada',
      relationshipStatus: ['married'],
      isMatched: true,
      terms: 1,
      glance: 220,
      invalidField: '/careCosts',
    });
  });
});
