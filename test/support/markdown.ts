/** What a page shows to be run or to be answered, in the order in which it is read. */
export interface Shown {
  /** The language of a fenced block; `command` for one in the first cell of a table that is headed so. */
  readonly kind: string;
  /** What the fence says after the language. */
  readonly note: string;
  readonly text: string;
  readonly line: number;
}

/** Everything that is shown, and the words around it. */
export function readMarkdown(page: string): { shown: Shown[]; prose: string } {
  const shown: Shown[] = [];
  const prose: string[] = [];
  let open: (Shown & { readonly lines: string[] }) | undefined;
  let isTableOfCommands = false;
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
    isTableOfCommands = line.startsWith('|') && (isTableOfCommands || line.startsWith('| command |'));
    const command = isTableOfCommands ? /^\| `([^`]+)` \|/.exec(line)?.[1] : undefined;
    if (command !== undefined) shown.push({ kind: 'command', note: '', text: command, line: index + 1 });
  }
  if (open !== undefined) shown.push({ ...open, kind: 'a fence that is not closed' });
  return { shown, prose: prose.join('\n') };
}

/** The code within the words, each piece on one line. */
export function inlineCode(prose: string): string[] {
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code.replaceAll(/\s+/g, ' '));
}
