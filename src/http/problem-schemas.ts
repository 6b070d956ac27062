import { type ProblemSlug, problemKinds } from '../errors';

/** A component for each problem, by which generated types tell them apart. */
export function problemSchemas(slugs: readonly ProblemSlug[]): Record<string, object> {
  return Object.fromEntries(
    slugs.map((slug) => {
      const { code, status, meaning } = problemKinds[slug];
      const fixed = {
        type: { const: `/problems/${slug}` },
        status: { const: status },
        code: { const: code },
        http_code: { const: status },
      };
      const required = [...Object.keys(fixed), ...(slug === 'invalid-input' ? ['errors'] : [])];
      return [
        nameOf(slug),
        {
          description: meaning,
          allOf: [{ $ref: '#/components/schemas/Problem' }, { type: 'object', properties: fixed }],
          required,
        },
      ];
    }),
  );
}

/** What a status may be answered with. */
export function problemSchema(slugs: readonly ProblemSlug[]): object {
  const [first, ...others] = slugs.map((slug) => ({ $ref: `#/components/schemas/${nameOf(slug)}` }));
  return first !== undefined && others.length === 0 ? first : { oneOf: [first, ...others] };
}

function nameOf(slug: ProblemSlug): string {
  return slug.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
