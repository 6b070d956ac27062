import type { Config } from '../config';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError } from '../db/errors';
import type { Carrier } from '../modules/coverage/carrier/carrier';
import type { HttpCarrierSettings } from '../modules/coverage/carrier/http-carrier';
import { onceLoaded } from '../once-loaded';
import type { Telemetry } from '../telemetry/telemetry';
import { StartError } from './start-error';

/** The configured carrier, or in development the sandbox, on a port and with a key that only this process knows. */
export async function openCarrier(config: Config, clock: () => Date, { carrierObservers: observers }: Telemetry) {
  const { url } = config.carrier;
  if (url !== undefined)
    return { carrier: carrierOnFirstCall({ ...config.carrier, url, observers }), sandbox: undefined };
  const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
  const apiKey = crypto.randomUUID();
  const sandbox = await listenCarrierSandbox({ config, clock, apiKey, port: 0 }).catch((error: unknown) => {
    const code = findDatabaseError(error)?.code ?? 'UNKNOWN';
    const setting = 'The sandbox carrier’s database SANDBOX_DATABASE_URL';
    throw new StartError(`${setting} cannot be used (${code}).${keyRemedy(code)}`);
  });
  return { carrier: carrierOnFirstCall({ ...config.carrier, url: sandbox.url, apiKey, observers }), sandbox };
}

/** What speaks to a carrier is loaded with the first application, so that no start waits for it. */
function carrierOnFirstCall(settings: HttpCarrierSettings): Carrier {
  const carrier = onceLoaded(async () => {
    const { createHttpCarrier } = await import('../modules/coverage/carrier/http-carrier');
    return createHttpCarrier(settings);
  });
  return { start: async (application, mayBeKnown) => (await carrier()).start(application, mayBeKnown) };
}
