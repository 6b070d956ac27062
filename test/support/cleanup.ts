const works: (() => unknown)[] = [];

/** Runs `work` after the last test, for example to end a process or remove a folder. */
export function atEnd(work: () => unknown): void {
  works.push(work);
}

export async function cleanUp(): Promise<void> {
  for (const work of works.splice(0).reverse()) await work();
}
