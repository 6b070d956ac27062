import * as v from 'valibot';
import { fieldError, invalidInput, refuseLongLists, toPointer } from '../shared/field-errors.mjs';
import {
  billsAndDebts,
  financialPriorities,
  livingStatuses,
  maxItems,
  maxTitleLength,
} from '../shared/life-insurance.mjs';
import { isStorable } from '../shared/storable.mjs';

const id = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const title = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(maxTitleLength),
  v.check(isStorable, 'storable_text'),
  v.check((text) => /\S/.test(text), 'not_blank'),
);
const list = <Item extends v.GenericSchema>(item: Item) => v.nullish(v.pipe(v.array(item), v.maxLength(maxItems)));

/** The life-insurance deep dive, as a frontend sends it. */
const LifeInsuranceAnswers = v.strictObject({
  policySupport: list(v.strictObject({ id: v.optional(id), title })),
  selections: list(v.strictObject({ id, title })),
  customSelections: list(v.strictObject({ title })),
  financialPriorities: list(v.picklist(financialPriorities)),
  livingStatus: v.nullish(v.picklist(livingStatuses)),
  billsAndDebt: list(v.picklist(billsAndDebts)),
});

/** The answers in a body, or a Problem that names every fault. */
export function parseAnswers(body: unknown): v.InferOutput<typeof LifeInsuranceAnswers> {
  // Valibot takes a list for an object in which nothing is required.
  if (Array.isArray(body)) throw invalidInput([fieldError('', 'object')]);
  refuseLongLists(body);
  const parsed = v.safeParse(LifeInsuranceAnswers, body, { abortPipeEarly: true });
  if (parsed.success) return parsed.output;
  throw invalidInput(parsed.issues.map(toFieldError));
}

function toFieldError(issue: v.BaseIssue<unknown>) {
  const pointer = toPointer(issue.path?.map(({ key }) => key) ?? []);
  if (issue.type === 'check') return fieldError(pointer, issue.message);
  if (issue.type === 'strict_object') {
    if (issue.expected === 'never') return fieldError(pointer, 'unknown_field');
    const isMissing = issue.path?.at(-1)?.origin === 'key';
    return fieldError(pointer, isMissing ? 'required' : 'object');
  }
  return fieldError(
    pointer,
    issue.type,
    issue.requirement ?? issue.expected?.replace(/["()]/g, '').replaceAll(' | ', ', '),
  );
}
