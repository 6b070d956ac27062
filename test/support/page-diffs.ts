/** The change of one file in a `diff` block: pairs of the lines before and after. */
interface FileChange {
  readonly path: string;
  readonly hunks: readonly { readonly before: string; readonly after: string }[];
}

/** Reads a unified diff whose hunks begin with `@@` and have no line numbers, so that it stays valid when lines move. */
export function readDiff(diff: string): FileChange[] {
  return diff.split(/^(?=--- )/m).map((change) => {
    const [head = '', ...hunks] = change.split(/^@@.*\n/m);
    const path = /^\+\+\+ b\/(.+)$/m.exec(head)?.[1] ?? '';
    return {
      path,
      hunks: hunks.map((hunk) => {
        const lines = hunk.replace(/\n$/, '').split('\n');
        const without = (mark: string) =>
          lines.filter((line) => !line.startsWith(mark)).map((line) => `${line.slice(1)}\n`);
        return { before: without('+').join(''), after: without('-').join('') };
      }),
    };
  });
}

/**
 * Applies the hunks of one file to its text.
 *
 * @throws Error if the lines before a change are not exactly once in the text
 */
export function applyChange({ path, hunks }: FileChange, text: string): string {
  return hunks.reduce((changed, { before, after }) => {
    const places = changed.split(before).length - 1;
    if (before === '' || places !== 1) throw new Error(`${path} has these lines ${places} times:\n${before}`);
    return changed.replace(before, () => after);
  }, text);
}
