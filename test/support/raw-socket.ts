/**
 * A TCP connection for raw bytes. `received` is the first part of the response; `exchange` returns everything received
 * until the connection is closed.
 */
export async function connectRaw(port: number) {
  let received = '';
  const first = Promise.withResolvers<string>();
  const closed = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port,
    socket: {
      data: (_, chunk) => {
        received += chunk.toString();
        first.resolve(received);
      },
      close: () => closed.resolve(),
      error: () => closed.resolve(),
    },
  });
  return {
    socket,
    received: first.promise,
    async exchange(request: string): Promise<string> {
      socket.write(request);
      await closed.promise;
      return received;
    },
  };
}
