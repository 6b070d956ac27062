import { swagger } from '@elysiajs/swagger';
import { Elysia } from 'elysia';
import packageJson from '../../package.json' with { type: 'json' };
import type { DemoTokens } from '../auth/development-key';
import answers from './answer-examples.json' with { type: 'json' };
import { type DocsSubject, scriptPath, specPath, swaggerPath } from './docs';
import { introduction, tagGroups, tags } from './docs-introduction';
import { bearerScheme, toPaths, toSchemas } from './openapi';

/** What the plugin’s types do not know. */
const groups = { 'x-tagGroups': tagGroups };

const everyMethod = ['GET', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE', 'ALL', 'WS'];

/**
 * What the documentation serves, as an app that never listens. The plugin cannot read valibot schemas and fails on some
 * of them, so its own scan is off, and it is told the routes.
 *
 * @param scriptVersion of the page's program, so that a browser keeps that for as long as it is the same
 */
export function createDocsPage({ config, models, routes }: DocsSubject, scriptVersion: string) {
  const { publicUrl, bodyLimitBytes } = config;
  const base = publicUrl ?? '';
  const info = {
    title: 'Personal planning service',
    version: packageJson.version,
    summary: packageJson.description,
    description: introduction(base),
  };
  const app = new Elysia().use(
    swagger({
      path: swaggerPath,
      specPath,
      excludeMethods: everyMethod,
      scalarCDN: `${scriptPath}?v=${scriptVersion}`,
      documentation: {
        openapi: '3.1.0',
        info,
        servers: [{ url: publicUrl ?? '/' }],
        tags,
        ...groups,
        components: {
          securitySchemes: {
            [bearerScheme]: {
              type: 'http',
              scheme: 'bearer',
              bearerFormat: 'JWT',
              description: 'Whose `sub` names the person. In development the start prints where two to try are.',
            },
          },
          schemas: toSchemas(models, routes),
        },
        paths: toPaths(routes, { models, answers, base, bodyLimitBytes }),
      },
    }),
  );
  return {
    /** The page, ready to send with the tokens that it is given. */
    async html(tokens: DemoTokens | undefined): Promise<string> {
      const plain = await (await app.handle(new Request(`http://localhost${swaggerPath}`))).text();
      return plain
        .replaceAll(info.description, info.summary)
        .replace('<html>', '<html lang="en">')
        .replace(
          /<script\s+id="api-reference"[\s\S]*?<\/script>/,
          () => `<style>${style}</style>${tokenChoice(tokens)}<div id="reference"></div>`,
        )
        .replace('</body>', () => `<script>${startScript(tokens)}</script></body>`);
    },
    document: () => app.handle(new Request(`http://localhost${specPath}`)),
  };
}

/** Without the parts of the page that send the document, or what is asked about it, to another host. */
const pageConfiguration = {
  url: specPath,
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  documentDownloadType: 'direct',
  orderSchemaPropertiesBy: 'preserve',
  defaultHttpClient: { targetKey: 'js', clientKey: 'fetch' },
};

const people = {
  'demo-user': 'demo-user, who plans',
  'demo-manager': 'demo-manager, who leads a sales team',
} as const satisfies Record<keyof DemoTokens, string>;

/** What the page's own program lets stick out at the side of a phone, or makes as long as the longest answer. */
const style = `
  .t-doc__header header span { overflow: hidden; text-overflow: ellipsis; }
  .response-card .scalar-card-content:not(.scalar-card-header) { max-height: 70vh; }
  .token { font: 0.875rem/1.5 system-ui, sans-serif; padding: 0.5rem 1.5rem; background: #1e293b; color: #fff; }
  .token select { font: inherit; max-width: 100%; }
`;

function tokenChoice(tokens: DemoTokens | undefined): string {
  if (tokens === undefined) return '';
  const options = Object.entries(people).map(([name, text]) => `<option value="${name}">${text}</option>`);
  return `
    <section class="token" aria-label="Demo token">
      <label>Requests are sent with the token of <select autocomplete="off">${options.join('')}</select></label>
    </section>`;
}

function startScript(tokens: DemoTokens | undefined): string {
  return `
    const configuration = ${inScript(pageConfiguration)};
    const tokens = ${inScript(tokens ?? {})};
    const withToken = (token) => ({
      ...configuration,
      authentication: {
        preferredSecurityScheme: ${inScript(bearerScheme)},
        ...(token && { securitySchemes: { [${inScript(bearerScheme)}]: { token } } }),
      },
    });
    const reference = Scalar.createApiReference('#reference', withToken(tokens['demo-user']));
    document
      .querySelector('.token select')
      ?.addEventListener('change', ({ target }) => reference.updateConfiguration(withToken(tokens[target.value])));
  `;
}

/** As a literal that cannot end the script it stands in. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}
