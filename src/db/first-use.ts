/**
 * What `make` gives, made when it is first asked for and kept. Drizzle takes longer to build a statement than the
 * database to run it, so a store keeps its own, but no start builds those that nobody needs yet.
 */
export function onFirstUse<Made extends object>(make: () => Made): () => Made {
  let made: Made | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
