/** A bearer token, or a function that returns one for each attempt. */
export type TokenSetting = string | ((ask: { readonly isRefused: boolean }) => string | Promise<string>);

/** A refused token. */
export interface Refused {
  readonly token: string;
  /** The count of successful refreshes when the token was issued. */
  readonly refreshes: number;
}

/**
 * Gets tokens. Calls share one refresh in flight.
 *
 * @param longestMs the age up to which calls join a refresh, so that one that never ends does not block later calls
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
    /** Returns a token. A refused token is replaced by that of a later refresh, or of the refresh in flight. */
    get(refused: Refused | undefined): Promise<string> {
      if (refused === undefined) return ask(false);
      if (newest === undefined || newest === refused.token || refreshes === refused.refreshes) return sharedRefresh();
      return Promise.resolve(newest);
    },
  };
}
