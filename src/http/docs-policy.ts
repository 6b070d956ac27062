import { randomBytes } from 'node:crypto';

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
