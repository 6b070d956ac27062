/** `bun run mutate --help`: makes small changes to the code, one at a time, and lists those that no test notices. */
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Command } from 'commander';
import * as v from 'valibot';
import timings from '../timings.json';
import { type Mutant, mutantsOf } from './changes';

const options = new Command('mutate')
  .description(
    'Makes small changes to the code, one at a time, and lists those that no test notices. Needs an idle machine.',
  )
  .option('--only <paths...>', 'source files or folders', ['src/modules', 'src/db', 'src/auth'])
  .option('--count <number>', 'size of the random sample of changes', Number, 400)
  .option('--seed <text>', 'chooses the sample', '1')
  .option('--tests <number>', 'test files for each change, the nearest first', Number, 10)
  .option('--jobs <number>', 'test runs at a time', Number, 2)
  .addHelpText('after', '\nA second run repeats only the test runs that a change of a source or a test affects.')
  .parse()
  .opts<{ only: string[]; count: number; seed: string; tests: number; jobs: number }>();

const filesOf = (pattern: string) => [...new Bun.Glob(pattern).scanSync()].sort();
const texts = new Map(filesOf('{src,test}/**/*.ts').map((path) => [path, fs.readFileSync(path, 'utf8')]));
const sourceOf = (path: string) => texts.get(path) ?? '';
const hashOf = (...parts: string[]) => Bun.hash(parts.join('\0')).toString(36);

const transpiler = new Bun.Transpiler({ loader: 'ts' });
const importsOf = [...texts].map(([path, text]) => {
  const names = transpiler.scanImports(text).map((each) => join(dirname(path), each.path));
  return { path, imports: new Set(names.flatMap((name) => [name, `${name}.ts`])) };
});
const durations = v.parse(v.record(v.string(), v.number()), timings.files);

/** The test files that import a file: those of its folder, then by the number of imports between, the quick ones first. */
function testsOf(file: string): string[] {
  const distances = new Map([[file, 0]]);
  // The loop includes the entries that it adds.
  for (const [path, distance] of distances) {
    for (const { path: importer, imports } of importsOf) {
      if (imports.has(path) && !distances.has(importer)) distances.set(importer, distance + 1);
    }
  }
  const folder = dirname(file).replace('src/', 'test/');
  const rank = (test: string) =>
    (dirname(test) === folder ? 0 : (distances.get(test) ?? 0)) * 1e6 + (durations[test] ?? 0);
  const tests = [...distances.keys()].filter((path) => /^test\/(?!e2e\/).*\.test\.ts$/.test(path));
  return tests.sort((a, b) => rank(a) - rank(b)).slice(0, options.tests);
}

const temporary = fs.mkdtempSync(join(tmpdir(), 'mutate-'));
const copies = Array.from({ length: options.jobs }, (_, job) => join(temporary, `${job}`));
for (const copy of copies) {
  fs.cpSync('.', copy, { recursive: true, filter: (path) => !/^(node_modules|dist|\.git)$/.test(path) });
  fs.symlinkSync(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'));
}
/** Ignores errors, because a killed test can leave a mounted file system. */
const remove = (path: string) => fs.rm(path, { recursive: true, force: true }, () => undefined);
const cache = 'node_modules/.cache/mutate';
fs.mkdirSync(cache, { recursive: true });
const runsPath = join(cache, 'runs.jsonl');
const runs = fs.existsSync(runsPath) ? Bun.JSONL.parse(fs.readFileSync(runsPath, 'utf8')) : [];
const known = new Map(v.parse(v.array(v.tuple([v.string(), v.boolean()])), runs));

const allSources = hashOf(...[...texts].map(([path, text]) => (path.endsWith('.test.ts') ? '' : text)));

/** Whether a test file passes within a minute, with or without the changed text of a source file. */
async function passes(test: string, copy: string, mutant?: Mutant): Promise<boolean> {
  const key = hashOf(sourceOf(test), ...(mutant === undefined ? [allSources] : [mutant.file, mutant.text]));
  const before = known.get(key);
  if (before !== undefined) return before;
  if (mutant !== undefined) fs.writeFileSync(join(copy, mutant.file), mutant.text);
  const command = [process.execPath, 'test', '--bail', '--timeout', '30000', `./${test}`];
  const env = { ...process.env, TMPDIR: fs.mkdtempSync(`${copy}-`) };
  const child = Bun.spawn(command, { cwd: copy, env, stdio: ['ignore', 'ignore', 'ignore'], detached: true });
  const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), 60_000);
  const hasPassed = (await child.exited) === 0;
  clearTimeout(timer);
  if (mutant !== undefined) fs.writeFileSync(join(copy, mutant.file), sourceOf(mutant.file));
  remove(env.TMPDIR);
  fs.appendFileSync(runsPath, `${JSON.stringify([key, hasPassed])}\n`);
  known.set(key, hasPassed);
  return hasPassed;
}

/** Returns the first test file that fails only with the change. */
async function killerOf(mutant: Mutant, copy: string): Promise<string | undefined> {
  for (const test of testsOf(mutant.file)) {
    if (await passes(test, copy, mutant)) continue;
    if (await passes(test, copy)) return test;
    process.stdout.write(`${test} fails without a change\n`);
  }
  return undefined;
}

const files = options.only.flatMap((path) => (path.endsWith('.ts') ? [path] : filesOf(`${path}/**/*.ts`)));
const mutants = files.flatMap((file) => mutantsOf(file, sourceOf(file)));
const order = new Map(mutants.map((mutant) => [mutant, hashOf(options.seed, mutant.place, mutant.change)]));
const sample = mutants.sort((a, b) => ((order.get(a) ?? '') < (order.get(b) ?? '') ? -1 : 1)).slice(0, options.count);
const survivors: string[] = [];
const waiting = sample.entries();
const work = async (copy: string) => {
  for (const [index, mutant] of waiting) {
    const killer = await killerOf(mutant, copy);
    if (killer === undefined) survivors.push(`${mutant.place}\n${mutant.change}\n`);
    const outcome = killer === undefined ? 'SURVIVED' : `killed by ${killer}`;
    process.stdout.write(`${index + 1}/${sample.length} ${mutant.place} ${outcome}\n`);
  }
};
await Promise.all(copies.map(work)).finally(() => remove(temporary));
const report = join(cache, 'survivors.txt');
const list = survivors.sort().join('\n');
fs.writeFileSync(report, list);
const share = ((100 * survivors.length) / sample.length).toFixed(1);
process.stdout.write(`\n${list}\n${survivors.length} of ${sample.length} survive (${share} %): ${report}\n`);
