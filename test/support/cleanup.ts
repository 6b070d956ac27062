const works: (() => unknown)[] = [];

/** Does this when the last test is done: ends a process, removes a folder. */
export function atEnd(work: () => unknown): void {
  works.push(work);
}

export async function cleanUp(): Promise<void> {
  for (const work of works.splice(0).reverse()) await work();
}
