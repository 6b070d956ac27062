import { problemKinds } from '../shared/problems';

/** Run where the client is built, which then holds the names and none of the service's texts. */
export function knownSlugs(): string[] {
  return Object.keys(problemKinds);
}
