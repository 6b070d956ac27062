/** A fenced block of a page. */
export interface Shown {
  /** The language of a fenced block. */
  readonly kind: string;
  /** The words after the language. */
  readonly note: string;
  readonly text: string;
  readonly line: number;
}

/** Splits a page into its fenced blocks and its prose. */
export function readMarkdown(page: string): { shown: Shown[]; prose: string } {
  const shown: Shown[] = [];
  const prose: string[] = [];
  let open: (Shown & { readonly lines: string[] }) | undefined;
  for (const [index, line] of page.split('\n').entries()) {
    const fence = /^\s*(?:```|~~~)(\S*) ?(.*)$/.exec(line);
    if (open !== undefined) {
      if (fence === null) open.lines.push(line);
      else {
        shown.push({ ...open, text: open.lines.join('\n') });
        open = undefined;
      }
      continue;
    }
    if (fence !== null) {
      open = { kind: fence[1] ?? '', note: fence[2] ?? '', text: '', line: index + 1, lines: [] };
      continue;
    }
    prose.push(line);
  }
  if (open !== undefined) shown.push({ ...open, kind: 'a fence that is not closed' });
  return { shown, prose: prose.join('\n') };
}

/** Returns the block that follows a block of commands directly and shows their output, if there is one. */
export function shownOutput(shown: readonly Shown[], { line, text }: Shown): Shown | undefined {
  const next = line + text.split('\n').length + 2;
  return shown.find((block) => block.line === next && ['json', 'text'].includes(block.kind));
}

/** Returns the inline code of the prose, each piece on one line. */
export function inlineCode(prose: string): string[] {
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code.replaceAll(/\s+/g, ' '));
}
