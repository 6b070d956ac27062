import { describe, expect, test } from 'bun:test';
import { isForThisMachine, networkOf } from '../../src/http/rate-limits';

describe('an address', () => {
  test.each([
    ['::ffff:7f00:1', '127.0.0.1'],
    ['::ffff:c000:0201', '192.0.2.1'],
    ['::FFFF:C000:201', '192.0.2.1'],
    ['0:0:0:0:0:ffff:c000:201', '192.0.2.1'],
    ['0000:0000:0000:0000:0000:ffff:192.0.2.1', '192.0.2.1'],
    ['[::ffff:c000:201]:443', '192.0.2.1'],
    ['::ffff:c000:202', '192.0.2.2'],
    ['64:ff9b::192.0.2.1', '192.0.2.1'],
    ['64:ff9b::c000:202', '192.0.2.2'],
    ['2001:db8:1:2::c000:201', '2001:db8:1:2::/64'],
  ])('G10 has the network of its IPv4 form: %s', (text, network) => expect(networkOf(text)).toBe(network));

  test.each(['127.1', '0x7f.0.0.1', '017700000001', '2130706433', '192.0.2', '::ffff:192.0.2', '::ffff:0x7f.0.0.1'])(
    'G10 has no network in a short form: %s',
    (text) => expect(networkOf(text)).toBeUndefined(),
  );

  test.each(['::ffff:7f00:1', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.2'])('G10 counts as this machine: %s', (address) => {
    const request = new Request('http://localhost/', { headers: { host: 'localhost' } });
    expect(isForThisMachine(request, { requestIP: () => ({ address }) }, undefined)).toBeTrue();
  });
});
