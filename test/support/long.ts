/** Whether the suite runs in its long form, `bun run test:long`, in which some tests run more cases. */
export const isLong = process.env.TEST_LONG === '1';

/** All cases in the long form; the first `shortCount` in the short form. */
export function cases<Case>(all: readonly Case[], shortCount: number): readonly Case[] {
  return isLong ? all : all.slice(0, shortCount);
}

/** A size for the long or the short form. */
export function amount({ long, short }: { readonly long: number; readonly short: number }): number {
  return isLong ? long : short;
}
