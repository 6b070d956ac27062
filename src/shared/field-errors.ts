import { distance } from 'fastest-levenshtein';
import type * as v from 'valibot';
import type { FieldError } from '../errors';

const nearEdits = 2;
const maxCharacters = 100;

/** Returns the nearest name within two edits. Only letters and digits count, in any case. */
export function nearName(text: unknown, names: readonly string[]): string | undefined {
  if (typeof text !== 'string' || text.length > maxCharacters) return undefined;
  const written = lettersOf(text);
  let nearest: string | undefined;
  let fewest = nearEdits + 1;
  for (const name of names) {
    if (Math.abs(written.length - name.length) > nearEdits) continue;
    const edits = distance(written, lettersOf(name));
    // Two edits turn any two-letter word into any other.
    if (edits >= fewest || edits * 2 > name.length) continue;
    nearest = name;
    fewest = edits;
  }
  return nearest;
}

/** The suggestion at the end of a message about an unknown name. It never contains the unknown name. */
export function hint(text: unknown, names: readonly string[]): string {
  const name = nearName(text, names);
  return name === undefined ? '' : `; did you mean ${name}?`;
}

function lettersOf(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
}

/** Bounds the response: with all errors of a body of 20,000 invalid items, it would be larger than the body. */
export const shownErrors = 100;
const shownKeyCharacters = 64;

type Issue = v.BaseIssue<unknown>;

/** How an error names its field: by RFC 6901 in a JSON body, by its own name in a query or a file. */
export type Naming = 'pointer' | 'parameter' | 'column';

/**
 * Converts the issues of a schema to errors without the messages of valibot, which quote the invalid value. The message of
 * a check in a model has the form `rule: sentence`.
 */
export function findFieldErrors(schema: v.GenericSchema, issues: readonly Issue[], naming: Naming): FieldError[] {
  const errors: FieldError[] = [];
  for (const issue of issues.slice(0, shownErrors).flatMap(flattenUnion)) {
    if (errors.length >= shownErrors) break;
    errors.push(...(isUnknownKey(issue) ? unknownFields(schema, issue, naming) : [fieldError(issue, naming)]));
  }
  return errors.slice(0, shownErrors);
}

/** The issues of a union that have a path belong to the option that matched best, so they describe the error. */
function flattenUnion(issue: Issue): Issue[] {
  const nested = issue.issues?.filter((inner) => inner.path !== undefined) ?? [];
  return nested.length === 0 ? [issue] : nested.map((inner) => ({ ...inner, path: joinPaths(issue.path, inner.path) }));
}

function joinPaths(outer: Issue['path'], inner: Issue['path']): Issue['path'] {
  if (outer === undefined || inner === undefined) return outer ?? inner;
  return [...outer, ...inner];
}

function isUnknownKey(issue: Issue): boolean {
  return issue.type === 'strict_object' && issue.expected === 'never';
}

/** Lists all unknown keys with suggestions. valibot stops at the first one. */
function unknownFields(schema: v.GenericSchema, issue: Issue, naming: Naming): FieldError[] {
  const parents = issue.path?.slice(0, -1) ?? [];
  const parent = issue.path?.at(-1)?.input;
  const known = Object.keys(entriesAt(schema, issue.path?.[0]?.input, parents) ?? {});
  return Object.keys(parent ?? {})
    .filter((key) => !known.includes(key))
    .slice(0, shownErrors)
    .map((key) => ({
      pointer: toPointer([...parents.map((item) => item.key), key], naming),
      rule: 'unknown_field',
      message: `is not a known ${naming === 'parameter' ? 'parameter' : 'field'}${hint(key, known)}`,
    }));
}

/** Returns the entries of the schema for the object at `path` in `value`. */
function entriesAt(schema: unknown, value: unknown, path: readonly v.IssuePathItem[]): object | undefined {
  if (typeof schema !== 'object' || schema === null) return undefined;
  if ('wrapped' in schema) return entriesAt(schema.wrapped, value, path);
  if ('getter' in schema && typeof schema.getter === 'function') return entriesAt(schema.getter(value), value, path);
  const [step, ...rest] = path;
  if ('entries' in schema && typeof schema.entries === 'object' && schema.entries !== null) {
    if (step === undefined) return schema.entries;
    return entriesAt(Object.entries(schema.entries).find(([name]) => name === step.key)?.[1], step.value, rest);
  }
  if ('options' in schema && Array.isArray(schema.options)) {
    return schema.options.map((option) => entriesAt(option, value, path)).find((entries) => entries !== undefined);
  }
  return 'item' in schema && step !== undefined ? entriesAt(schema.item, step.value, rest) : undefined;
}

function fieldError(issue: Issue, naming: Naming): FieldError {
  const at = toPointer(issue.path?.map((item) => item.key) ?? [], naming);
  const own = /^([a-z_]+): (.+)$/s.exec(issue.message);
  if (own?.[1] !== undefined && own[2] !== undefined) return { pointer: at, rule: own[1], message: own[2] };
  if (issue.kind === 'schema' && issue.path?.at(-1)?.origin === 'key') {
    return { pointer: at, rule: 'required', message: 'is required' };
  }
  if (naming === 'parameter' && Array.isArray(issue.input)) {
    return { pointer: at, rule: 'single', message: 'must be given once' };
  }
  return { pointer: at, rule: issue.type.replace('strict_', ''), message: sentence(issue) };
}

function sentence(issue: Issue): string {
  const bound = String(issue.requirement);
  switch (issue.type) {
    case 'strict_object':
    case 'object':
      return issue.path === undefined ? 'must be a JSON object' : 'must be an object';
    case 'array':
      return 'must be a list';
    case 'string':
      return 'must be text';
    case 'number':
      return 'must be a number';
    case 'boolean':
      return 'must be true or false';
    case 'picklist':
    case 'union': {
      const names = namesOf(issue);
      return `must be one of ${names.join(', ')}${hint(issue.input, names)}`;
    }
    case 'integer':
      return 'must be a whole number';
    case 'safe_integer':
      return 'must be a whole number below 2^53';
    case 'min_value':
      return `must be at least ${bound}`;
    case 'max_value':
      return `must be at most ${bound}`;
    case 'min_length':
      return `must have at least ${countOf(issue)}`;
    case 'max_length':
      return `must have at most ${countOf(issue)}`;
    default:
      return 'is not valid';
  }
}

function countOf({ requirement, input }: Issue): string {
  const noun = Array.isArray(input) ? 'item' : 'character';
  return `${requirement} ${noun}${requirement === 1 ? '' : 's'}`;
}

/** valibot states a picklist's options as `("a" | "b")`, and those of a union inside its own issues. */
function namesOf(issue: Issue): string[] {
  const expected = [issue, ...(issue.issues ?? [])].map((each) => each.expected).join(' ');
  return [...new Set(expected.match(/(?<=")[^"]+(?=")/g)?.filter((name) => /^[\w.-]+$/.test(name)))];
}

function toPointer(keys: readonly unknown[], naming: Naming): string {
  const names = keys.map((key) => String(key).slice(0, shownKeyCharacters).toWellFormed());
  if (naming !== 'pointer') return names.join('.');
  return names.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}
