import { swagger } from '@elysiajs/swagger';
import { Elysia } from 'elysia';
import packageJson from '../../package.json' with { type: 'json' };
import { type DocsSubject, scriptPath, specPath, swaggerPath } from './docs';
import { bearerScheme, toPaths, toSchemas } from './openapi';

const everyMethod = ['GET', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE', 'ALL', 'WS'];

/**
 * What the documentation serves, as an app that never listens. The plugin cannot read valibot schemas and fails on some
 * of them, so its own scan is off, and it is told the routes.
 */
export function createDocsPage({ publicUrl, models, routes }: DocsSubject) {
  return new Elysia().use(
    swagger({
      path: swaggerPath,
      specPath,
      excludeMethods: everyMethod,
      scalarCDN: scriptPath,
      scalarConfig: pageConfiguration,
      documentation: {
        openapi: '3.1.0',
        info: {
          title: 'Personal planning service',
          version: packageJson.version,
          description:
            'Private API for people who plan their later years. Every answer carries `X-Request-Id`; every failure is ' +
            'a problem body (RFC 9457) whose `type` is a page that explains it. Spaces around a text do not count, nor ' +
            'how its characters are composed.',
        },
        servers: [{ url: publicUrl ?? '/' }],
        tags: Object.entries(tagMeanings).map(([name, description]) => ({ name, description })),
        components: {
          securitySchemes: { [bearerScheme]: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } },
          schemas: toSchemas(models),
        },
        paths: toPaths(routes, models),
      },
    }),
  );
}

/** The groups of the page, in its order. */
const tagMeanings = {
  User: 'The caller’s own record: everything that is known of them',
  'Long-term care': 'The steps of the long-term-care flow',
  'Deep dives': 'The steps of the two deep-dive flows',
  Matching: 'Which insurance products fit the caller, and why',
  Coverage: 'Applications at the partner carrier',
  Cemeteries: 'The cemeteries of the country',
  Sales: 'What a sales manager’s team has sold',
  'Reference lists': 'What the chips of the steps offer',
  Operation: 'For whoever watches the process; needs no token',
};

/** Without the parts of the page that send the document, or what is asked about it, to another host. */
const pageConfiguration = {
  spec: { url: specPath },
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  authentication: { preferredSecurityScheme: bearerScheme },
};
