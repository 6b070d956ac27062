import * as v from 'valibot';
import { hint } from './field-errors';
import { findStateCode, stateNames } from './states';

/** The maximum number of items of any list in a request. */
const maxItems = 100;
const maxAmount = 1e12;

/** SQLite cuts a text at NUL, and half a surrogate pair breaks the connection to a libSQL server. */
function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/**
 * A transform that keeps later bounds in the OpenAPI document. It must be idempotent, because stored values may be sent
 * back.
 */
function revise<Value>(change: (value: Value) => Value) {
  return { ...v.transform(change), type: 'revise' } as const;
}

/**
 * NFC composes at most this many characters into one. Composition takes quadratic time in a run of accents, minutes for the
 * largest body, so a text that stays too long is rejected before it.
 */
const composedFrom = 4;

/** A text of up to `maxCharacters` UTF-16 units, cleaned, trimmed and composed (NFC). */
function composed(maxCharacters: number, clean: (typed: string) => string) {
  const isTooLong = ({ length }: string) => length > maxCharacters * composedFrom;
  return v.pipe(
    v.string(),
    revise((typed: string) => {
      const trimmed = typed.trim();
      return isTooLong(trimmed) ? trimmed : clean(trimmed).trim();
    }),
    v.check((value) => !isTooLong(value), `max_length: must have at most ${maxCharacters} characters`),
    v.normalize('NFC'),
    v.maxLength(maxCharacters),
    v.check(isStorable, 'storable_text: must not contain NUL or half of a surrogate pair'),
  );
}

const asTyped = (typed: string) => typed;

/** Free text, on one line or several. */
export function text(maxCharacters: number) {
  return v.pipe(
    composed(maxCharacters, asTyped),
    v.minLength(1),
    v.check((value) => /[^\s\p{Default_Ignorable_Code_Point}]/u.test(value), 'not_blank: must not be blank'),
  );
}

/** One line, such as a name. */
export function line(maxCharacters: number, clean = asTyped) {
  return v.pipe(optionalLine(maxCharacters, clean), v.minLength(1));
}

/** A line that may be empty. Bidirectional control characters are rejected: they make one name look like another. */
export function optionalLine(maxCharacters: number, clean = asTyped) {
  return v.pipe(
    composed(maxCharacters, clean),
    v.check(
      (value) => !/[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u.test(value),
      'one_line: must not contain control characters',
    ),
  );
}

/**
 * Invisible characters, such as U+200B and the direction marks of a pasted Hebrew or Arabic name, which make names differ
 * that look the same. Variation selectors are kept, because they choose a glyph. Direction overrides are rejected.
 */
const invisible =
  /[\p{Default_Ignorable_Code_Point}--[\u180b-\u180d\u180f\u200c\u200d\u202d\u202e\ufe00-\ufe0f\u{e0100}-\u{e01ef}]]/gv;
/** In these scripts, U+200C and U+200D choose the form of neighbouring letters; in emoji they join. */
const joined = String.raw`[[\p{sc=Arabic}\p{sc=Syriac}\p{sc=Mongolian}\p{sc=Devanagari}\p{sc=Bengali}\p{sc=Gurmukhi}\p{sc=Gujarati}\p{sc=Oriya}\p{sc=Tamil}\p{sc=Telugu}\p{sc=Kannada}\p{sc=Malayalam}\p{sc=Sinhala}\p{sc=Khmer}\p{sc=Myanmar}\p{Emoji}\ufe0f]--\p{ASCII}]`;
const idleJoiner = new RegExp(`(?<!${joined})[\u200c\u200d]|[\u200c\u200d](?!${joined})`, 'gv');

/** Removes invisible characters from a name. */
export function withoutInvisible(typed: string): string {
  return typed.replace(invisible, '').replace(idleJoiner, '');
}

/** The `sub` of a token: the id of the user. */
export const Subject = v.pipe(v.string(), v.minLength(1), v.maxLength(255), v.check(isStorable));

/** An id of another system in an import file. */
export const Identifier = v.pipe(
  v.string(),
  v.check(
    (id) => id !== '' && id.length <= 255 && id.isWellFormed() && !/\p{Cc}/u.test(id),
    'identifier: must have 1 to 255 characters, none of them a control character',
  ),
);

/** A person's name: a line with at least one letter or digit. */
export function personName(maxCharacters: number) {
  return v.pipe(
    line(maxCharacters, withoutInvisible),
    v.check((value) => /[\p{L}\p{N}]/u.test(value), 'name: must contain a letter'),
  );
}

/** Accepts at most two decimals in decimal notation. */
export const twoDecimals = v.check(
  (value: number) => /^-?\d+(?:\.\d{1,2})?$/.test(String(value)),
  'two_decimals: must have at most two decimals',
);

/**
 * Rounds to two decimals by the decimal form, half away from zero: 1.005 becomes 1.01, although the binary number is
 * smaller. Numbers from 2^43 are not changed: the bounds reject them.
 */
export function toHundredths(value: number): number {
  const size = Math.abs(value);
  if (size < 0.005) return 0;
  if (size >= 2 ** 43) return value;
  return Math.sign(value) * Number(`${Math.round(Number(`${size}e2`))}e-2`);
}

/** Rounds before the bounds are checked. */
export const roundedToHundredths = revise(toHundredths);

/** Money, or another quantity that is never negative. */
export const Amount = v.pipe(
  v.number(),
  v.description('Rounded to two decimals'),
  roundedToHundredths,
  v.minValue(0),
  v.maxValue(maxAmount),
);

export const Count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));

/** An object of these fields only. Valibot alone accepts a list where no field is required. */
export function fields<const Entries extends v.ObjectEntries>(entries: Entries) {
  const object = v.strictObject(entries);
  const run: (typeof object)['~run'] = (dataset, config) =>
    object['~run'](Array.isArray(dataset.value) ? { ...dataset, value: undefined } : dataset, config);
  return { ...object, '~run': run };
}

/**
 * A list of at most `maxItems` items; duplicates are removed. The count is checked first: validating 130,000 bad items
 * takes a second.
 */
export function list<Item extends v.GenericSchema>(item: Item) {
  const items = v.array(item);
  const tooLong = v.custom<v.InferOutput<Item>[]>(() => false, `max_length: must have at most ${maxItems} items`);
  const counted = {
    ...items,
    '~run'(dataset: v.UnknownDataset, config: v.Config<v.BaseIssue<unknown>>) {
      const isTooLong = Array.isArray(dataset.value) && dataset.value.length > maxItems;
      return isTooLong ? tooLong['~run'](dataset, config) : items['~run'](dataset, config);
    },
  };
  return v.pipe(counted, v.maxLength(maxItems), revise(withoutRepetitions));
}

function withoutRepetitions<Item>(items: Item[]): Item[] {
  const seen = new Set<string>();
  return items.filter((item) => seen.size < seen.add(JSON.stringify(item)).size);
}

/** A list, or the other form if `isOther` recognises it. Errors then refer to the form that was sent. */
export function listOr<Items extends v.GenericSchema, Other extends v.GenericSchema>(
  items: Items,
  other: Other,
  isOther: (value: unknown) => boolean,
) {
  return {
    ...v.union([other, items]),
    '~run'(dataset: v.UnknownDataset, config: v.Config<v.BaseIssue<unknown>>) {
      return (isOther(dataset.value) ? other : items)['~run'](dataset, config);
    },
  };
}

/** A list that may also be sent as its one item. */
export function oneOrMany<const Options extends readonly string[]>(options: Options) {
  const one = v.picklist(options);
  return v.pipe(
    listOr(list(one), one, (value) => !Array.isArray(value)),
    v.transform((sent): Options[number][] => (typeof sent === 'string' ? [sent] : [...sent])),
  );
}

/** One of the options, in any case and with surrounding spaces. The type and the document have the exact spelling. */
export function anyCase<const Options extends readonly string[]>(options: Options) {
  const exact = v.picklist(options);
  const meant = new Map(options.map((option) => [option.toLowerCase(), option]));
  const run: (typeof exact)['~run'] = (dataset, config) => {
    const { value } = dataset;
    const option = typeof value === 'string' ? meant.get(value.trim().toLowerCase()) : undefined;
    return exact['~run'](option === undefined ? dataset : { ...dataset, value: option }, config);
  };
  return { ...exact, '~run': run };
}

/** The code of a state, by its code or its name. */
export const StateCode = v.pipe(
  v.string(),
  v.description(
    'USPS code of a state, DC, a territory, a freely associated state (FM, MH, PW) or the armed forces (AA, AE, AP), ' +
      'or its English name, in any case; the code is stored',
  ),
  v.examples(['VA']),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const code = findStateCode(dataset.value);
    if (code !== undefined) return code;
    addIssue({
      message: `state_code: must be a USPS state code such as VA, DC, PR or AE, or a state’s name${hint(dataset.value, stateNames)}`,
    });
    return NEVER;
  }),
);
