import { join } from 'node:path';
import * as v from 'valibot';
import { cachedFolder } from './cached-folder';
import {
  type Exchange,
  mismatchesWith,
  operationsAt,
  readDocument,
  type ServiceDocument,
  type Validate,
} from './documented';
import { runToEnd } from './run-to-end';

const documentFolder = cachedFolder('documented', {
  make: buildDocument,
  alsoOf: ['test/support/{documented,build-document}.ts'],
});
let document: Promise<ServiceDocument> | undefined;

/** The OpenAPI document of the sources with compiled validators, cached across test processes. */
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

async function buildDocument(folder: string): Promise<void> {
  const program = join(import.meta.dirname, 'build-document.ts');
  const child = Bun.spawn([process.execPath, program, folder], { stdout: 'pipe', stderr: 'pipe' });
  const { exitCode, stderr } = await runToEnd(child);
  if (exitCode !== 0) throw new Error(`The document could not be built:\n${stderr}`);
}

/** Pending checks and their requests. */
const checks = new Map<Promise<void>, string>();
const mismatches: string[] = [];
/** Origins of other servers, which are not checked. */
const others = new Set<string>();

/** Excludes an address from the check: another server, or one that responds wrongly on purpose. */
export function excludeFromChecks(address: string | URL): void {
  others.add(new URL(address).origin);
}

/** The differences from the document since the last call. */
export async function trafficMismatches(timeoutMs = 5000): Promise<string[]> {
  if (checks.size > 0) {
    // The build is slow; if it fails, each check reports it.
    await documentOfSources().catch(() => undefined);
    const { promise: isOver, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, timeoutMs);
    await Promise.race([isOver, finishChecks()]);
    clearTimeout(timer);
    for (const request of checks.values()) mismatches.push(`${request}: the response or the request body never ends`);
    checks.clear();
  }
  return [...new Set(mismatches.splice(0))];
}

async function finishChecks(): Promise<void> {
  while (checks.size > 0) await Promise.all(checks.keys());
}

/** The request data to check, or undefined for a path outside the document. */
function observedRequest(input: string | URL | Request, init?: RequestInit) {
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

/** Undefined for an aborted body. */
function textOf(request: Request): Promise<string | undefined> {
  return request
    .clone()
    .text()
    .catch(() => undefined);
}

/** Checks a response in the background. */
function startCheck(
  { target, sentText, method }: NonNullable<ReturnType<typeof observedRequest>>,
  readResponse: () => Promise<Pick<Exchange, 'status' | 'headers' | 'text'> | undefined>,
): void {
  const check = async () => {
    const response = await readResponse();
    if (response === undefined) return;
    // The body of a rejected request may never end.
    const acceptedText = response.status === 200 ? await sentText : undefined;
    compare(await documentOfSources(), target, { ...response, method, sentText: acceptedText });
  };
  const request = `${method} ${target}`;
  const checking = check()
    .catch((error: unknown) => void mismatches.push(`${request}: ${error}`))
    .finally(() => checks.delete(checking));
  checks.set(checking, request);
}

function compare(known: ServiceDocument, target: string, exchange: Exchange): void {
  const method = exchange.method === 'HEAD' ? 'GET' : exchange.method;
  const operation = operationsAt(known, target).find((each) => each.method === method);
  if (operation === undefined) return;
  for (const mismatch of mismatchesWith(operation, exchange)) mismatches.push(`${operation.name}: ${mismatch}`);
}

type Handle = (request: Request) => Promise<Response>;

/** Checks an app in this process. Its responses are texts, so reading one is cheaper than a clone. */
export function watchedHandle(handle: Handle): Handle {
  return async (request) => {
    const sent = observedRequest(request);
    const response = await handle(request);
    if (sent === undefined) return response;
    const text = await response.text();
    const { status, headers } = response;
    startCheck(sent, async () => ({ status, headers, text }));
    return new Response(text === '' ? null : text, { status, headers });
  };
}

/** Checks every response that `fetch` receives from a service on this machine. */
export function watchFetch(): void {
  const plainFetch = globalThis.fetch;
  const watchedFetch = async (input: string | URL | Request, init?: RequestInit) => {
    const sent = observedRequest(input, init);
    const response = await plainFetch(input, init);
    if (sent === undefined) return response;
    const copy = response.clone();
    startCheck(sent, async () => {
      // An aborted body is not an error here.
      const text = await copy.text().catch(() => undefined);
      return text === undefined ? undefined : { status: copy.status, headers: copy.headers, text };
    });
    return response;
  };
  globalThis.fetch = Object.assign(watchedFetch, { preconnect: plainFetch.preconnect });
}
