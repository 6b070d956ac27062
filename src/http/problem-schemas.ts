import { toJsonSchema } from '@valibot/to-json-schema';
import { type ProblemSlug, problemKinds } from '../problems';
import { Problem } from './problem';

/**
 * A component for each problem, so that generated types can distinguish them. Each is one flat object, and every constant
 * has a type, because generators differ in their support of `allOf`, of `required` next to it, and of `const` without a type.
 */
export function problemSchemas(slugs: readonly ProblemSlug[], base: string): Record<string, object> {
  const { properties = {}, required = [] } = toJsonSchema(Problem, { target: 'draft-2020-12', typeMode: 'output' });
  const { errors, ...common } = properties;
  return Object.fromEntries(
    slugs.map((slug) => {
      const { code, status, meaning } = problemKinds[slug];
      const hasErrors = slug === 'invalid-input';
      const constants = Object.entries({ type: `/problems/${slug}`, status, code, http_code: status }).map(
        ([name, value]) => [name, { ...Object(common[name]), const: value }],
      );
      return [
        nameOf(slug),
        {
          description: `${meaning} [How to fix it](${base}/problems/${slug})`,
          type: 'object',
          properties: { ...common, ...Object.fromEntries(constants), ...(hasErrors && { errors }) },
          required: [...required, ...(hasErrors ? ['errors'] : [])],
        },
      ];
    }),
  );
}

/** The schema of a response that may be any of the problems. */
export function problemSchema(slugs: readonly ProblemSlug[]): object {
  const mapping = Object.fromEntries(
    slugs.map((slug) => [`/problems/${slug}`, `#/components/schemas/${nameOf(slug)}`]),
  );
  const references = Object.values(mapping).map(($ref) => ({ $ref }));
  return references.length === 1
    ? { ...references[0] }
    : { oneOf: references, discriminator: { propertyName: 'type', mapping } };
}

function nameOf(slug: ProblemSlug): string {
  return slug.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
