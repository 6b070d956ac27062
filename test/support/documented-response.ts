/** Stands for text that differs each time or is left out. */
const ellipsis = '…';

/**
 * Lists the differences between a value and an excerpt of it. In the excerpt, `"…"` stands for any text or number, a part of
 * a text, further items at the end of a list, or further members.
 */
export function differences(response: unknown, shown: unknown, place = ''): string[] {
  const unlike = [`${place || 'it'} is ${JSON.stringify(response)}, not ${JSON.stringify(shown)}`];
  if (typeof shown === 'string' && shown.includes(ellipsis)) {
    return ['string', 'number'].includes(typeof response) && isLike(String(response), shown) ? [] : unlike;
  }
  if (Array.isArray(shown)) {
    if (!Array.isArray(response)) return unlike;
    const hasMore = shown.at(-1) === ellipsis;
    const items = hasMore ? shown.slice(0, -1) : shown;
    const isWhole = hasMore ? response.length > items.length : response.length === items.length;
    const length = isWhole ? [] : [`${place} has ${response.length} items`];
    return [...length, ...items.flatMap((item, index) => differences(response[index], item, `${place}/${index}`))];
  }
  if (!isObject(shown)) return response === shown ? [] : unlike;
  if (!isObject(response)) return unlike;
  const { [ellipsis]: more, ...members } = shown;
  const others = Object.keys(response).filter((name) => !(name in members));
  const rest =
    more === undefined
      ? others.map((name) => `${place}/${name} is not shown`)
      : others.length > 0
        ? []
        : [`${place} has no other members`];
  return [
    ...rest,
    ...Object.entries(members).flatMap(([name, value]) => differences(response[name], value, `${place}/${name}`)),
  ];
}

/** Whether a text matches an excerpt, in which each “…” stands for a part of a line, and a line “…” for any lines. */
export function isLike(text: string, shown: string): boolean {
  const pattern = shown.split(`\n${ellipsis}\n`).map((lines) => lines.split(ellipsis).map(RegExp.escape).join('.*'));
  return new RegExp(`^${pattern.join('\\n(?:.*\\n)*')}$`).test(text);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
