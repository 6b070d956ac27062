/**
 * What the sandbox does to an application by the applicant's last name, so that a frontend can meet every failure.
 * Each is of the POST alone: asking for the reference afterwards tells what became of it.
 */
export const magicLastNames = {
  Slow: { does: 'accepts, and answers after a minute', isAccepted: true },
  Dropped: { does: 'accepts, and closes the connection without an answer', isAccepted: true },
  Broken: { does: 'accepts, and answers 500', isAccepted: true },
  Busy: { does: 'does not accept, and answers 429 with Retry-After', isAccepted: false },
  Garbled: { does: 'accepts, and answers a body that is not JSON', isAccepted: true },
  Huge: { does: 'accepts, and answers a body of 50 MB', isAccepted: true },
  Declined: { does: 'declines', isAccepted: false },
  Notfiled: { does: 'says that the product is not filed in the state', isAccepted: false },
} as const;

export type Fault = keyof typeof magicLastNames;

export function faultOf(lastName: string): Fault | undefined {
  return isFault(lastName) ? lastName : undefined;
}

function isFault(name: string): name is Fault {
  return Object.hasOwn(magicLastNames, name);
}
