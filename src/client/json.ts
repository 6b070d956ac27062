import type { FieldError } from './result';

/** A request has values that JSON would change. */
export class Unsendable extends TypeError {
  declare readonly errors: readonly FieldError[];

  constructor(errors: readonly FieldError[]) {
    super(errors.map(({ pointer, message }) => `${pointer || 'The request'} ${message}`).join('; '));
    this.errors = errors;
  }
}

type Parents = readonly object[];

const deepest = 100;

/**
 * Writes the JSON of a body. `JSON.stringify` changes some values silently: NaN becomes null, which clears a stored
 * answer. An undefined member is left out, and -0 becomes 0.
 *
 * @throws Unsendable
 */
export function toJson(body: unknown): string {
  const { errors, write } = createWriter();
  const text = write(body, '', []);
  if (errors.length > 0) throw new Unsendable(errors);
  return text;
}

/**
 * Returns a query with its question mark, or an empty text. `URLSearchParams` is incomplete in React Native.
 *
 * @throws Unsendable
 */
export function toQuery(query: unknown): string {
  if (query === undefined) return '';
  const { errors, refuse, read, write } = createWriter();
  if (typeof query !== 'object' || query === null || !isPlain(query)) {
    throw new Unsendable([{ pointer: '', rule: 'unsendable', message: 'must have its query as a plain object' }]);
  }
  const pairs = Object.keys(query).flatMap((name) => {
    const pointer = pointerTo('', name);
    const value = read(query, name, pointer);
    if (value === undefined) return [];
    if (typeof value === 'object' && !isDate(value)) refuse(pointer, 'must be text, a number or a boolean');
    else write(value, pointer, []);
    write(name, pointer, []);
    return [[name, value]];
  });
  if (errors.length > 0) throw new Unsendable(errors);
  const text = pairs.map((pair) => pair.map((part) => encodeURIComponent(String(part))).join('=')).join('&');
  return text && `?${text}`;
}

function createWriter() {
  const errors: FieldError[] = [];

  function refuse(pointer: string, message: string): string {
    errors.push({ pointer, rule: 'unsendable', message });
    return '';
  }

  /** A getter may throw. */
  function read(holder: object, key: string, pointer: string): unknown {
    try {
      return Reflect.get(holder, key);
    } catch {
      refuse(pointer, 'must be readable');
      return undefined;
    }
  }

  function write(value: unknown, pointer: string, parents: Parents): string {
    switch (typeof value) {
      case 'string':
        // With `u`, this matches lone surrogates only.
        if (/[\uD800-\uDFFF]/u.test(value)) return refuse(pointer, 'must be text without half a surrogate pair');
        return JSON.stringify(value);
      case 'number':
        return Number.isFinite(value) ? JSON.stringify(value) : refuse(pointer, 'must be a finite number');
      case 'boolean':
        return String(value);
      case 'object':
        return value === null ? 'null' : writeObject(value, pointer, parents);
      default:
        return refuse(pointer, `must not be ${typeof value}`);
    }
  }

  function writeObject(value: object, pointer: string, parents: Parents): string {
    if (parents.includes(value)) return refuse(pointer, 'must not contain itself');
    if (parents.length >= deepest) return refuse(pointer, `must not be nested more than ${deepest} deep`);
    const inner = [...parents, value];
    try {
      if (isDate(value)) {
        return refuse(pointer, 'must not be a Date: send the local calendar date as text, such as 1956-12-10');
      }
      if (Object.getOwnPropertySymbols(value).some((symbol) => isEnumerable.call(value, symbol))) {
        return refuse(pointer, 'must not have a symbol as a key');
      }
      if (Array.isArray(value)) return writeList(value, pointer, inner);
      if (!isPlain(value)) return refuse(pointer, 'must be a plain object or a list');
      return `{${Object.keys(value)
        .flatMap((key) => {
          const at = pointerTo(pointer, key);
          const member = read(value, key, at);
          return member === undefined ? [] : `${write(key, at, inner)}:${write(member, at, inner)}`;
        })
        .join()}}`;
    } catch {
      // A proxy may throw in any trap.
      return refuse(pointer, 'must be readable');
    }
  }

  function writeList(list: readonly unknown[], pointer: string, parents: Parents): string {
    const keys = Object.keys(list);
    const wrong = keys.findIndex((key, index) => key !== String(index));
    const hole = wrong === -1 ? keys.length : wrong;
    if (hole < list.length) return refuse(pointerTo(pointer, String(hole)), 'must not be undefined');
    if (wrong !== -1) return refuse(pointer, 'must be a list of items alone, without members of its own');
    return `[${keys
      .map((key) => {
        const at = pointerTo(pointer, key);
        return write(read(list, key, at), at, parents);
      })
      .join()}]`;
  }

  return { errors, refuse, read, write };
}

const { hasOwnProperty: hasOwn, propertyIsEnumerable: isEnumerable, toString: tagOf } = Object.prototype;

/** Accepts other realms: test sandboxes and frames have their own `Date` and `Object`. */
function isDate(value: object | null): boolean {
  return tagOf.call(value) === '[object Date]';
}

function isPlain(value: object): boolean {
  const prototype: object | null = Object.getPrototypeOf(value);
  if (prototype === null) return true;
  return Object.getPrototypeOf(prototype) === null && hasOwn.call(prototype, 'isPrototypeOf');
}

/** RFC 6901 */
function pointerTo(parent: string, key: string): string {
  return `${parent}/${key.replace(/~/g, '~0').replace(/\//g, '~1')}`;
}
