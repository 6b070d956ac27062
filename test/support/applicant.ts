/** A valid applicant whose names and e-mail address must not appear in a log. */
export const canaryApplicant = {
  firstName: 'Canaryfirst',
  lastName: 'Canarylast',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'canary@example.com',
} as const;

/** Another valid applicant. */
export const applicant = {
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'ada@example.com',
} as const;
