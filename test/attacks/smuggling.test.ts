import { beforeAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { createTestApp, testToken } from '../support/app';
import { atEnd } from '../support/resources';

/**
 * A proxy and the service must agree on where a request ends. Otherwise the body of one client runs as a request of
 * another. Each shape hides a complete request in such a place.
 */
const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
atEnd(() => testApp.app.stop(true));
const port = testApp.app.server?.port ?? 0;
const token = await testToken({ id: 'victim', now: testApp.now });

const hiddenId = 'smuggled-request';
const hidden = `GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ${hiddenId}\r\n\r\n`;
const head = [
  'POST /v2/private/user/profile HTTP/1.1',
  'Host: localhost',
  `Authorization: Bearer ${token}`,
  'Content-Type: application/json',
  '',
].join('\r\n');
const chunks = '2\r\n{}\r\n0\r\n\r\n';
const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`;
const lastChunk = `0\r\n\r\n${hidden}`;

/** Returns the bytes received until the connection closes, or for one second. */
function exchange(bytes: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let received = '';
  const socket = connect(port, '127.0.0.1');
  const end = () => {
    socket.destroy();
    resolve(received);
  };
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  socket.on('close', end);
  socket.on('error', () => undefined);
  socket.write(Buffer.from(bytes, 'latin1'));
  setTimeout(end, 1_000);
  return promise;
}

const lengths = (...values: string[]) =>
  `${head}${values.map((value) => `Content-Length: ${value}\r\n`).join('')}\r\n{}${hidden}`;
const encodings = (...values: string[]) =>
  `${head}${values.map((value) => `Transfer-Encoding: ${value}\r\n`).join('')}\r\n${chunks}${hidden}`;
const sizes = (size: string, end = '\r\n') => `${chunked}${size}${end}{}${end}0${end}${end}${hidden}`;

const shapes: Record<string, string> = {
  'a length and chunks': `${head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}${hidden}`,
  'chunks and a length': `${head}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n${chunks}${hidden}`,
  'a length over the chunks and what follows': `${head}Content-Length: ${lastChunk.length}\r\nTransfer-Encoding: chunked\r\n\r\n${lastChunk}`,
  'two lengths, the shorter first': lengths('2', String(2 + hidden.length)),
  'two lengths, the longer first': lengths(String(2 + hidden.length), '2'),
  'a list of one length': lengths('2, 2'),
  'a list of lengths': lengths(`2, ${2 + hidden.length}`),
  'a length with a plus': lengths('+2'),
  'a length below zero': lengths('-2'),
  'a length in hexadecimal': lengths('0x2'),
  'a length with a space in it': lengths('2 0'),
  'a length with a fraction': lengths('2.0'),
  'a length with an exponent': lengths('2e0'),
  'a length with a vertical tab': lengths('\x0b2'),
  'an empty length': `${head}Content-Length: \r\n\r\n${hidden}`,
  'a length of 2^64 and 2': lengths('18446744073709551618'),
  'a length of 2^32 and 2': lengths('4294967298'),
  'a space before the colon of a length': `${head}Content-Length : 2\r\n\r\n{}${hidden}`,
  'a tab before the colon of a length': `${head}Content-Length\t: 2\r\n\r\n{}${hidden}`,
  'a space before the colon of an encoding': `${head}Transfer-Encoding : chunked\r\nContent-Length: ${lastChunk.length}\r\n\r\n${lastChunk}`,
  'an encoding of identity': `${head}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'chunks, then identity': encodings('chunked, identity'),
  'identity, then chunks': encodings('identity, chunked'),
  'gzip, then chunks': encodings('gzip, chunked'),
  'an encoding that only ends like chunks': encodings('xchunked'),
  'chunks in quotes': encodings('"chunked"'),
  'chunks with a parameter': encodings('chunked;q=1'),
  'a vertical tab before chunks': encodings('\x0bchunked'),
  'NUL after chunks': encodings('chunked\0'),
  'chunks twice': encodings('chunked', 'chunked'),
  'chunks and identity in two headers': encodings('chunked', 'identity'),
  'identity and chunks in two headers': encodings('identity', 'chunked'),
  'an empty encoding': `${head}Transfer-Encoding:\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'chunks in HTTP/1.0': encodings('chunked').replace('HTTP/1.1', 'HTTP/1.0'),
  'a length on a folded line': `${head}X-A: b\r\n Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'chunks on a folded line': `${head}Transfer-Encoding:\r\n chunked\r\n\r\n${chunks}${hidden}`,
  'lines that end in a lone LF': `${head}Content-Length: 2\r\n\r\n{}${hidden}`.replaceAll('\r\n', '\n'),
  'a length after a lone LF': `${head}X-A: b\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a length after a lone CR': `${head}X-A: b\rContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'chunks after a lone LF': `${head}X-A: b\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n${lastChunk}`,
  'NUL in a header': `${head}X-A: b\0c\r\nContent-Length: 2\r\n\r\n{}${hidden}`,
  'a chunk’s extension that ends in LF': `${chunked}2;a\n{}\r\n0\r\n\r\n${hidden}`,
  'a chunk’s extension of 20 KB': `${chunked}2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n${hidden}`,
  'chunks that end in LF': sizes('2', '\n'),
  'a chunk that is longer than it says': `${chunked}2\r\n{}XX0\r\n\r\n${hidden}`,
  'a chunk’s size with a plus': sizes('+2'),
  'a chunk’s size with 0x': sizes('0x2'),
  'a chunk’s size with a space after it': sizes('2 '),
  'a chunk’s size with a space before it': sizes(' 2'),
  'a chunk’s size of 2^64 and 2': sizes('10000000000000002'),
  'a chunk’s size of 2^32 and 2': sizes('100000002'),
  'a chunk’s size of 2^60': sizes('fffffffffffffff'),
  'a chunk’s size below zero': sizes('-2'),
  'an empty chunk size': sizes(''),
  'a trailer with a length': `${chunked}2\r\n{}\r\n0\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body of a GET': `GET /v2/private/healthAndCare/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body in chunks of a GET': `GET /health/ready HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
  'a body of a HEAD': `HEAD /health/ready HTTP/1.1\r\nHost: x\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body of an OPTIONS *': `OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body that no path takes': `POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body without a valid token': `${head.replace(token, 'x')}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body of another type': `${head.replace('application/json', 'text/plain')}Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a body over the limit': `${head}Content-Length: 300000\r\n\r\n${hidden.padEnd(300_000, 'x')}`,
  'a chunk over the limit': `${chunked}493e0\r\n${hidden.padEnd(300_000, 'x')}\r\n0\r\n\r\n`,
  'a first line of HTTP/0.9': `GET /v2/private/user\r\n\r\n${hidden}`,
  'a preface of HTTP/2': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`,
};

const responses = new Map<string, string>();
beforeAll(async () => {
  await Promise.all(Object.entries(shapes).map(async ([name, bytes]) => responses.set(name, await exchange(bytes))));
  await Bun.sleep(50);
});

describe('request smuggling', () => {
  test.each(Object.keys(shapes))('a request hidden in %s does not run', (name) => {
    const received = responses.get(name) ?? '';
    expect(received.match(/^HTTP\/1\.1 /gm)?.length ?? 0).toBeLessThanOrEqual(1);
    expect(received).not.toContain(hiddenId);
    expect(received).not.toContain('"live"');
  });

  test('the log contains no hidden request', () => {
    expect(testApp.logLines.length).toBeGreaterThan(5);
    expect(testApp.logLines.join('')).not.toContain(hiddenId);
  });

  test('a pipelined request does run, as a control', async () => {
    const received = await exchange(`GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n${hidden}`);
    expect(received.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
    expect(received).toContain(hiddenId);
  });

  test('a pipelined request uses only its own token', async () => {
    const get = (headers: string) => `GET /v2/private/healthAndCare/ HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`;
    const received = await exchange(get(`Authorization: Bearer ${token}\r\n`) + get(''));
    expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 401']);
  });

  test('a chunk extension does not change the body', async () => {
    expect(await exchange(`${chunked}2;a=b\r\n{}\r\n0\r\n\r\n`)).toStartWith('HTTP/1.1 200 ');
  });
});
