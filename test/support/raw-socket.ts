/** A connection on which a test says exactly what it wants; `exchange` gives all that comes back until it is closed. */
export async function connectRaw(port: number) {
  let received = '';
  const closed = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port,
    socket: {
      data: (_, chunk) => {
        received += chunk.toString();
      },
      close: () => closed.resolve(),
      error: () => closed.resolve(),
    },
  });
  return {
    socket,
    async exchange(request: string): Promise<string> {
      socket.write(request);
      await closed.promise;
      return received;
    },
  };
}
