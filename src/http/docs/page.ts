import { randomBytes } from 'node:crypto';
import { swagger } from '@elysiajs/swagger';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import packageJson from '../../../package.json' with { type: 'json' };
import type { DemoTokens } from '../../auth/signing';
import { lazy } from '../../shared/async';
import { createGzipResponse, isNotModified } from '../response';
import answers from './examples.json' with { type: 'json' };
import { type DocsSubject, introduction, scriptPath, specPath, swaggerPath, tagGroups, tags } from './introduction';
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
              // Its beginning stands beside the field of the token.
              description:
                'The list at the top of /swagger fills in a demo token. It works only in a browser on the machine of the ' +
                'service. Other tokens are JWTs whose `sub` identifies the person.',
            },
          },
          schemas: toSchemas(routes, { models, base }),
        },
        paths: toPaths(routes, { models, answers, base, bodyLimitBytes }),
      },
    }),
  );
  const document = lazy(async () => {
    const text = await (await app.handle(new Request(`http://localhost${specPath}`))).text();
    return { tag: `"${Bun.hash(text).toString(36)}"`, answer: createGzipResponse(new Blob([text])) };
  });
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
    /** The document, or to whoever has it already, that it is the same. */
    async document(request: Request): Promise<Response> {
      const { tag, answer } = await document();
      // One tag for it with and without compression is a weak one.
      const headers = { etag: `W/${tag}`, 'cache-control': 'no-cache' };
      if (isNotModified(request, tag)) return new Response(null, { status: 304, headers });
      return answer(request, { ...headers, 'content-type': 'application/json;charset=utf-8' });
    },
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

/**
 * Adjusts the theme's colors so that text has a contrast of 4.5 on each background. Fixes elements that overflow on a phone
 * or grow as long as the longest response. Sets the height of the top bar, which the page's program must know.
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
    display: flex; align-items: center;
    font: 0.875rem/1.5 system-ui, sans-serif; background: #1e293b; color: #fff;
  }
  .token label { display: flex; align-items: center; gap: 0.5rem; min-width: 0; white-space: nowrap; }
  .token select { font: inherit; min-width: 0; min-height: 1.75rem; }
`;

function tokenChoice(tokens: DemoTokens | undefined): string {
  if (tokens === undefined) return '';
  const options = Object.entries(people).map(([name, text]) => `<option value="${name}">${text}</option>`);
  return `
    <section class="token" aria-label="Demo token">
      <label>Token of <select autocomplete="off">${options.join('')}<option value="" hidden>nobody here: changed by hand</option></select></label>
    </section>`;
}

/**
 * A token that is typed by hand is kept by the page's program before any that it is configured with, and nobody is told
 * of it: the list asks what is kept, and a choice starts the program anew.
 */
function startScript(tokens: DemoTokens | undefined): string {
  return `
    const tokens = ${inScript(tokens ?? {})};
    const list = document.querySelector('.token select');
    const scheme = ${inScript(bearerScheme)};
    let auth;
    const configured = (token) => ({
      ...${inScript(pageConfiguration)},
      plugins: [() => ({ name: 'token', extensions: [], hooks: { onInit: (given) => void ({ auth } = given) } })],
      authentication: {
        preferredSecurityScheme: scheme,
        ...(token && { securitySchemes: { [scheme]: { token } } }),
      },
    });
    const start = (token) => Scalar.createApiReference('#reference', configured(token));
    const typedToken = () => {
      const [secrets] = Object.values(auth.export()).map(({ secrets }) => secrets?.[scheme] ?? {});
      const { 'x-scalar-secret-token': token, 'x-scalar-secret-cleared-fields': cleared } = secrets ?? {};
      return token || cleared?.length > 0 ? token : undefined;
    };
    let reference = start(tokens[list?.value]);
    if (list) {
      let chosen = list.value;
      list.addEventListener('change', () => {
        chosen = list.value;
        if (typedToken() === undefined) return reference.updateConfiguration(configured(tokens[chosen]));
        reference.destroy();
        reference = start(tokens[chosen]);
      });
      setInterval(() => {
        const typed = typedToken();
        const named = typed === undefined ? chosen : Object.keys(tokens).find((name) => tokens[name] === typed);
        if (list.value !== (named ?? '')) list.value = named ?? '';
      }, 300);
    }
  `;
}

/** As a literal that cannot end the script it stands in. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}

/**
 * Runs before the page's own program, which adds styles in ways that only `unsafe-inline` would allow, and would try
 * whether `eval` is allowed: styles are set by script instead, which a policy takes for the work of the script.
 */
const shim = `
globalThis.__zod_globalConfig = { jitless: true };
(({ nonce }) => {
  const { createElement } = document;
  document.createElement = function (...given) {
    const element = createElement.apply(this, given);
    if (element instanceof HTMLStyleElement) element.nonce = nonce;
    return element;
  };
  const { prototype } = Element;
  const { setAttribute } = prototype;
  prototype.setAttribute = function (name, value) {
    if (name === 'style' && this.style) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  const { get, set } = Object.getOwnPropertyDescriptor(prototype, 'innerHTML');
  Object.defineProperty(prototype, 'innerHTML', {
    configurable: true,
    get,
    set(html) {
      set.call(this, String(html ?? '').replaceAll(' style="', ' data-style="'));
      for (const element of (this.content ?? this).querySelectorAll('[data-style]')) {
        element.style.cssText = element.dataset.style;
      }
    },
  });
})(document.currentScript);
`;

/** The documentation's page under a policy of its own: what it runs and how it looks is what this answer brought. */
export function underPolicy(html: string, publicUrl: string | undefined): Response {
  const nonce = randomBytes(16).toString('base64');
  const page = html
    .replaceAll(/<(script|style)(?=[\s>])/g, `<$1 nonce="${nonce}"`)
    .replace('<head>', `<head><meta property="csp-nonce" content="${nonce}"><script nonce="${nonce}">${shim}</script>`);
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src 'nonce-${nonce}'`,
    "img-src 'self' data:",
    `connect-src 'self'${publicUrl === undefined ? '' : ` ${publicUrl}`}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  return new Response(page, {
    headers: { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy.join('; ') },
  });
}

const PackageFile = v.object({ version: v.string() });

/** The page's own program, from the package that makes it, so that the page loads nothing from another host. */
export async function loadPageProgram() {
  const packageFile = import.meta.resolve('@scalar/api-reference/package.json');
  const { version } = v.parse(PackageFile, await Bun.file(new URL(packageFile)).json());
  const answer = createGzipResponse(Bun.file(new URL('./dist/browser/standalone.js', packageFile)));

  return {
    version,
    /** Five megabytes, or for whoever takes gzip 1.4. */
    answer: (request: Request): Promise<Response> =>
      answer(request, {
        'content-type': 'text/javascript; charset=utf-8',
        // The page asks for it with its version.
        'cache-control': request.url.endsWith(`?v=${version}`)
          ? 'public, max-age=31536000, immutable'
          : 'public, max-age=3600',
      }),
  };
}
