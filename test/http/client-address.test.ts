import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { clientNetwork, networkOf } from '../../src/http/rate-limits';

const proxy = { requestIP: () => ({ address: '10.0.0.9' }) };
const asked = (forwarded: string | undefined) =>
  new Request('http://localhost/', forwarded === undefined ? {} : { headers: { 'x-forwarded-for': forwarded } });

describe('the network of a request', () => {
  test.each<[name: string, forwarded: string | undefined, proxies: number, network: string]>([
    ['is the connection’s without a proxy', undefined, 0, '10.0.0.9'],
    ['is the connection’s whatever is forwarded, without a proxy', '1.1.1.1', 0, '10.0.0.9'],
    ['is what one proxy appended', '6.6.6.6, 1.1.1.1', 1, '1.1.1.1'],
    ['is what the first of two proxies appended', '6.6.6.6, 1.1.1.1, 2.2.2.2', 2, '1.1.1.1'],
    ['is the connection’s where the list is shorter than the proxies', '6.6.6.6', 2, '10.0.0.9'],
    ['is the connection’s without a list', undefined, 1, '10.0.0.9'],
    ['is the connection’s where the list is empty', '', 1, '10.0.0.9'],
    ['is the connection’s where no address stands in its place', '1.1.1.1, unknown', 1, '10.0.0.9'],
    ['is the connection’s where a place is empty', '1.1.1.1,', 1, '10.0.0.9'],
    ['may come with a port', '1.1.1.1:5555', 1, '1.1.1.1'],
    ['may come with a port after IPv6', '[2001:db8:1:2:3::4]:5555', 1, '2001:db8:1:2::/64'],
  ])('%s', (_, forwarded, proxies, network) => {
    expect(clientNetwork(asked(forwarded), proxy, proxies)).toBe(network);
  });

  test('is one for all whose connection tells none', () => {
    expect(clientNetwork(asked(undefined), null, 0)).toBe('unknown');
    expect(clientNetwork(asked('x'), { requestIP: () => null }, 1)).toBe('unknown');
  });

  test('does not move with what a caller writes before the proxies’ part', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'0123456789abcdef.:,[] ') }), (sent) => {
        const header = `${sent}, 1.1.1.1`.replace(/^[ ,]+/, '');
        expect(clientNetwork(asked(header), proxy, 1)).toBe('1.1.1.1');
      }),
    );
  });
});

describe('an address', () => {
  test.each([
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::1', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    ['1::', '1:0:0:0::/64'],
    ['1:2:3:4:5:6:7::', '1:2:3:4::/64'],
    ['::2:3:4:5:6:7:8', '0:2:3:4::/64'],
    ['1:2:3:4:5:6:192.0.2.1', '1:2:3:4::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['192.0.2.1', '192.0.2.1'],
  ])('of IPv6 counts by its first 64 bits: %s', (address, network) => {
    expect(networkOf(address)).toBe(network);
  });

  test.each(['', 'x', '1.2.3', '1.2.3.256', '01.2.3.4', ':::', '1.2.3.4:x', '[1.2.3.4', '::1]', 'a'.repeat(10_000)])(
    'that is none is not taken for one: %p',
    (text) => {
      expect(networkOf(text)).toBeUndefined();
    },
  );
});
