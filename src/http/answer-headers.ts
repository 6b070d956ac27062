/**
 * The headers of every answer, a failure or a page as well, unless it says otherwise itself: nothing of an answer is
 * run, framed, guessed at, or kept by whoever passes it on.
 */
export function answerHeaders(publicUrl: string | undefined): Record<string, string> {
  return {
    'cache-control': 'no-store',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    ...(publicUrl?.startsWith('https:') ? { 'strict-transport-security': 'max-age=31536000' } : {}),
  };
}
