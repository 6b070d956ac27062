import * as v from 'valibot';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';

const program = Bun.which('chromium') ?? Bun.which('chromium-browser') ?? Bun.which('google-chrome');

/** Why there is no browser to test with; undefined where there is one. */
export const noChromium = program === null ? 'no Chromium is installed' : undefined;

const Message = v.object({
  id: v.optional(v.number()),
  method: v.optional(v.string()),
  sessionId: v.optional(v.string()),
  params: v.optional(v.record(v.string(), v.unknown())),
  result: v.optional(v.record(v.string(), v.unknown())),
  error: v.optional(v.object({ message: v.string() })),
});
const Evaluated = v.object({ result: v.object({ value: v.optional(v.unknown()) }) });
const Target = v.object({ targetId: v.string() });
const Session = v.object({ sessionId: v.string() });
const Requested = v.object({ request: v.object({ url: v.string() }) });

/** A page in a real browser, and all that went wrong on it. */
export interface BrowserPage {
  /** Addresses that it asked for. */
  readonly requests: readonly string[];
  /** Console errors, exceptions, and violations of the page’s policy. */
  readonly complaints: readonly string[];
  evaluate(expression: string): Promise<unknown>;
  /** Waits until an expression is true. */
  until(expression: string): Promise<void>;
}

let browser: ReturnType<typeof startChromium> | undefined;

/** One for all pages of a file, without a display. */
async function startChromium() {
  const child = Bun.spawn(
    [
      program ?? '',
      '--headless=new',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-dev-shm-usage',
      '--no-first-run',
      '--disable-background-networking',
      '--remote-debugging-port=0',
      `--user-data-dir=${temporaryFolder()}`,
      'about:blank',
    ],
    { stdout: 'ignore', stderr: 'pipe' },
  );
  atEnd(async () => {
    browser = undefined;
    child.kill('SIGKILL');
    await child.exited;
  });
  return connect(await debuggerAddress(child.stderr));
}

/** Opens an address in a page of its own. */
export async function openInChromium(address: string): Promise<BrowserPage> {
  browser ??= startChromium();
  const { call, listeners } = await browser;
  const requests: string[] = [];
  const complaints: string[] = [];
  const { targetId } = v.parse(Target, await call('Target.createTarget', { url: 'about:blank' }));
  const { sessionId } = v.parse(Session, await call('Target.attachToTarget', { targetId, flatten: true }));
  listeners.set(sessionId, (method, params) => {
    if (method === 'Network.requestWillBeSent') requests.push(v.parse(Requested, params).request.url);
    else if (method === 'Runtime.consoleAPICalled' && params.type === 'error')
      complaints.push(JSON.stringify(params.args));
    else if (method === 'Runtime.exceptionThrown') complaints.push(JSON.stringify(params.exceptionDetails));
    else if (method === 'Log.entryAdded') complaints.push(JSON.stringify(params.entry));
    else if (method === 'Audits.issueAdded' && JSON.stringify(params).includes('ContentSecurityPolicyIssue'))
      complaints.push(JSON.stringify(params.issue));
  });
  for (const domain of ['Page', 'Network', 'Runtime', 'Log', 'Audits']) await call(`${domain}.enable`, {}, sessionId);
  await call('Page.navigate', { url: address }, sessionId);
  const evaluate = async (expression: string) => {
    const answer = await call('Runtime.evaluate', { expression, returnByValue: true }, sessionId);
    return v.parse(Evaluated, answer).result.value;
  };
  return {
    requests,
    complaints,
    evaluate,
    async until(expression) {
      while ((await evaluate(expression)) !== true) await Bun.sleep(100);
    },
  };
}

async function debuggerAddress(errors: ReadableStream<Uint8Array>): Promise<string> {
  let text = '';
  for await (const chunk of errors) {
    text += Buffer.from(chunk).toString();
    const address = /DevTools listening on (ws:\/\/\S+)/.exec(text)?.[1];
    if (address !== undefined) return address;
  }
  throw new Error(`Chromium did not start:\n${text}`);
}

/** A connection that speaks the browser's debugging protocol. */
async function connect(address: string) {
  const socket = new WebSocket(address);
  const waiting = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  let lastId = 0;
  const connection = {
    /** By the session of their page. */
    listeners: new Map<string, (method: string, params: Record<string, unknown>) => void>(),
    call(method: string, params: object, sessionId?: string): Promise<Record<string, unknown>> {
      lastId += 1;
      const answer = Promise.withResolvers<Record<string, unknown>>();
      waiting.set(lastId, answer);
      socket.send(JSON.stringify({ id: lastId, method, params, ...(sessionId === undefined ? {} : { sessionId }) }));
      return answer.promise;
    },
  };
  socket.addEventListener('message', ({ data }) => {
    const {
      id,
      method = '',
      sessionId = '',
      params = {},
      result = {},
      error,
    } = v.parse(Message, JSON.parse(String(data)));
    if (id === undefined) return connection.listeners.get(sessionId)?.(method, params);
    if (error === undefined) waiting.get(id)?.resolve(result);
    else waiting.get(id)?.reject(new Error(error.message));
    waiting.delete(id);
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve);
    socket.addEventListener('error', reject);
  });
  return connection;
}
