import { maxItems } from './life-insurance.mjs';
import { Problem } from './problem.mjs';

/** Bounds the response. */
const shownErrors = 100;

/** The message for each rule. `bound` is the limit of the rule. */
const sentences = {
  unknown_field: () => 'is not a known field',
  required: () => 'is required',
  object: () => 'must be an object',
  array: () => 'must be a list',
  string: () => 'must be text',
  number: () => 'must be a number',
  picklist: (/** @type {string} */ bound) => `must be one of ${bound}`,
  safe_integer: () => 'must be a whole number below 2^53',
  min_value: (/** @type {string} */ bound) => `must be at least ${bound}`,
  min_length: (/** @type {string} */ bound) => `must have at least ${bound} character${bound === '1' ? '' : 's'}`,
  max_length: (/** @type {string} */ bound) => `must have at most ${bound} characters`,
  storable_text: () => 'must not contain NUL or half of a surrogate pair',
  not_blank: () => 'must not be blank',
};

/**
 * @param {string} rule
 * @returns {rule is keyof typeof sentences}
 */
function isRule(rule) {
  return Object.hasOwn(sentences, rule);
}

/**
 * One validation error. Its message contains no part of the input.
 *
 * @param {string} pointer
 * @param {string} rule
 * @param {unknown} [bound]
 */
export function fieldError(pointer, rule, bound) {
  if (pointer === '' && rule === 'object') return { pointer, rule, message: 'must be a JSON object' };
  return { pointer, rule, message: isRule(rule) ? sentences[rule](String(bound)) : 'is not valid' };
}

/** @param {import('./problem.mjs').FieldError[]} errors */
export function invalidInput(errors) {
  return new Problem('invalid-input', { errors: errors.slice(0, shownErrors) });
}

/** @param {readonly unknown[]} keys */
export function toPointer(keys) {
  return keys.map((key) => `/${String(key).slice(0, 64).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/**
 * Rejects a list with too many items. A schema that reports all errors validates each item before it counts them.
 *
 * @param {unknown} body
 */
export function refuseLongLists(body) {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return;
  for (const [key, value] of Object.entries(body)) {
    if (!Array.isArray(value) || value.length <= maxItems) continue;
    const message = `must have at most ${maxItems} items`;
    throw invalidInput([{ pointer: toPointer([key]), rule: 'max_length', message }]);
  }
}
