/** Stands for what differs each time, or is left out. */
const ellipsis = '…';

/**
 * What is different between an answer and what is shown of it, or nothing. `"…"` in it stands for any text or number, as
 * a part of a text for any part, as the last item of a list for further ones, and as a member for further ones.
 */
export function differences(answer: unknown, shown: unknown, place = ''): string[] {
  const unlike = [`${place || 'it'} is ${JSON.stringify(answer)}, not ${JSON.stringify(shown)}`];
  if (typeof shown === 'string' && shown.includes(ellipsis)) {
    return ['string', 'number'].includes(typeof answer) && isLike(String(answer), shown) ? [] : unlike;
  }
  if (Array.isArray(shown)) {
    if (!Array.isArray(answer)) return unlike;
    const hasMore = shown.at(-1) === ellipsis;
    const items = hasMore ? shown.slice(0, -1) : shown;
    const isWhole = hasMore ? answer.length > items.length : answer.length === items.length;
    const length = isWhole ? [] : [`${place} has ${answer.length} items`];
    return [...length, ...items.flatMap((item, index) => differences(answer[index], item, `${place}/${index}`))];
  }
  if (!isObject(shown)) return answer === shown ? [] : unlike;
  if (!isObject(answer)) return unlike;
  const { [ellipsis]: more, ...members } = shown;
  const others = Object.keys(answer).filter((name) => !(name in members));
  const rest =
    more === undefined
      ? others.map((name) => `${place}/${name} is not shown`)
      : others.length > 0
        ? []
        : [`${place} has no other members`];
  return [
    ...rest,
    ...Object.entries(members).flatMap(([name, value]) => differences(answer[name], value, `${place}/${name}`)),
  ];
}

/** Whether a text is the one that is shown, in which each “…” stands for a part of a line. */
export function isLike(text: string, shown: string): boolean {
  return new RegExp(`^${shown.split(ellipsis).map(RegExp.escape).join('.*')}$`).test(text);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
