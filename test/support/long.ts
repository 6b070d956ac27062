/** Whether the suite runs in its long form, by `bun run test:long`: some tests then go through every case. */
export const isLong = process.env.TEST_LONG === '1';

/** All cases in the long form; in the short one those that stand first. */
export function cases<Case>(all: readonly Case[], shortCount: number): readonly Case[] {
  return isLong ? all : all.slice(0, shortCount);
}

/** How much of something: more in the long form. */
export function amount({ long, short }: { readonly long: number; readonly short: number }): number {
  return isLong ? long : short;
}
