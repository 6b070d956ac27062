import { atEnd } from './resources';

type Echo = (body: string) => string;

const http = (status: string, body: string, headers = '') =>
  `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nConnection: close\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

/** Raw responses that repeat the personal data of the request in different places. */
const echoes: readonly Echo[] = [
  (body) => http('500 Failed', `{"error":${body}}`),
  (body) => http(`500 ${body.slice(0, 2000)}`, '{}'),
  (body) => http('400 Bad', body, `X-Echo: ${body}\r\nSet-Cookie: ${body}\r\n`),
  (body) => http('201 Created', `{"applicationNumber":${body}`),
  (body) => http('201 Created', JSON.stringify({ applicationNumber: body, pricing: [] })),
  (body) => http('422 Refused', JSON.stringify({ decision: body })),
  (body) => http('302 Found', '', `Location: http://127.0.0.1:1/${encodeURIComponent(body)}\r\n`),
  (body) => body,
  (body) => `HTTP/1.1 200 OK\r\n${body}: 1\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
  (body) => http('201 Created', body).slice(0, -20),
];
export const echoCount = echoes.length;

/** A carrier that cycles through these responses. */
export function startEchoCarrier(): string {
  let calls = 0;
  const server = Bun.listen<{ received: string }>({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      open(socket) {
        socket.data = { received: '' };
      },
      data(socket, chunk) {
        socket.data.received += chunk.toString();
        const [head = '', body = ''] = socket.data.received.split('\r\n\r\n');
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (Buffer.byteLength(body) < length) return;
        const echo = echoes[calls % echoes.length];
        calls += 1;
        socket.end(echo?.(body || head.replaceAll('\r\n', ' ')) ?? '');
      },
    },
  });
  atEnd(() => server.stop(true));
  return `http://127.0.0.1:${server.port}`;
}
