import { connect, type Socket } from 'node:net';

/** A raw request, which may be invalid HTTP. Text is sent as Latin-1, so `\x80` is one byte. */
export interface RawRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: Uint8Array | undefined;
}

export interface RawResponse {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
}

/** The response deadline, generous for a busy machine. */
const deadlineMs = 20_000;

/** Sends requests over a pool of keep-alive connections. */
export function createRawClient(port: number) {
  const idle: RawConnection[] = [];
  return {
    /** Undefined when the connection was closed without a response. */
    async send(request: RawRequest): Promise<RawResponse | undefined> {
      const connection = idle.pop() ?? new RawConnection(port);
      const response = await connection.send(toBytes(request), request.method === 'HEAD');
      if (connection.isOpen) idle.push(connection);
      return response;
    },
    close(): void {
      for (const connection of idle.splice(0)) connection.close();
    },
  };
}

function toBytes({ method, target, headers, body }: RawRequest): Buffer {
  const lines = [`${method} ${target} HTTP/1.1`, ...headers.map(([name, value]) => `${name}: ${value}`)];
  const length = body === undefined ? [] : [`Content-Length: ${body.byteLength}`];
  return Buffer.concat([
    Buffer.from(`${[...lines, ...length].join('\r\n')}\r\n\r\n`, 'latin1'),
    body ?? new Uint8Array(),
  ]);
}

class RawConnection {
  isOpen = true;
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #onChange: () => void = () => undefined;

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#onChange();
    });
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => {
      this.isOpen = false;
      this.#onChange();
    });
  }

  send(bytes: Uint8Array, isHead: boolean): Promise<RawResponse | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<RawResponse | undefined>();
    const timer = setTimeout(() => {
      this.close();
      reject(
        new Error(`No response in ${deadlineMs} ms; received: ${this.#received.toString('latin1').slice(0, 500)}`),
      );
    }, deadlineMs);
    this.#onChange = () => {
      const read = parseResponse(this.#received, isHead);
      if (read === undefined && this.isOpen) return;
      clearTimeout(timer);
      this.#onChange = () => undefined;
      this.#received = this.#received.subarray(read?.end ?? this.#received.length);
      if (read?.response.headers.get('connection')?.toLowerCase() === 'close') this.close();
      resolve(read?.response);
    };
    this.#socket.write(bytes);
    return promise;
  }

  close(): void {
    this.isOpen = false;
    this.#socket.destroy();
  }
}

/** The first response in `bytes` and its end, or undefined while it is incomplete. */
function parseResponse(bytes: Buffer, isHead: boolean): { response: RawResponse; end: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(statusLine)?.[1]);
  const headers = new Map(
    lines.map((line) => [line.replace(/:.*$/s, '').toLowerCase(), line.replace(/^[^:]*: ?/, '')]),
  );
  const start = headEnd + 4;
  const hasBody = !isHead && status !== 204 && status !== 304;
  const length = hasBody ? Number(headers.get('content-length') ?? 0) : 0;
  if (bytes.length < start + length) return undefined;
  return {
    response: { status, headers, text: bytes.subarray(start, start + length).toString('utf8') },
    end: start + length,
  };
}
