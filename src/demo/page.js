const kinds = [
  ['cemetryPlans', 'Cemetery plans'],
  ['qoutes', 'Quotes'],
  ['qoutesAndContract', 'Quotes with a contract'],
  ['applications', 'Applications'],
  ['monthlyPlan', 'Monthly plans'],
  ['semiAnnualPlan', 'Semi-annual plans'],
];
const rowPixels = 52;
const barPixels = 24;
/** Narrower segments have no room for their number, which the table has. */
const numberPixels = 18;

const byId = (id) => document.getElementById(id);
const money = new Intl.NumberFormat('en-US', { minimumFractionDigits: 2 });
const svgNamespace = 'http://www.w3.org/2000/svg';

function create(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const html = (name, attributes = {}, ...children) => create(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  create(document.createElementNS(svgNamespace, name), attributes, children);

/** A refusal of the API, or that it does not answer, in words. */
class Refusal extends Error {
  constructor(title, detail, type) {
    super(title);
    this.detail = detail;
    this.type = type;
  }
}

async function ask(as, path, { body, signal } = {}) {
  const token = byId(as).value;
  let answer;
  try {
    answer = await fetch(`/v2/private${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      signal,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    throw new Refusal('The service does not answer', 'Is it still running? Load this page again once it is.');
  }
  const content = await answer.json().catch(() => ({}));
  if (answer.ok) return content;
  throw new Refusal(content.title ?? `It answers ${answer.status}`, content.detail ?? '', content.type);
}

/** What each place is being filled with. */
const fillings = new Map();

/** Shows what `make` gives, or why there is nothing to show; no longer once the place is filled with something else. */
async function fill(place, make) {
  fillings.get(place)?.abort();
  const filling = new AbortController();
  fillings.set(place, filling);
  try {
    const content = await make(filling.signal);
    if (!filling.signal.aborted) place.replaceChildren(...content);
  } catch (error) {
    if (filling.signal.aborted) return;
    const { message, detail = '', type } = error;
    const more = type === undefined ? [] : [' ', html('a', { href: type }, 'How to fix it')];
    place.replaceChildren(
      html('p', { class: 'failure', role: 'alert' }, html('strong', {}, message), ` ${detail}`, ...more),
    );
  }
}

async function report(signal) {
  const month = byId('month');
  const label = month.selectedOptions[0].textContent;
  const { data } = await ask('demo-manager', `/user/salesManager/monthly-glance?month=${month.value}`, { signal });
  const people = [
    { name: 'The manager', glance: data.managerReport.glance, earnings: data.managerReport.totalEarnings },
    ...data.counselorsReport.map(({ name, glance, totalMonthlyEarnings }) => ({
      name: `${name.first} ${name.last}`,
      glance,
      earnings: totalMonthlyEarnings,
    })),
  ];
  const team = { name: 'Team', glance: data.teamGlance.glance, earnings: data.teamGlance.totalMonthlyEarnings };
  const { month: reported, timeZone, from, until } = data.period;
  const period = html('p', { class: 'period' }, `${reported} in ${timeZone}: from ${from} until before ${until}.`);
  return [period, html('div', { class: 'side-by-side' }, chart(people, label), table([team, ...people], label))];
}

function chart(people, month) {
  const totals = people.map(({ glance }) => kinds.reduce((sum, [kind]) => sum + (glance[kind] ?? 0), 0));
  const caption = html('figcaption', {}, `Sales by person, ${month}`);
  const largest = Math.max(...totals);
  if (largest === 0) return html('figure', {}, caption, html('p', {}, 'Nothing was sold in this month.'));
  const summary = people.map(({ name }, index) => `${name} ${totals[index]}`).join(', ');
  const drawing = svg('svg', {
    class: 'chart',
    role: 'img',
    'aria-label': `Bars of the sales in ${month}: ${summary}.`,
  });
  const draw = (width) => {
    const pixelsPerSale = (width - 40) / largest;
    drawing.setAttribute('height', people.length * rowPixels);
    drawing.replaceChildren(
      ...people.flatMap((person, row) => bar(person, { top: row * rowPixels, pixelsPerSale, total: totals[row] })),
    );
  };
  new ResizeObserver(([{ contentRect }]) => {
    // It has no width while it is not on the page.
    if (contentRect.width > 0) draw(contentRect.width);
  }).observe(drawing);
  const legend = kinds.map(([, label], index) =>
    html('li', {}, html('span', { class: `swatch kind-${index}` }), label),
  );
  return html('figure', {}, caption, drawing, html('ul', { class: 'legend' }, ...legend));
}

function bar({ name, glance }, { top, pixelsPerSale, total }) {
  let x = 0;
  const barTop = top + 20;
  const textY = barTop + barPixels / 2 + 5;
  const segments = kinds.flatMap(([kind], index) => {
    const count = glance[kind] ?? 0;
    if (count === 0) return [];
    const width = count * pixelsPerSale;
    const rect = svg('rect', { class: `kind-${index}`, x, y: barTop, width, height: barPixels });
    const number = svg('text', { class: 'count', x: x + width / 2, y: textY, 'text-anchor': 'middle' }, String(count));
    x += width;
    return width < numberPixels ? [rect] : [rect, number];
  });
  return [
    svg('text', { x: 0, y: top + 14 }, name),
    ...segments,
    svg('text', { class: 'total', x: x + 6, y: textY }, String(total)),
  ];
}

function table(rows, month) {
  const head = ['Who', ...kinds.map(([, label]) => label), 'Earnings'].map((label) =>
    html('th', { scope: 'col' }, label),
  );
  const body = rows.map(({ name, glance, earnings }) =>
    html(
      'tr',
      {},
      html('th', { scope: 'row' }, name),
      ...kinds.map(([kind]) => html('td', {}, glance[kind] === undefined ? '–' : String(glance[kind]))),
      html('td', {}, money.format(earnings)),
    ),
  );
  return html(
    'div',
    { class: 'scrolling', role: 'region', tabindex: '0', 'aria-label': `Table of the sales in ${month}` },
    html(
      'table',
      {},
      html('caption', {}, `The same in numbers, ${month}`),
      html('thead', {}, html('tr', {}, ...head)),
      html('tbody', {}, ...body),
    ),
  );
}

async function matched() {
  const saved = await preview({});
  const products = ranked(saved);
  // What nobody answered leaves a rule unknown, so one that is not met is told by an answer.
  const hasAnswers = products.some(({ explanation }) => explanation.rules.some(({ outcome }) => outcome === 'not-met'));
  if (hasAnswers) {
    const { user } = await ask('demo-user', '/user');
    return [html('h3', {}, 'Matched to the record of demo-user'), record(user), application(user), list(saved)];
  }
  const answers = await (await fetch('/demo/answers.json')).json();
  return [
    html('h3', {}, 'Matched to example answers'),
    html(
      'p',
      {},
      'demo-user has answered too little to match, so these answers are tried and not saved. Start with ',
      html('code', {}, 'bun start --demo'),
      ' for a demo user who has been through the whole journey.',
    ),
    record({ ...answers, ltc: { lifetimeCare: answers.ltc } }),
    list(await preview(answers)),
  ];
}

async function preview(answers) {
  return (await ask('demo-user', '/engine/preview', { body: answers })).data.matches;
}

function record({ profile, ltc, lifeInsurance, lifetimeCare }) {
  const sections = [
    ['Profile', profile],
    ['Long-term care', ltc.lifetimeCare],
    ['Life insurance', lifeInsurance],
    ['Lifetime care', lifetimeCare],
  ].filter(([, answers]) => answers !== undefined);
  const groups = sections.map(([title, answers]) => {
    const entries = Object.entries(answers).flatMap(([name, value]) => [
      html('dt', {}, inWords(name)),
      html('dd', {}, text(value)),
    ]);
    return html('section', { 'aria-label': title }, html('strong', {}, title), html('dl', {}, ...entries));
  });
  return html('div', { class: 'record' }, ...groups);
}

function application({ purchase }) {
  if (purchase.partner === undefined) return html('p', {}, 'No application has been started yet.');
  const { appNumber, pricing } = purchase.partner;
  return html('p', {}, `Application ${appNumber} at the carrier, with ${pricing.length} prices.`);
}

function text(value) {
  if (Array.isArray(value)) return value.map(text).join(', ') || 'none';
  if (typeof value === 'object') return value.title ?? Object.values(value).flat().map(text).join(', ');
  return typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value);
}

/** `careCosts` becomes `care costs`. */
function inWords(name) {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** The best match is null only for a catalogue without products. */
function ranked({ bestMatch, remainingMatches }) {
  return bestMatch === null ? remainingMatches : [bestMatch, ...remainingMatches];
}

function list(matches) {
  const none = html('p', {}, 'Nothing fits: each product is ruled out.');
  const all = ranked(matches);
  const items = html('ol', { class: 'matches' }, ...all.map((match, index) => item(match, index === 0)));
  return all.some(({ isEligible }) => isEligible) ? items : html('div', {}, none, items);
}

function item({ productName, productWrapper, productIcon, score, isEligible, explanation }, isFirst) {
  const { rules, disqualifiersHeld, penalty, unanswered } = explanation;
  const reasons = rules
    .filter(({ outcome }) => outcome === 'met')
    .map(({ points, text }) => html('li', {}, html('span', { class: 'points' }, signed(points)), text));
  const ruledOut = `Ruled out: ${disqualifiersHeld.map(inWords).join(', ')}`;
  if (penalty !== 0) reasons.push(html('li', {}, html('span', { class: 'points' }, signed(penalty)), ruledOut));
  const others = rules.filter(({ outcome }) => outcome !== 'met').map(({ text }) => html('li', {}, text));
  const name = html('h3', {}, productName);
  return html(
    'li',
    {},
    html(
      'details',
      isFirst ? { open: '' } : {},
      html(
        'summary',
        {},
        icon(productIcon),
        html(
          'div',
          {},
          name,
          html('p', {}, isFirst && isEligible ? `${productWrapper}, the best match` : productWrapper),
        ),
        html('span', { class: 'score' }, signed(score, false)),
      ),
      html('ul', { class: 'reasons' }, ...reasons),
      ...(others.length === 0 ? [] : [html('p', {}, 'Did not count:'), html('ul', {}, ...others)]),
      ...(unanswered.length === 0 ? [] : [html('p', {}, `Not answered: ${unanswered.join(', ')}`)]),
    ),
  );
}

/** One of another host would be asked from there. */
function icon(address) {
  const { pathname } = new URL(address);
  return pathname.startsWith('/icons/') ? html('img', { class: 'icon', src: pathname, alt: '' }) : html('span');
}

/** `explicit` puts a plus before what adds to a score. */
function signed(points, explicit = true) {
  if (points < 0) return `−${-points}`;
  return explicit && points > 0 ? `+${points}` : String(points);
}

for (const button of document.querySelectorAll('[data-copies]')) {
  const field = byId(button.dataset.copies);
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(field.value);
      byId('copied').textContent = `The token of ${field.id} is copied.`;
    } catch {
      field.select();
      byId('copied').textContent = `The token of ${field.id} is selected; copy it with your keyboard.`;
    }
  });
}
byId('month').addEventListener('change', () => fill(byId('report'), report));
await Promise.all([fill(byId('report'), report), fill(byId('matched'), matched)]);
document.documentElement.dataset.state = 'filled';
