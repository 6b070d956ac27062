import * as v from 'valibot';
import { ageOn, type CalendarDate, parseCalendarDate } from '../../shared/calendar';
import { StoredPricing } from '../../shared/carrier';
import {
  anyCase,
  fields,
  line,
  personName,
  roundedToHundredths,
  StateCode,
  withoutInvisible,
} from '../../shared/fields';
import { LifeInsurance, LifetimeCare, LtcLifetimeCare } from '../answers/model';
import { Matches } from '../matching/model';

const maxAgeYears = 120;
export const genders = ['Male', 'Female'] as const;

const HeightCm = v.pipe(
  v.number(),
  v.description('Centimetres, rounded to two decimals'),
  roundedToHundredths,
  v.minValue(50),
  v.maxValue(300),
);
const WeightKg = v.pipe(
  v.number(),
  v.description('Kilograms, rounded to two decimals'),
  roundedToHundredths,
  v.minValue(10),
  v.maxValue(700),
);

/** Permissive: apostrophes and other scripts occur in valid addresses. */
const emailShape = /^[^\s@<>(),;:"\\]+@[^\s@<>(),;:"\\.]+(?:\.[^\s@<>(),;:"\\.]+)+$/;
const Email = v.pipe(line(254, withoutInvisible), v.regex(emailShape, 'email: must be an e-mail address'));

/** Parses an ISO 8601 date or date-time of birth into the calendar date as written. */
export function dateOfBirth(today: () => CalendarDate) {
  return v.pipe(
    v.string(),
    v.description(
      'YYYY-MM-DD, or a date-time that begins so. The calendar date as written counts, regardless of the offset. A date-time ' +
        'whose offset is `Z` and whose time is not midnight is ambiguous: it may be a local midnight in UTC, which is ' +
        'the day before east of Greenwich. Send the date alone',
    ),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const date = parseCalendarDate(dataset.value);
      if (date === undefined) {
        addIssue({ message: 'calendar_date: must be a date that exists, as YYYY-MM-DD or a date-time that begins so' });
        return NEVER;
      }
      return date;
    }),
    v.check((date) => date < today(), 'past_date: must lie in the past'),
    v.check((date) => ageOn(date, today()) <= maxAgeYears, `max_age: must make an age of at most ${maxAgeYears} years`),
  );
}

/** The fields that identify a person to a partner carrier. */
export function identityFields(today: () => CalendarDate) {
  return {
    firstName: personName(100),
    lastName: personName(100),
    dateOfBirth: dateOfBirth(today),
    gender: v.pipe(anyCase(genders), v.description('In any case')),
    state: StateCode,
    email: Email,
  };
}

/** A request with answers of the profile. */
export function profileAnswers(today: () => CalendarDate) {
  const identity = identityFields(today);
  return fields({
    firstName: v.nullish(identity.firstName),
    lastName: v.nullish(identity.lastName),
    dateOfBirth: v.nullish(identity.dateOfBirth),
    gender: v.nullish(identity.gender),
    state: v.nullish(identity.state),
    email: v.nullish(identity.email),
    heightCm: v.nullish(HeightCm),
    weightKg: v.nullish(WeightKg),
    seriousIllness: v.nullish(v.boolean()),
    inCare: v.nullish(v.boolean()),
    tobacco: v.nullish(v.boolean()),
  });
}

export const profileExamples = {
  'some answers': { firstName: 'Ada', dateOfBirth: '1956-12-10', state: 'VA', heightCm: 165, weightKg: 61.5 },
} satisfies Record<string, v.InferInput<ReturnType<typeof profileAnswers>>>;

/** `user.profile`. Bounds of requests do not apply: every stored value stays readable. */
export const Profile = v.object({
  firstName: v.optional(v.string()),
  lastName: v.optional(v.string()),
  dateOfBirth: v.optional(v.pipe(v.string(), v.description('YYYY-MM-DD'))),
  gender: v.optional(v.picklist(genders)),
  state: v.optional(v.string()),
  email: v.optional(v.string()),
  heightCm: v.optional(v.number()),
  weightKg: v.optional(v.number()),
  seriousIllness: v.optional(v.boolean()),
  inCare: v.optional(v.boolean()),
  tobacco: v.optional(v.boolean()),
});
export type Profile = v.InferOutput<typeof Profile>;

/** `user.insurance`: a result, replaced as a whole. */
const Insurance = v.object({ matches: v.optional(Matches) });

/** `user.purchase`: the application of the latest response, replaced as a whole. */
export const Purchase = v.object({
  partner: v.optional(
    v.object({ appNumber: v.pipe(v.number(), v.description('The carrier’s number')), pricing: StoredPricing }),
  ),
});
export type Purchase = v.InferOutput<typeof Purchase>;

/** The user object. An empty section is `{}`. */
export const User = v.object({
  id: v.string(),
  createdAt: v.pipe(v.string(), v.description('ISO 8601, UTC')),
  updatedAt: v.pipe(
    v.string(),
    v.description(
      'ISO 8601, UTC; changes with an answer, a result, or the section whose answer to a shared question is the newest',
    ),
  ),
  profile: Profile,
  insurance: Insurance,
  ltc: v.object({ lifetimeCare: v.optional(LtcLifetimeCare) }),
  purchase: Purchase,
  lifeInsurance: LifeInsurance,
  lifetimeCare: LifetimeCare,
});

export const UserBody = v.object({ user: User });
export type UserBody = v.InferOutput<typeof UserBody>;
