/**
 * Prints what `openapi-typescript` makes of the document at an address. It prints by the API of the compiler, which
 * TypeScript 7 does not have: it alone gets TypeScript 5.
 */
const typescript5 = await import('typescript-5');
Bun.plugin({
  name: 'typescript-5',
  setup: (build) => void build.module('typescript', () => ({ exports: typescript5, loader: 'object' })),
});
const { astToString, default: toTypes } = await import('openapi-typescript');
process.stdout.write(astToString(await toTypes(await (await fetch(process.argv[2] ?? '')).json())));

export {};
