import { fieldError, toPointer } from '../shared/field-errors.mjs';
import {
  billsAndDebts,
  financialPriorities,
  livingStatuses,
  maxItems,
  maxTitleLength,
} from '../shared/life-insurance.mjs';
import { isStorable } from '../shared/storable.mjs';

const id = { type: 'number', safeInteger: true, minimum: 0 };
const title = { type: 'string', minLength: 1, maxUnits: maxTitleLength, storable: true, notBlank: true };
const selection = (properties, required) => ({ type: 'object', additionalProperties: false, properties, required });
const list = (items) => ({ type: 'array', nullable: true, maxItems, items });

/** The request body of the life-insurance deep dive. */
export const lifeInsuranceSchema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    policySupport: list(selection({ id, title }, ['title'])),
    selections: list(selection({ id, title }, ['id', 'title'])),
    customSelections: list(selection({ title }, ['title'])),
    financialPriorities: list({ enum: financialPriorities }),
    livingStatus: { enum: [...livingStatuses, null] },
    billsAndDebt: list({ enum: billsAndDebts }),
  },
};

/** Does not coerce values, add defaults or drop fields, and reports all errors. */
export const ajvOptions = { allErrors: true, coerceTypes: false, removeAdditional: false, useDefaults: false };

/** Adds rules that JSON Schema lacks; its `maxLength` counts code points. */
export function addKeywords(ajv) {
  const text = { type: 'string', errors: false };
  ajv.addKeyword({ ...text, keyword: 'maxUnits', validate: (most, value) => value.length <= most });
  ajv.addKeyword({ ...text, keyword: 'storable', validate: (_, value) => isStorable(value) });
  ajv.addKeyword({ ...text, keyword: 'notBlank', validate: (_, value) => /\S/.test(value) });
  ajv.addKeyword({
    type: 'number',
    errors: false,
    keyword: 'safeInteger',
    validate: (_, value) => Number.isSafeInteger(value),
  });
  return ajv;
}

/** The first error of each field. */
export function findFieldErrors(ajvErrors) {
  const byPointer = new Map();
  for (const error of ajvErrors) {
    const found = toFieldError(error);
    if (!byPointer.has(found.pointer)) byPointer.set(found.pointer, found);
  }
  return [...byPointer.values()];
}

function toFieldError({ keyword, instancePath, params }) {
  switch (keyword) {
    case 'additionalProperties':
      return fieldError(instancePath + toPointer([params.additionalProperty]), 'unknown_field');
    case 'required':
      return fieldError(instancePath + toPointer([params.missingProperty]), 'required');
    case 'type':
      return fieldError(instancePath, [params.type].flat()[0]);
    case 'enum':
      return fieldError(instancePath, 'picklist', params.allowedValues.filter((value) => value !== null).join(', '));
    case 'minimum':
      return fieldError(instancePath, 'min_value', params.limit);
    case 'minLength':
      return fieldError(instancePath, 'min_length', params.limit);
    case 'maxUnits':
      return fieldError(instancePath, 'max_length', maxTitleLength);
    case 'safeInteger':
      return fieldError(instancePath, 'safe_integer');
    case 'storable':
      return fieldError(instancePath, 'storable_text');
    case 'notBlank':
      return fieldError(instancePath, 'not_blank');
    default:
      return fieldError(instancePath, keyword);
  }
}
