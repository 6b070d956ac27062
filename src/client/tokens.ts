/** A bearer token, or what gives one for each attempt. */
export type TokenSetting = string | ((ask: { readonly isRefused: boolean }) => string | Promise<string>);

/** What a token that was refused is replaced by. */
export interface Refused {
  readonly token: string;
  /** How many refreshes had succeeded when the token was got. */
  readonly refreshes: number;
}

/**
 * Gets tokens, and has at most one refresh in flight, which all calls share.
 *
 * @param longestMs how old a refresh may be that another call still waits for: one that never ends holds up only so many
 */
export function createTokens(given: TokenSetting, longestMs: number) {
  let refreshes = 0;
  let newest: string | undefined;
  let inFlight: { readonly token: Promise<string>; readonly startedAtMs: number } | undefined;

  async function ask(isRefused: boolean): Promise<string> {
    const token: unknown = typeof given === 'string' ? given : await given({ isRefused });
    if (typeof token !== 'string' || token === '') throw new TypeError('token must be text');
    return token;
  }

  async function refresh(): Promise<string> {
    const token = await ask(true);
    refreshes += 1;
    newest = token;
    return token;
  }

  function sharedRefresh(): Promise<string> {
    if (inFlight !== undefined && performance.now() - inFlight.startedAtMs < longestMs) return inFlight.token;
    const started = { token: refresh(), startedAtMs: performance.now() };
    const forget = () => {
      if (inFlight === started) inFlight = undefined;
    };
    started.token.then(forget, forget);
    inFlight = started;
    return started.token;
  }

  return {
    refreshes: () => refreshes,
    /** A token; in the place of a refused one, that of a refresh which has ended since, or of the one in flight. */
    get(refused: Refused | undefined): Promise<string> {
      if (refused === undefined) return ask(false);
      if (newest === undefined || newest === refused.token || refreshes === refused.refreshes) return sharedRefresh();
      return Promise.resolve(newest);
    },
  };
}
