/** The errors of the three routes, with the texts and codes of the service. */
const kinds = {
  'malformed-json': {
    code: 200,
    status: 400,
    title: 'Malformed JSON',
    detail: 'The request body is not valid JSON in UTF-8.',
  },
  'invalid-input': {
    code: 201,
    status: 422,
    title: 'Invalid input',
    detail: 'At least one field breaks a rule. Nothing was stored.',
  },
  'unsupported-media-type': {
    code: 202,
    status: 415,
    title: 'Unsupported media type',
    detail: 'The Content-Type of the body is missing or is not JSON in UTF-8.',
  },
  'payload-too-large': {
    code: 203,
    status: 413,
    title: 'Body too large',
    detail: 'The request body is larger than this service accepts.',
  },
  'malformed-request': {
    code: 204,
    status: 400,
    title: 'Malformed request',
    detail: 'The request is incomplete, or is not well-formed HTTP.',
  },
  unauthenticated: {
    code: 210,
    status: 401,
    title: 'Authentication required',
    detail: 'The request has no bearer token, or the token is expired, malformed or not meant for this service.',
  },
  'route-not-found': {
    code: 230,
    status: 404,
    title: 'Path not found',
    detail: 'No endpoint has this path. Paths are case-sensitive.',
  },
  'user-not-found': {
    code: 232,
    status: 404,
    title: 'User not found',
    detail: 'The signed-in person has no record. The first save creates it.',
  },
  'internal-error': {
    code: 300,
    status: 500,
    title: 'Internal error',
    detail: 'The service has an unexpected error.',
  },
};

/**
 * An error whose text is part of the response.
 *
 * @typedef {{ pointer: string, rule: string, message: string }} FieldError
 */
export class Problem extends Error {
  /**
   * @param {keyof typeof kinds} slug
   * @param {{ detail?: string, errors?: FieldError[], headers?: Record<string, string>, cause?: unknown }} [options]
   */
  constructor(slug, { detail = kinds[slug].detail, errors, headers = {}, cause } = {}) {
    super(detail, { cause });
    this.slug = slug;
    this.status = kinds[slug].status;
    this.errors = errors;
    this.headers = headers;
  }
}

/**
 * The status, headers and RFC 9457 body of an error response.
 *
 * @param {Problem} problem
 * @param {{ path: string, requestId: string }} request
 */
export function answerOf(problem, { path, requestId }) {
  const { code, status, title } = kinds[problem.slug];
  const body = {
    type: `/problems/${problem.slug}`,
    title,
    status,
    detail: problem.message,
    instance: path.slice(0, 200),
    code,
    http_code: status,
    requestId,
    ...(problem.errors === undefined ? {} : { errors: problem.errors }),
  };
  return {
    status,
    headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store', ...problem.headers },
    body: JSON.stringify(body),
  };
}

/** @param {number} limitBytes */
export function tooLarge(limitBytes) {
  return new Problem('payload-too-large', { detail: `The body may have at most ${limitBytes} bytes.` });
}

/**
 * @param {string} detail
 * @param {unknown} [cause]
 */
export function unauthenticated(detail, cause) {
  const headers = { 'www-authenticate': 'Bearer realm="personal-planning", error="invalid_token"' };
  return new Problem('unauthenticated', { detail, cause, headers });
}
