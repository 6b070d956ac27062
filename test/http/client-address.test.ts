import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { clientNetwork, networkOf } from '../../src/http/rate-limits';

const proxy = { requestIP: () => ({ address: '10.0.0.9' }) };
const requestWith = (forwarded: string | undefined) =>
  new Request('http://localhost/', forwarded === undefined ? {} : { headers: { 'x-forwarded-for': forwarded } });

describe('clientNetwork', () => {
  test.each<[name: string, forwarded: string | undefined, proxies: number, network: string]>([
    ['the peer address without a proxy', undefined, 0, '10.0.0.9'],
    ['the peer address when X-Forwarded-For is sent without a proxy', '1.1.1.1', 0, '10.0.0.9'],
    ['the address that one proxy appended', '6.6.6.6, 1.1.1.1', 1, '1.1.1.1'],
    ['the address that the first of two proxies appended', '6.6.6.6, 1.1.1.1, 2.2.2.2', 2, '1.1.1.1'],
    ['the peer address when the list is shorter than the number of proxies', '6.6.6.6', 2, '10.0.0.9'],
    ['the peer address when the header is missing', undefined, 1, '10.0.0.9'],
    ['the peer address when the list is empty', '', 1, '10.0.0.9'],
    ['the peer address when the entry is not an address', '1.1.1.1, unknown', 1, '10.0.0.9'],
    ['the peer address when the entry is empty', '1.1.1.1,', 1, '10.0.0.9'],
    ['the address without its port', '1.1.1.1:5555', 1, '1.1.1.1'],
    ['the network of an IPv6 address with a port', '[2001:db8:1:2:3::4]:5555', 1, '2001:db8:1:2::/64'],
  ])('returns %s', (_, forwarded, proxies, network) => {
    expect(clientNetwork(requestWith(forwarded), proxy, proxies)).toBe(network);
  });

  test('returns "unknown" when the connection has no address', () => {
    expect(clientNetwork(requestWith(undefined), null, 0)).toBe('unknown');
    expect(clientNetwork(requestWith('x'), { requestIP: () => null }, 1)).toBe('unknown');
  });

  test('ignores entries that the client sends before those of the proxies', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'0123456789abcdef.:,[] ') }), (sent) => {
        const header = `${sent}, 1.1.1.1`.replace(/^[ ,]+/, '');
        expect(clientNetwork(requestWith(header), proxy, 1)).toBe('1.1.1.1');
      }),
    );
  });
});

describe('networkOf', () => {
  test.each([
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::1', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8::/64'],
    ['::1', '::/64'],
    ['::', '::/64'],
    ['1::', '1::/64'],
    ['1:2:3:4:5:6:7::', '1:2:3:4::/64'],
    ['::2:3:4:5:6:7:8', '0:2:3:4::/64'],
    ['1:2:3:4:5:6:192.0.2.1', '1:2:3:4::/64'],
    ['fe80::1%eth0', 'fe80::/64'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['192.0.2.1', '192.0.2.1'],
  ])('returns the /64 prefix of an IPv6 address and the whole IPv4 address: %s', (address, network) => {
    expect(networkOf(address)).toBe(network);
  });

  test.each(['', 'x', '1.2.3', '1.2.3.256', '01.2.3.4', ':::', '1.2.3.4:x', '[1.2.3.4', '::1]', 'a'.repeat(10_000)])(
    'returns undefined for an invalid address: %p',
    (text) => {
      expect(networkOf(text)).toBeUndefined();
    },
  );
});
