/** The methods of every path, for 405 and `Allow`; Elysia itself answers 404 to a wrong method. */
export interface RouteTable {
  fill(routes: readonly { method: string; path: string }[]): void;
  allowedMethods(path: string): string[];
}

export function createRouteTable(): RouteTable {
  const methodsByPattern = new Map<string, { segments: string[]; methods: Set<string> }>();
  return {
    fill(routes) {
      for (const { method, path } of routes) {
        // For probes only.
        if (method === 'OPTIONS') continue;
        const segments = segmentsOf(path);
        const key = segments.join('/');
        const known = methodsByPattern.get(key) ?? { segments, methods: new Set<string>() };
        known.methods.add(method);
        if (method === 'GET') known.methods.add('HEAD');
        methodsByPattern.set(key, known);
      }
    },
    allowedMethods(path) {
      const asked = segmentsOf(path);
      const methods = [...methodsByPattern.values()]
        .filter(({ segments }) => segments.length === asked.length && segments.every(matches(asked)))
        .flatMap((pattern) => [...pattern.methods]);
      return [...new Set(methods)].sort();
    },
  };
}

function segmentsOf(path: string): string[] {
  return path.replace(/\/$/, '').split('/');
}

function matches(asked: readonly string[]) {
  return (segment: string, index: number) => segment.startsWith(':') || segment === asked[index];
}
