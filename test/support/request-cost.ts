import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';

/** CPU time of all threads of a process in microseconds; Linux only. */
export function processorMicros(pid: number): number {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).reduce((sum, thread) => {
    const [nanoseconds] = readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ');
    return sum + Number(nanoseconds) / 1000;
  }, 0);
}

/** Sends a request on a new connection, closes it after the response and returns the status. */
export function statusOf(port: number, bytes: Buffer): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const isHead = bytes.subarray(0, 5).toString() === 'HEAD ';
  let head = '';
  let missing = Number.POSITIVE_INFINITY;
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.on('data', (chunk) => {
    if (missing === Number.POSITIVE_INFINITY) {
      head += chunk.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end === -1) return;
      const length = isHead ? 0 : Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0);
      missing = end + 4 + length - head.length;
    } else missing -= chunk.length;
    if (missing <= 0) socket.destroy();
  });
  socket.on('error', () => undefined);
  socket.on('close', () => resolve(Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1])));
  socket.write(bytes);
  return promise;
}

/** The minimum CPU time of a request over `rounds` measurements, because other load only adds to it. */
export async function costMicros(
  { pid, port }: { readonly pid: number; readonly port: number },
  bytes: Buffer,
  { rounds, requests }: { readonly rounds: number; readonly requests: number },
): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  await statusOf(port, bytes);
  for (let round = 0; round < rounds; round += 1) {
    const before = processorMicros(pid);
    for (let sent = 0; sent < requests; sent += 1) await statusOf(port, bytes);
    least = Math.min(least, (processorMicros(pid) - before) / requests);
  }
  return least;
}
