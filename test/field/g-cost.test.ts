import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { createTestApp, testToken } from '../support/app';
import { connectRaw } from '../support/http';
import { atEnd } from '../support/resources';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const port = testApp.app.server?.port ?? 0;
atEnd(() => testApp.app.stop(true));
const profile = '/v2/private/user/profile';
const Problem = v.object({
  type: v.string(),
  detail: v.string(),
  errors: v.optional(v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() }))),
});

describe('a query', () => {
  const parameters = (count: number) => Array.from({ length: count }, (_, index) => `p${index}=1`).join('&');

  test.each([
    ['65 parameters', parameters(65)],
    ['one parameter 7,800 times', 'a&'.repeat(7_800)],
    ['only separators', '&'.repeat(64)],
    ['integer names', Array.from({ length: 65 }, (_, index) => index).join('&')],
    ['a second question mark', `a?b&${parameters(64)}`],
    ['names that are not UTF-8', '%ff&'.repeat(70)],
  ])('G1 returns 400 before the token check for %s', async (_, query) => {
    for (const path of ['/v2/private/user', '/v2/private/cemetery/all', '/health/live', '/swagger', '/nowhere', '/']) {
      const response = await testApp.call('GET', `${path}?${query}`);
      expect([path, response.status]).toEqual([path, 400]);
      expect(v.parse(Problem, response.body)).toMatchObject({
        type: '/problems/malformed-request',
        detail: 'The query has more than 64 parameters.',
      });
    }
  });

  test.each([
    ['64 parameters', parameters(64), 422],
    ['one parameter with many separators that are escaped', `a=${'%26'.repeat(1_000)}`, 422],
    ['a parameter twice', 'page=1&page=2', 422],
    ['a parameter 64 times', Array(64).fill('page=1').join('&'), 422],
  ])('G1 accepts %s', async (_, query, status) => {
    expect((await testApp.call('GET', `/v2/private/cemetery/all?${query}`, { as: 'ada' })).status).toBe(status);
  });
});

describe('a body', () => {
  const nested = (depth: number, value = '1') => '[{"a":'.repeat(depth / 2) + value + '}]'.repeat(depth / 2);
  const fields = (count: number, name: (index: number) => string) =>
    `{${Array.from({ length: count }, (_, index) => `"${name(index)}":1`).join()}}`;

  test.each([
    ['max_depth', '33 levels', `{"firstName":${nested(32)}}`],
    ['max_depth', '260,000 lists that are not closed', '['.repeat(260_000)],
    ['max_depth', '40,000 objects', '{"a":'.repeat(40_000)],
    ['max_depth', 'levels after a text with an escaped quote', `{"a":"\\"]]","b":${nested(32)}}`],
    ['max_depth', 'levels after a text that ends with a backslash', `{"a":"\\\\","b":${nested(32)}}`],
    ['max_depth', 'levels after closing brackets', `]]]]}}}}${nested(34)}`],
    ['max_fields', '26,000 integers as names', fields(26_000, String)],
    ['max_fields', '201 fields', fields(201, (index) => `k${index}`)],
    ['max_fields', 'one field 201 times', fields(201, () => 'firstName')],
    ['max_fields', '201 fields in an item', `{"selections":[{},${fields(201, String)}]}`],
    ['max_fields', '201 fields with values that have commas', `{"z":[1,2],${fields(200, String).slice(1)}`],
    ['max_values', '10,001 numbers', `[${Array(10_001).fill(1).join()}]`],
    ['max_values', '40,000 objects side by side', `[${Array(40_000).fill('{}').join()}]`],
    ['max_values', '60 objects of 200 fields', `[${Array(60).fill(fields(200, String)).join()}]`],
  ])('G3 fails by %s for %s', async (rule, _, body) => {
    for (const path of [profile, '/v2/private/engine/preview', '/v2/private/ltc/totalCoverage']) {
      const response = await testApp.call('POST', path, { as: 'ada', body });
      expect(response.status).toBe(422);
      expect(v.parse(Problem, response.body).errors).toEqual([{ pointer: '', rule, message: expect.any(String) }]);
    }
  });

  test.each([
    ['32 levels', `{"firstName":${nested(30, '[]')}}`, '/firstName'],
    ['brackets in a text', `{"firstName":"${'['.repeat(90)}","lastName":1}`, '/lastName'],
    ['an escaped quote before brackets', `{"firstName":"\\"${'[{'.repeat(45)}","lastName":1}`, '/lastName'],
    ['commas in a text', `{"firstName":"${','.repeat(90)}","email":"${',,'.repeat(150)}"}`, '/email'],
    ['a number of 200,000 digits', `{"heightCm":${'1'.repeat(200_000)}}`, '/heightCm'],
    ['a number out of range', '{"heightCm":1e999}', '/heightCm'],
  ])('G3 passes the limits with %s, and the response names its field', async (_, body, pointer) => {
    const response = await testApp.call('POST', profile, { as: 'ada', body });
    expect(response.status).toBe(422);
    expect(v.parse(Problem, response.body).errors?.map((error) => error.pointer)).toContain(pointer);
  });

  test.each([
    ['{"firstName":"Ada"}]', 400],
    ['"', 400],
    ['"\\', 400],
    ['[', 400],
    [']', 400],
    [',', 400],
  ])('G3 fails as malformed JSON: %s', async (body, status) => {
    expect((await testApp.call('POST', profile, { as: 'ada', body })).status).toBe(status);
  });
});

describe('a body in chunks', () => {
  const send = async (chunks: string) => {
    const token = await testToken({ id: 'chunker', now: testApp.now });
    const { exchange } = await connectRaw(port);
    const head = `POST ${profile} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nConnection: close\r\n`;
    return exchange(`${head}Transfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`);
  };

  test.each([
    ['100,000 of a byte', `1\r\n{\r\n${'1\r\n \r\n'.repeat(100_000)}1\r\n}\r\n`],
    ['15,000 of 16 bytes', `2\r\n{}\r\n${`10\r\n${' '.repeat(16)}\r\n`.repeat(15_000)}`],
  ])('G3 returns 413 and closes the connection: %s', async (_, chunks) => {
    const response = await send(chunks);
    expect(response).toStartWith('HTTP/1.1 413 ');
    expect(response).toContain('The body may arrive in at most 512 chunks.');
    expect(response.toLowerCase()).toContain('\r\nconnection: close\r\n');
  });

  test.each([
    ['500 of a byte', `1\r\n{\r\n${'1\r\n \r\n'.repeat(498)}1\r\n}\r\n`],
    ['180 of 1,460 bytes', `2\r\n{}\r\n${`5b4\r\n${' '.repeat(1_460)}\r\n`.repeat(179)}`],
  ])('G3 returns 200: %s', async (_, chunks) => {
    expect(await send(chunks)).toStartWith('HTTP/1.1 200 ');
  });

  test('G3 returns 401 before its last chunk without a valid token', async () => {
    const { socket, received } = await connectRaw(port);
    const head = `POST ${profile} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`;
    socket.write(head);
    const response = await received;
    expect(response).toStartWith('HTTP/1.1 401 ');
    expect(response.toLowerCase()).toContain('\r\nconnection: close\r\n');
    socket.end();
  });

  test('G3 keeps its connection open after its last chunk', async () => {
    const { socket, received } = await connectRaw(port);
    const token = await testToken({ id: 'chunker', now: testApp.now });
    const head = `POST ${profile} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
    socket.write(`${head}1\r\n{\r\n0\r\n\r\n`);
    const response = await received;
    expect(response).toStartWith('HTTP/1.1 400 ');
    expect(response.toLowerCase()).not.toContain('connection: close');
    socket.end();
  });
});
