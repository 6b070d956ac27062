/** Adds to a header that is a list, after what it holds already. */
export function addToHeader(headers: Record<string, string | number | undefined>, name: string, value: string): void {
  const earlier = headers[name];
  headers[name] = earlier === undefined ? value : `${earlier}, ${value}`;
}
