import { describe, expect, test } from 'bun:test';
import { createTestApp, testToken } from '../support/app';
import { connectRaw } from '../support/http';
import { atEnd } from '../support/resources';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const port = testApp.app.server?.port ?? 0;
atEnd(() => testApp.app.stop(true));
const profile = '/v2/private/user/profile';

async function statusWith(headers: Record<string, string>): Promise<number> {
  return (await testApp.call('POST', profile, { as: 'ada', body: { firstName: 'Zoë' }, headers })).status;
}

describe('a Content-Type', () => {
  test.each([
    'application/json',
    'Application/JSON',
    'application/json;charset=utf8',
    'application/json; charset=utf8',
    'application/json;charset= utf-8',
    'application/json; Charset="UTF-8"',
    'application/json ;charset=utf-8',
    'application/json;;',
    'application/json; charset=unicode-1-1-utf-8',
    'application/json; charset=unicode11utf8',
    'application/json; charset=unicode20utf8',
    'application/json; charset=x-unicode20utf8',
    'application/json; profile="a;charset=utf-16"',
    'application/json; profile="a\\";charset=utf-16"; charset=utf-8',
    'application/json; charset="utf\\-8"',
    'application/json; charset=utf-8; charset=utf-16',
    'application/json; version=1; ext="https://a.example/b?c=d;e"',
    'application/json; charset',
    '\tapplication/json\t',
  ])('C8 returns 200 for JSON in UTF-8: %s', async (type) =>
    expect(await statusWith({ 'content-type': type })).toBe(200),
  );

  test.each([
    'text/plain',
    'text/json',
    'application/jsonp',
    'application/json-patch+json',
    'application',
    'application/',
    'application/json, text/plain',
    'application/json; charset=utf-16',
    'application/json; charset=iso-8859-1',
    'application/json; charset=us-ascii',
    'application/json; charset=nothing',
    'application/json; charset=""',
    "application/json; charset='utf-8'",
  ])('C8 returns 415 for another type: %s', async (type) =>
    expect(await statusWith({ 'content-type': type })).toBe(415),
  );
});

describe('a Content-Encoding', () => {
  test.each(['identity', 'Identity', 'IDENTITY', '', ' ', 'identity, identity'])(
    'C8 returns 200 when it names no coding: "%s"',
    async (encoding) => expect(await statusWith({ 'content-encoding': encoding })).toBe(200),
  );

  test.each(['gzip', 'GZIP', 'br', 'identity, gzip', 'gzip, identity', 'x'])(
    'C8 returns 415 when it names a coding: %s',
    async (encoding) => expect(await statusWith({ 'content-encoding': encoding })).toBe(415),
  );
});

const valid = await testToken({ id: 'ada', now: testApp.now });

describe('a refusal', () => {
  const head = (token: string, type: string, ...others: string[]) =>
    [`POST ${profile} HTTP/1.1`, 'Host: x', `Authorization: Bearer ${token}`, `Content-Type: ${type}`, ...others].join(
      '\r\n',
    );

  test.each([
    ['C8', 'a wrong type', 415, head(valid, 'text/plain', 'Content-Length: 100')],
    ['C8', 'a wrong type in chunks', 415, `${head(valid, 'text/plain', 'Transfer-Encoding: chunked')}\r\n\r\nff\r\n{`],
    ['C8', 'an encoded body', 415, head(valid, 'application/json', 'Content-Encoding: gzip', 'Content-Length: 100')],
    ['C10', 'a large body', 413, head(valid, 'application/json', 'Content-Length: 9999999')],
    ['C10', 'a bad token', 401, head('x', 'application/json', 'Content-Length: 100')],
    ['C10', 'a bad token before the type', 401, head('x', 'text/plain', 'Content-Length: 100')],
    [
      'C10',
      'a wrong type that expects a reply in capitals',
      415,
      head(valid, 'text/plain', 'Expect: 100-Continue', 'Content-Length: 100'),
    ],
  ])('%s precedes the body for %s', async (_row, _fault, status, bytes) => {
    const { socket, received } = await connectRaw(port);
    socket.write(bytes.includes('\r\n\r\n') ? bytes : `${bytes}\r\n\r\n`);
    expect(await received).toStartWith(`HTTP/1.1 ${status} `);
    socket.end();
  });

  test('C8 does not occur for an empty body of another type', async () => {
    for (const body of ['Content-Length: 0\r\n\r\n', 'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n']) {
      const { exchange } = await connectRaw(port);
      const response = await exchange(`${head(valid, 'text/plain', 'Connection: close')}\r\n${body}`);
      expect(response).toStartWith('HTTP/1.1 422 ');
    }
  });
});
