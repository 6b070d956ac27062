import { join } from 'node:path';
import * as v from 'valibot';
import {
  type Exchanged,
  faultsAgainst,
  operationsAt,
  readDocument,
  type ServiceDocument,
  type Validate,
} from './documented';
import { keptFolder } from './kept';
import { runToEnd } from './run-to-end';

const documentFolder = keptFolder('documented', {
  make: keepDocument,
  alsoOf: ['test/support/{documented,keep-document}.ts'],
});
let document: Promise<ServiceDocument> | undefined;

/** The document that the service of these sources has, kept with its validators, so that a process of tests starts soon. */
export function documentOfSources(): Promise<ServiceDocument> {
  document ??= (async () => {
    const folder = await documentFolder();
    const validators = v.parse(
      v.record(
        v.string(),
        v.custom<Validate>((value) => typeof value === 'function'),
      ),
      { ...(await import(join(folder, 'validators.js'))) },
    );
    return readDocument(await Bun.file(join(folder, 'document.json')).json(), (name) => {
      const validate = validators[name];
      if (validate === undefined) throw new Error(`There is no schema ${name}.`);
      return validate;
    });
  })();
  return document;
}

async function keepDocument(folder: string): Promise<void> {
  const program = join(import.meta.dirname, 'keep-document.ts');
  const child = Bun.spawn([process.execPath, program, folder], { stdout: 'pipe', stderr: 'pipe' });
  const { exitCode, stderr } = await runToEnd(child);
  if (exitCode !== 0) throw new Error(`The document could not be made:\n${stderr}`);
}

/** Those on their way, by what was asked. */
const checks = new Map<Promise<void>, string>();
const faults: string[] = [];
/** Where something else answers at the paths of the service. */
const others = new Set<string>();

/** What answers here is no service of these sources, or it is one that is made to answer wrongly. */
export function isNoService(address: string | URL): void {
  others.add(new URL(address).origin);
}

/** What of an answer was not as documented since this was asked last. */
export async function faultsOfTraffic(patienceMs = 5000): Promise<string[]> {
  if (checks.size > 0) {
    // To make it takes its time, and where that fails each check tells it.
    await documentOfSources().catch(() => undefined);
    const { promise: isOver, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, patienceMs);
    await Promise.race([isOver, finishChecks()]);
    clearTimeout(timer);
    for (const asked of checks.values()) faults.push(`${asked}: the answer, or what was sent, has no end`);
    checks.clear();
  }
  return [...new Set(faults.splice(0))];
}

async function finishChecks(): Promise<void> {
  while (checks.size > 0) await Promise.all(checks.keys());
}

/** A request to a documented path of the service, before it is sent; undefined for any other. */
function noticed(input: string | URL | Request, init?: RequestInit) {
  const url = input instanceof Request ? input.url : String(input);
  if (!/^https?:\/\/(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?\/(?:v2\/private|health)\//.test(url)) return undefined;
  const { origin, pathname } = new URL(url);
  if (others.has(origin)) return undefined;
  const request = input instanceof Request ? input : undefined;
  const body = init?.body ?? undefined;
  return {
    target: pathname,
    method: init?.method ?? request?.method ?? 'GET',
    sentText: typeof body === 'string' ? body : body === undefined && request?.body ? textOf(request) : undefined,
  };
}

/** Undefined for a body that breaks off. */
function textOf(request: Request): Promise<string | undefined> {
  return request
    .clone()
    .text()
    .catch(() => undefined);
}

/** Looks at an answer, and lets nobody wait for it. */
function startCheck(
  { target, sentText, method }: NonNullable<ReturnType<typeof noticed>>,
  readAnswer: () => Promise<Pick<Exchanged, 'status' | 'headers' | 'text'> | undefined>,
): void {
  const check = async () => {
    const answer = await readAnswer();
    if (answer === undefined) return;
    // What was refused may be a body without an end.
    const taken = answer.status === 200 ? await sentText : undefined;
    note(await documentOfSources(), target, { ...answer, method, sentText: taken });
  };
  const asked = `${method} ${target}`;
  const checking = check()
    .catch((error: unknown) => void faults.push(`${asked}: ${error}`))
    .finally(() => checks.delete(checking));
  checks.set(checking, asked);
}

function note(known: ServiceDocument, target: string, exchanged: Exchanged): void {
  const method = exchanged.method === 'HEAD' ? 'GET' : exchanged.method;
  const operation = operationsAt(known, target).find((each) => each.method === method);
  if (operation === undefined) return;
  for (const fault of faultsAgainst(operation, exchanged)) faults.push(`${operation.name}: ${fault}`);
}

type Handle = (request: Request) => Promise<Response>;

/** Of an app of its own process. Its answers are texts, so that to read one here is cheaper than to clone it. */
export function watchedHandle(handle: Handle): Handle {
  return async (request) => {
    const sent = noticed(request);
    const response = await handle(request);
    if (sent === undefined) return response;
    const text = await response.text();
    const { status, headers } = response;
    startCheck(sent, async () => ({ status, headers, text }));
    return new Response(text === '' ? null : text, { status, headers });
  };
}

/** From here on, whatever is fetched from a service on this machine is held against its document. */
export function watchFetch(): void {
  const plainFetch = globalThis.fetch;
  const watchedFetch = async (input: string | URL | Request, init?: RequestInit) => {
    const sent = noticed(input, init);
    const response = await plainFetch(input, init);
    if (sent === undefined) return response;
    const copy = response.clone();
    startCheck(sent, async () => {
      // A body that breaks off is the test’s affair.
      const text = await copy.text().catch(() => undefined);
      return text === undefined ? undefined : { status: copy.status, headers: copy.headers, text };
    });
    return response;
  };
  globalThis.fetch = Object.assign(watchedFetch, { preconnect: plainFetch.preconnect });
}
