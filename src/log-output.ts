import { write } from 'node:fs';

/** What waits for a reader who stalls or a disk that is full; what exceeds it is dropped. */
const maxWaitingCharacters = 16 * 1024 * 1024;
const retryMs = 100;

export interface LogOutput {
  write(line: string): void;
  /** Ends when all that was written is out, or after `patienceMs`. */
  flush(patienceMs: number): Promise<void>;
}

/**
 * Writes lines to a file descriptor off the thread that serves requests, those of one turn of the event loop together.
 * It never stands still, unlike pino's own destination, which waits on the thread for a full disk at exits and fatal
 * lines: what cannot be written is tried again for as long as there is room for it.
 */
export function openLogOutput(descriptor: number): LogOutput {
  let waiting = '';
  let unwritten: Uint8Array = new Uint8Array();
  let isBusy = false;
  let onIdle: () => void = () => undefined;

  const writeOut = () => {
    if (unwritten.byteLength === 0) {
      if (waiting === '') {
        isBusy = false;
        onIdle();
        return;
      }
      unwritten = Buffer.from(waiting);
      waiting = '';
    }
    write(descriptor, unwritten, (error, written) => {
      if (error === null) {
        unwritten = unwritten.subarray(written);
        writeOut();
      } else if (error.code === 'EPIPE' || error.code === 'EBADF') {
        // Nobody will ever read it.
        unwritten = new Uint8Array();
        waiting = '';
        writeOut();
      } else {
        setTimeout(writeOut, retryMs).unref();
      }
    });
  };

  return {
    write(line) {
      if (waiting.length + unwritten.byteLength + line.length > maxWaitingCharacters) return;
      waiting += line;
      if (isBusy) return;
      isBusy = true;
      setImmediate(writeOut);
    },
    flush(patienceMs) {
      if (!isBusy) return Promise.resolve();
      const idle = new Promise<void>((resolve) => {
        onIdle = resolve;
      });
      return Promise.race([idle, Bun.sleep(patienceMs)]);
    },
  };
}
