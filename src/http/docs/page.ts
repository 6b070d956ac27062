import { randomBytes } from 'node:crypto';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { swagger } from '@elysiajs/swagger';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import packageJson from '../../../package.json' with { type: 'json' };
import type { DemoTokens } from '../../auth/signing';
import type { AppDeps } from '../../deps';
import { lazy } from '../../shared/async';
import { packageRoot } from '../../shared/build';
import { createGzipResponse, isNotModified } from '../response';
import examples from './examples.json' with { type: 'json' };
import { bearerScheme, type Models, toPaths, toSchemas } from './openapi';
import { type DocumentedRoute, scriptPath, specPath, swaggerPath } from './problem-pages';

export interface DocsSubject {
  readonly config: Pick<AppDeps['config'], 'publicUrl' | 'bodyLimitBytes'>;
  readonly models: Models;
  readonly routes: readonly DocumentedRoute[];
  readonly content: {
    /** The introduction; `base` is the base of each link. */
    readonly introduction: (base: string) => string;
    readonly tags: readonly { readonly name: string; readonly description: string }[];
    readonly tagGroups: readonly { readonly name: string; readonly tags: readonly string[] }[];
  };
}

const everyMethod = ['GET', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE', 'ALL', 'WS'];
const PackageFile = v.object({ version: v.string() });

/**
 * The responses of the documentation. The swagger plugin runs in an app that never listens, without its own scan of the
 * routes, because it cannot read valibot schemas and throws for some of them.
 */
export async function createDocsResponses({ config, models, routes, content }: DocsSubject) {
  const { publicUrl, bodyLimitBytes } = config;
  // The type of the plugin's options lacks this extension.
  const groups = { 'x-tagGroups': content.tagGroups };
  const scalarPath = Bun.resolveSync('@scalar/api-reference/package.json', fileURLToPath(packageRoot));
  const scalarPackage = pathToFileURL(scalarPath);
  const { version: scalarVersion } = v.parse(PackageFile, await Bun.file(scalarPackage).json());
  const scriptResponse = createGzipResponse(Bun.file(new URL('./dist/browser/standalone.js', scalarPackage)));
  const base = publicUrl ?? '';
  const info = {
    title: 'Personal planning service',
    version: packageJson.version,
    summary: packageJson.description,
    description: content.introduction(base),
  };
  const plugin = new Elysia().use(
    swagger({
      path: swaggerPath,
      specPath,
      excludeMethods: everyMethod,
      scalarCDN: `${scriptPath}?v=${scalarVersion}`,
      documentation: {
        openapi: '3.1.0',
        info,
        servers: [{ url: publicUrl ?? '/' }],
        tags: [...content.tags],
        ...groups,
        components: {
          securitySchemes: {
            [bearerScheme]: {
              type: 'http',
              scheme: 'bearer',
              bearerFormat: 'JWT',
              description:
                'On the machine of the service, the buttons at the top of /swagger fill in a demo token. Other tokens are ' +
                'JWTs whose `sub` identifies the person.',
            },
          },
          schemas: toSchemas(routes, { models, base }),
        },
        paths: toPaths(routes, { models, examples, base, bodyLimitBytes }),
      },
    }),
  );
  const read = async (path: string) => (await plugin.handle(new Request(`http://localhost${path}`))).text();
  const document = lazy(async () => {
    const text = await read(specPath);
    return { tag: `"${Bun.hash(text).toString(36)}"`, respond: createGzipResponse(new Blob([text])) };
  });
  const html = lazy(async () =>
    (await read(swaggerPath)).replaceAll(info.description, info.summary).replace('<html>', '<html lang="en">'),
  );

  return {
    async pageResponse(tokens: DemoTokens | undefined): Promise<Response> {
      const nonce = randomBytes(16).toString('base64');
      const page = (await html())
        .replace('<head>', '<head><script>globalThis.__zod_globalConfig = { jitless: true };</script>')
        .replace(
          /<script\s+id="api-reference"[\s\S]*?<\/script>/,
          () => `<style>${style}</style>${tokenButtons(tokens)}<div id="reference"></div>`,
        )
        .replace('</body>', () => `<script>${startScript(tokens)}</script></body>`)
        .replaceAll('<script', `<script nonce="${nonce}"`);
      return new Response(page, {
        headers: {
          'content-type': 'text/html; charset=utf-8',
          'content-security-policy': pagePolicy(nonce, publicUrl),
        },
      });
    },
    async documentResponse(request: Request): Promise<Response> {
      const { tag, respond } = await document();
      // A weak ETag, because the compressed form has the same one.
      const headers = { etag: `W/${tag}`, 'cache-control': 'no-cache' };
      if (isNotModified(request, tag)) return new Response(null, { status: 304, headers });
      return respond(request, { ...headers, 'content-type': 'application/json;charset=utf-8' });
    },
    /** The program of the page, which has five megabytes, or 1.4 compressed. */
    scriptResponse: (request: Request): Promise<Response> =>
      scriptResponse(request, {
        'content-type': 'text/javascript; charset=utf-8',
        'cache-control': request.url.endsWith(`?v=${scalarVersion}`)
          ? 'public, max-age=31536000, immutable'
          : 'public, max-age=3600',
      }),
  };
}

function pagePolicy(nonce: string, publicUrl: string | undefined): string {
  return [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    // Scalar sets styles in ways that no nonce covers.
    "style-src 'unsafe-inline'",
    "img-src 'self' data:",
    `connect-src 'self'${publicUrl === undefined ? '' : ` ${publicUrl}`}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

/** Turns off the features of Scalar that send the document or requests to another host. */
const scalarConfiguration = {
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

/**
 * Scalar overrides: text contrast of at least 4.5, no horizontal overflow on phones, a height limit for responses, and the
 * height of the token bar.
 */
const style = `
  .light-mode {
    --scalar-color-2: #595959; --scalar-color-3: #666; --scalar-color-accent: #b3134f;
    --scalar-color-green: #04704a; --scalar-color-blue: #0068a6; --scalar-color-orange: #a34700;
    --scalar-color-red: #c40005; --scalar-color-yellow: #7a5b00;
  }
  .dark-mode { --scalar-color-3: rgb(255 255 255 / 60%); }
  :root:has(.token) { --scalar-custom-header-height: 2.75rem; }
  .t-doc__header header span { overflow: hidden; text-overflow: ellipsis; }
  .response-card .scalar-card-content:not(.scalar-card-header) { max-height: 70vh; }
  .token {
    position: sticky; top: 0; z-index: 100; box-sizing: border-box; height: 2.75rem; padding: 0 1rem;
    display: flex; align-items: center; gap: 0.5rem; white-space: nowrap;
    font: 0.875rem/1.5 system-ui, sans-serif; background: #1e293b; color: #fff;
  }
  .token button { font: inherit; min-height: 1.75rem; padding: 0 0.5rem; background: none; border: 1px solid #fff; border-radius: 0.25rem; color: #fff; }
`;

function tokenButtons(tokens: DemoTokens | undefined): string {
  if (tokens === undefined) return '';
  const buttons = Object.keys(tokens).map((name) => `<button type="button" value="${name}">${name}</button>`);
  return `<section class="token" aria-label="Demo tokens">Use the token of ${buttons.join('')}</section>`;
}

/** A click on a button restarts Scalar, because it prefers a token that was typed to the configured one. */
function startScript(tokens: DemoTokens | undefined): string {
  return `
    const tokens = ${inScript(tokens ?? {})};
    const start = (name) => Scalar.createApiReference('#reference', {
      ...${inScript(scalarConfiguration)},
      authentication: {
        preferredSecurityScheme: '${bearerScheme}',
        securitySchemes: { ${bearerScheme}: { token: tokens[name] ?? '' } },
      },
    });
    let reference = start('demo-user');
    for (const button of document.querySelectorAll('.token button')) {
      button.addEventListener('click', () => {
        reference.destroy();
        reference = start(button.value);
      });
    }
  `;
}

/** A JSON literal that cannot end the script element. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}
