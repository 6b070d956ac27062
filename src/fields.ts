import * as v from 'valibot';
import { stateCodes } from './states';

/** Most items that any list in a request may hold. */
export const maxItems = 100;
const maxAmount = 1e12;

/** SQLite cuts a text at NUL, and half a surrogate pair breaks the connection to a libSQL server. */
function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** Free text of 1 to `maxCharacters` UTF-16 units, kept as it is typed. */
export function text(maxCharacters: number) {
  return v.pipe(
    v.string(),
    v.minLength(1),
    v.maxLength(maxCharacters),
    v.check(isStorable, 'storable_text: must not contain NUL or half of a surrogate pair'),
    v.check((value) => /\S/.test(value), 'not_blank: must not be blank'),
  );
}

/**
 * Most characters that NFC makes one of. To compose takes the square of a run of accents: minutes for a body within the
 * limit, so what cannot become short enough is never composed.
 */
const composedFrom = 4;

/** One line, such as a name: composed (NFC) and trimmed, otherwise kept as it is typed. */
export function line(maxCharacters: number) {
  return v.pipe(optionalLine(maxCharacters), v.minLength(1));
}

/** The same, but it may be empty. Characters that turn the direction of writing make a name look like another. */
export function optionalLine(maxCharacters: number) {
  return v.pipe(
    v.string(),
    v.trim(),
    v.check(
      ({ length }) => length <= maxCharacters * composedFrom,
      `max_length: must have at most ${maxCharacters} characters`,
    ),
    v.normalize('NFC'),
    v.maxLength(maxCharacters),
    v.check(isStorable, 'storable_text: must not contain NUL or half of a surrogate pair'),
    v.check(
      (value) => !/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u.test(value),
      'one_line: must not contain control characters',
    ),
  );
}

/** The `sub` of a token, which is whose record it opens. */
export const Subject = v.pipe(v.string(), v.minLength(1), v.maxLength(255), v.check(isStorable));

/** The id that somebody or something has elsewhere, in a file that people edit. */
export const Identifier = v.pipe(
  v.string(),
  v.check(
    (id) => id !== '' && id.length <= 255 && id.isWellFormed() && !/\p{Cc}/u.test(id),
    'identifier: must have 1 to 255 characters, none of them a control character',
  ),
);

/** A person's name: a line with a letter or digit in it. */
export function personName(maxCharacters: number) {
  return v.pipe(
    line(maxCharacters),
    v.check((value) => /[\p{L}\p{N}]/u.test(value), 'name: must contain a letter'),
  );
}

/** Written with at most two decimals, as a person would. */
export const twoDecimals = v.check(
  (value: number) => /^-?\d+(?:\.\d{1,2})?$/.test(String(value)),
  'two_decimals: must have at most two decimals',
);

/** Money, or another quantity that is never negative. */
export const Amount = v.pipe(v.number(), v.minValue(0), v.maxValue(maxAmount));

export const Count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));

export function list<Item extends v.GenericSchema>(item: Item) {
  return v.pipe(v.array(item), v.maxLength(maxItems));
}

/** A list that may also be sent as its one item. */
export function oneOrMany<const Options extends readonly string[]>(options: Options) {
  const one = v.picklist(options);
  return v.pipe(
    v.union([one, list(one)]),
    v.transform((sent): Options[number][] => (typeof sent === 'string' ? [sent] : [...sent])),
  );
}

const notAState = 'state_code: must be a USPS state code such as VA, DC, PR or AE';

/** A USPS code in any case, kept in upper case. ASCII alone: other scripts have letters whose upper case is A to Z. */
export const StateCode = v.pipe(
  v.string(),
  v.description(
    'USPS code of a state, DC, a territory, a freely associated state (FM, MH, PW) or the armed forces (AA, AE, AP), ' +
      'in any case',
  ),
  v.trim(),
  v.regex(/^[A-Za-z]{2}$/, notAState),
  v.toUpperCase(),
  v.picklist(stateCodes, notAState),
);
