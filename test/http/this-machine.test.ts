import { describe, expect, test } from 'bun:test';
import { isForThisMachine } from '../../src/http/rate-limits';

const publicUrl = 'https://planning.example';
const names = ['127.0.0.1:3000', 'localhost', '[::1]:3000', 'planning.example'];

function isFor(address: string | undefined, headers: Record<string, string>): boolean {
  const source = { requestIP: () => (address === undefined ? null : { address }) };
  return isForThisMachine(new Request('http://localhost/', { headers }), source, publicUrl);
}

describe('isForThisMachine', () => {
  test.each(names)('returns true under %s only for loopback connections', (host) => {
    for (const address of ['127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.1'])
      expect([address, isFor(address, { host })]).toEqual([address, true]);
    const others = ['192.0.2.7', '10.127.0.1', '::ffff:192.0.2.7', '::', 'fe80::1', '2001:db8::1', undefined];
    for (const address of others) expect([address, isFor(address, { host })]).toEqual([address, false]);
  });

  test.each(names)('returns false under %s for a forwarded request', (host) => {
    const headers = {
      Forwarded: 'for=192.0.2.7',
      Via: '1.1 tunnel',
      'X-Forwarded-For': '127.0.0.1',
      'X-Forwarded-Host': 'localhost',
      'X-Forwarded-Proto': 'http',
      'X-Forwarded-Ssl': '',
      'X-Real-IP': '127.0.0.1',
    };
    for (const [name, value] of Object.entries(headers))
      expect([name, isFor('127.0.0.1', { host, [name]: value })]).toEqual([name, false]);
  });
});
