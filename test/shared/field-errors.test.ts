import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { findFieldErrors } from '../../src/shared/field-errors';

describe('the message of a failed rule', () => {
  test.each([
    ['integer', v.pipe(v.number(), v.integer()), 2.5, 'must be a whole number'],
    ['safe_integer', v.pipe(v.number(), v.safeInteger()), 2 ** 53, 'must be a whole number below 2^53'],
    ['min_value', v.pipe(v.number(), v.minValue(1)), 0, 'must be at least 1'],
    ['max_value', v.pipe(v.number(), v.maxValue(20)), 21, 'must be at most 20'],
  ])('%s names the limit', (rule, size, value, message) => {
    const schema = v.object({ size });
    const { issues = [] } = v.safeParse(schema, { size: value });
    expect(findFieldErrors(schema, issues, 'pointer')).toEqual([{ pointer: '/size', rule, message }]);
  });
});
