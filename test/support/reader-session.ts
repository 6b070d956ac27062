import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { programOf } from './artifacts';
import type { Shown } from './pages';
import { atEnd, type EndedProcess, freePort, runToEnd, temporaryFolder } from './resources';

export interface RunStep extends Shown {
  readonly stdout: string;
  /** The status of each response that `curl` received. */
  readonly statuses: readonly number[];
}

/**
 * Runs the commands of a page in one shell and one empty folder. Variables and a started service last until the end.
 */
export async function runAsReader(steps: readonly Shown[]): Promise<EndedProcess & { steps: RunStep[] }> {
  const [cwd, outputs] = [temporaryFolder(), temporaryFolder()];
  mkdirSync(outputs, { recursive: true });
  const ports = new Map([
    ['3000', String(await freePort())],
    ['3900', String(await freePort())],
  ]);
  const outputOf = (index: number, name: string) => join(outputs, `${index}.${name}`);
  const script = steps.map(({ text }, index) => {
    const local = [...ports].reduce(
      (all, [shown, port]) => all.replaceAll(new RegExp(`\\b${shown}\\b`, 'g'), port),
      text,
    );
    return `{\n${local}\n} > '${outputOf(index, 'stdout')}' 2> '${outputOf(index, 'stderr')}'`;
  });
  const environment = {
    PATH: process.env.PATH,
    // The bundle stands in for the sources.
    NODE_ENV: 'development',
    PORT: ports.get('3000'),
    BUN: process.execPath,
    SERVICE: await programOf('src/main'),
    COMMAND_LINE: await programOf('src/cli/main'),
    FIXED_DAY: join(import.meta.dirname, 'fixed-day.ts'),
    OUTPUTS: outputs,
  };
  const shell = Bun.spawn(['sh', '-eu', '-c', [prelude, ...script].join('\n')], {
    cwd,
    env: environment,
    stdout: 'pipe',
    stderr: 'pipe',
  });
  atEnd(() => shell.kill());
  const ended = await runToEnd(shell);
  const read = async (index: number, name: string) => {
    const file = Bun.file(outputOf(index, name));
    const text = (await file.exists()) ? await file.text() : '';
    return [...ports].reduce((all, [shown, port]) => all.replaceAll(`:${port}`, `:${shown}`), text);
  };
  const run = steps.map(async (step, index) => {
    const errors = await read(index, 'stderr');
    const statuses = [...errors.matchAll(/^curl: status (\d+)$/gm)].map(([, status]) => Number(status));
    return { ...step, stdout: await read(index, 'stdout'), statuses };
  });
  const errors = await Promise.all(steps.map((_, index) => read(index, 'stderr')));
  return { ...ended, stderr: `${errors.join('')}${ended.stderr}`, steps: await Promise.all(run) };
}

/** Runs the programs of the bundle in place of `bun`, with the service on a fixed day. */
const prelude = `
service= carrier=
trap 'kill $service $carrier 2> /dev/null || true' EXIT
trap 'exit 1' TERM
listening() {
  tries=0
  until grep -q http:// "$1"; do
    tries=$((tries + 1))
    if test $tries -gt 1000; then echo "It does not listen: $(cat "$1")" >&2; exit 1; fi
    sleep 0.02
  done
  cat "$1"
}
stop_service() {
  kill $service
  wait $service
  service=
}
bun() {
  case "$*" in
    start*)
      shift
      test -z "$service" || stop_service
      : > "$OUTPUTS/service"
      "$BUN" --preload "$FIXED_DAY" "$SERVICE" "$@" >> "$OUTPUTS/service" 2>&1 &
      service=$!
      listening "$OUTPUTS/service"
      ;;
    'planning carrier'*)
      shift
      : > "$OUTPUTS/carrier"
      "$BUN" "$COMMAND_LINE" "$@" >> "$OUTPUTS/carrier" &
      carrier=$!
      listening "$OUTPUTS/carrier"
      ;;
    planning*)
      shift
      "$BUN" "$COMMAND_LINE" "$@"
      ;;
    *) echo "Nothing runs: bun $*" >&2; return 1 ;;
  esac
}
npm() { echo "Nothing runs: npm $*" >&2; return 1; }
curl() { command curl -sS -w '%{stderr}curl: status %{http_code}\\n' "$@"; }
`;
