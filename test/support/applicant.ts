/** Somebody who can apply, as a frontend sends it; the names and the address are canaries that no log may hold. */
export const canaryApplicant = {
  firstName: 'Canaryfirst',
  lastName: 'Canarylast',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'canary@example.com',
} as const;

/** Somebody else who can apply. */
export const applicant = {
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'ada@example.com',
} as const;
