import { type Browser, chromium } from 'playwright-core';
import { atEnd } from './cleanup';

const program = Bun.which('chromium') ?? Bun.which('chromium-browser') ?? Bun.which('google-chrome');

/** Why there is no browser to test with; undefined where there is one. */
export const noBrowser = program === null ? 'no Chromium is installed' : undefined;

/** A real Chromium without a window. */
export async function startBrowser(): Promise<Browser> {
  const browser = await chromium.launch({ executablePath: program ?? '', args: ['--no-sandbox'] });
  atEnd(() => browser.close());
  return browser;
}
