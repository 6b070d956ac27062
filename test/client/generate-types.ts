/**
 * Prints the types that `openapi-typescript` generates for the document at a URL. It needs the compiler API, which
 * TypeScript 7 does not have, so it gets TypeScript 5.
 */
const typescript5 = await import('typescript-5');
Bun.plugin({
  name: 'typescript-5',
  setup: (build) => void build.module('typescript', () => ({ exports: typescript5, loader: 'object' })),
});
const { astToString, default: toTypes } = await import('openapi-typescript');
process.stdout.write(astToString(await toTypes(await (await fetch(process.argv[2] ?? '')).json())));

export {};
