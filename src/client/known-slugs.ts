import { problemKinds } from '../shared/problems';

/** Runs when the client is built, so that the client has the slugs without the texts of the service. */
export function knownSlugs(): string[] {
  return Object.keys(problemKinds);
}
