import { problemsAnywhere } from './problem';

/** What a frontend developer reads first; `base` stands before the path of each link. */
export function introduction(base: string): string {
  const anywhere = problemsAnywhere.map((slug) => `[\`${slug}\`](${base}/problems/${slug})`).join(', ');
  return `
From the answers of a person to a matched insurance product and an application at the carrier, one JSON call a step.

## First call

Every path below \`/v2/private/\` wants a JWT as \`Authorization: Bearer <token>\`. Its \`sub\` is whose record is read and
written; nothing in a path or body can name somebody else. In development the start makes two tokens and keeps them in
the file that it prints as \`tokens\`: \`demo-user\`, and \`demo-manager\`, who may read the sales report.

## The journey

1. **Profile**: \`POST /v2/private/user/profile\`. The first save, of whatever section, makes the record.
2. **Long-term care**: \`POST /v2/private/ltc/lifetimeCare\`.
3. **Deep dives**: \`POST /v2/private/deepDives/lifeInsurance\` and \`…/lifetimeCare\`.
4. **Matches**: \`POST /v2/private/engine/matches\`, with \`?explain=true\` to say why; \`…/preview\` for what-ifs.
5. **Coverage**: \`POST /v2/private/ltc/totalCoverage\` or \`/life/totalCoverage\` starts the application.
6. **User object**: \`GET /v2/private/user\` reads everything back.

Each save returns the whole user object, so a frontend keeps the response and asks for nothing twice. A field that is left
out stays as it is, \`null\` clears it, a list is replaced whole. A section is accepted as it is returned.

Values are stored in one form. Each text is trimmed and composed (NFC); names and e-mail also lose characters that show
nothing, such as U+200B. Items of a list that repeat are stored once. Numbers with more than two decimals are rounded.
Query values and \`gender\` may have any case. A field or query parameter that an operation does not have is a 422.

## When it fails

Every failure is \`application/problem+json\`. Decide by \`type\` or \`code\`, which never change; show your own words. A 422
\`invalid-input\` lists every fault at once, each with the \`pointer\` of its field. Each operation lists the problems that it
can answer, and [a page for each](${base}/problems) says what to do. Any address at all may answer ${anywhere}.
Quote \`requestId\`, or the header \`X-Request-Id\`, to whoever runs the service.

## Saving over nobody

Each response that moved the record has its \`ETag\`, and so has a 412. Sent back as \`If-Match\`, it makes a save fail with 412
when the record has moved on meanwhile; sent as \`If-None-Match\`, it makes a read respond with 304 while it has not.
\`If-None-Match: *\` makes a save create the record only. No other user, record or restart has the same tag, and the forms
that compressing proxies make of it (\`W/"…"\`, \`"…-gzip"\`) are accepted. Conditions follow RFC 9110 §13, without dates.

## Repeating

Every save may be repeated. An application is started once for the same person and data, however often the button is
pressed; an \`Idempotency-Key\` of your own holds for a day besides. After a 409, 429, 502, 503 or 504 wait for the seconds
in \`Retry-After\`.

## Limits

Where limits are on, \`RateLimit\` says what is left of the minute and \`RateLimit-Policy\` how much there is; past it the
answer is 429. Starting an application has a stricter limit of its own.
`.trim();
}

/** The groups of the operations in the order of the journey, and what each is for. */
export const tags = [
  { name: 'Profile', description: 'Step 1. Who the person is: age, state and health decide what they may be offered.' },
  { name: 'Long-term care', description: 'Step 2. How and where they want to be cared for, and what it may cost.' },
  { name: 'Deep dives', description: 'Step 3. More answers, for life insurance and for lifetime care, in any order.' },
  {
    name: 'Matches',
    description:
      'Step 4. Products by score, the best first, with the reason of every point; or what would come of other answers.',
  },
  {
    name: 'Coverage',
    description: 'Step 5. An application at the partner carrier, started once, with its number and pricing.',
  },
  { name: 'User object', description: 'Step 6. All that was saved, matched and priced, in one object.' },
  { name: 'Lists', description: 'What forms and pages are filled with: options to choose from, and cemeteries.' },
  { name: 'Sales', description: 'For sales managers: what their team has sold in a month.' },
  { name: 'Operation', description: 'For whoever watches the service; no token is needed.' },
];

export const tagGroups = [
  { name: 'The journey', tags: ['Profile', 'Long-term care', 'Deep dives', 'Matches', 'Coverage', 'User object'] },
  { name: 'Lists and reports', tags: ['Lists', 'Sales'] },
  { name: 'Watching it', tags: ['Operation'] },
];
