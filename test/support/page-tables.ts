import { join } from 'node:path';
import type { Command } from 'commander';
import * as v from 'valibot';
import { partsOf, settingsFor } from '../../src/cli/context';
import { createProgram } from '../../src/cli/main';
import { Settings } from '../../src/config/settings';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp } from './app';

const root = join(import.meta.dirname, '../..');
export const pagePaths = ['README.md', ...new Bun.Glob('docs/**/*.md').scanSync(root)].sort();

/** The tables of the pages that are generated, each by the name in its comment: `<!-- table: settings -->`. */
const tables: Readonly<Record<string, () => string[] | Promise<string[]>>> = {
  endpoints: endpointTable,
  problems: problemTable,
  settings: settingTable,
  commands: commandTable,
};

/** Returns the page with each generated table as its source defines it now. */
export async function withTables(page: string): Promise<string> {
  let written = page;
  for (const [name, rows] of Object.entries(tables)) {
    const [start, end] = [`<!-- table: ${name} -->\n`, '<!-- end -->'];
    const begin = written.indexOf(start);
    if (begin < 0) continue;
    const content = `\n${(await rows()).join('\n')}\n\n`;
    written = written.slice(0, begin + start.length) + content + written.slice(written.indexOf(end, begin));
  }
  return written;
}

const Operation = v.object({ operationId: v.string(), summary: v.string() });
const OpenApi = v.object({ paths: v.record(v.string(), v.record(v.string(), Operation)) });

async function endpointTable(): Promise<string[]> {
  const { call } = await createTestApp();
  const { paths } = v.parse(OpenApi, (await call('GET', '/swagger/json')).body);
  const rows = Object.entries(paths)
    .filter(([path]) => path.startsWith('/v2/'))
    .flatMap(([path, operations]) =>
      Object.entries(operations).map(
        ([method, { operationId, summary }]) =>
          `| \`${method.toUpperCase()} ${path}\` | ${summary} | \`${operationId}\` |`,
      ),
    );
  return ['| endpoint | does | method of the client |', '| --- | --- | --- |', ...rows];
}

function problemTable(): string[] {
  const rows = Object.entries(problemKinds)
    .map(([slug, { code, status, title }]) => ({ code, text: `| ${code} | ${status} | \`${slug}\` | ${title} |` }))
    .toSorted((one, other) => one.code - other.code);
  return ['| code | status | type | title |', '| --- | --- | --- | --- |', ...rows.map(({ text }) => text)];
}

function settingTable(): string[] {
  const rows = Object.entries(Settings.entries)
    .filter(([key]) => !key.endsWith('_FILE'))
    .map(([key, schema]) => {
      const fallback = schema.default === undefined ? '–' : `\`${schema.default}\``;
      return `| \`${key}\` | ${fallback} | ${v.getDescription(schema.wrapped)} |`;
    });
  return ['| setting | default | meaning |', '| --- | --- | --- |', ...rows];
}

const isCommandWithSettings = (name: string): name is keyof typeof partsOf => name in partsOf;
const databaseSettings = settingsFor('backup');

function commandTable(): string[] {
  const rows = commandsOf(createProgram()).map(({ command, name }) => {
    const used = isCommandWithSettings(name) ? settingsFor(name) : undefined;
    const others = used?.filter((key) => !databaseSettings.includes(key)).map((key) => `\`${key}\``) ?? [];
    const database = used !== undefined && others.length < used.length ? ['database'] : [];
    const settings = used === undefined ? (name === 'doctor' ? 'all' : 'none') : [...database, ...others].join(', ');
    return `| \`planning ${name}\` | ${command.description()} | ${settings} |`;
  });
  return ['| command | does | settings |', '| --- | --- | --- |', ...rows];
}

/** Lists the commands that do something themselves; `audit` does and has a subcommand. */
function commandsOf(parent: Command, path: readonly string[] = []): { command: Command; name: string }[] {
  return parent.commands.flatMap((command) => {
    const name = [...path, command.name()];
    const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
    return [...(isGroup ? [] : [{ command, name: name.join(' ') }]), ...commandsOf(command, name)];
  });
}
