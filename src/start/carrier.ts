import type { Config } from '../config';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
import { type Carrier, carrierId } from '../modules/coverage/carrier/carrier';
import type { HttpCarrierSettings } from '../modules/coverage/carrier/http-carrier';
import { onceLoaded } from '../once-loaded';
import type { Telemetry } from '../telemetry/telemetry';

/** The configured carrier, or in development the sandbox, on a port and with a key that only this process knows. */
export async function openCarrier(
  config: Config,
  clock: () => Date,
  { carrierObservers: observers }: Telemetry,
  carrierKey: () => string | undefined,
) {
  const { url } = config.carrier;
  if (url !== undefined) {
    return { ...carrierOnceListening({ ...config.carrier, url, apiKey: carrierKey, observers }), sandbox: undefined };
  }
  const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
  const apiKey = crypto.randomUUID();
  const sandbox = await listenCarrierSandbox({ config, clock, apiKey, port: 0 }).catch((error: unknown) => {
    const code = findDatabaseError(error)?.code ?? 'UNKNOWN';
    const setting = 'The sandbox carrier’s database SANDBOX_DATABASE_URL';
    throw new OperatorError(`${setting} cannot be used (${code}).${keyRemedy(code)}`);
  });
  return { ...carrierOnceListening({ ...config.carrier, url: sandbox.url, apiKey, observers }), sandbox };
}

/**
 * Loads the carrier modules once the service listens. The start does not wait for them, and an application does not fail
 * because no file descriptor is free to load them.
 */
function carrierOnceListening(settings: HttpCarrierSettings) {
  const load = onceLoaded(async () => {
    const { createHttpCarrier } = await import('../modules/coverage/carrier/http-carrier');
    // Bun starts its HTTP client with the first call, and exits if no file descriptor is free then.
    await fetch('http://127.0.0.1:0').catch(() => undefined);
    return createHttpCarrier(settings);
  });
  const carrier: Carrier = {
    id: carrierId(settings.url),
    start: async (application, mayBeKnown) => (await load()).start(application, mayBeKnown),
  };
  return { carrier, loadCarrier: load };
}
