import { networkInterfaces } from 'node:os';

/** A non-loopback IPv4 address of this machine, if any. */
export const lanAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
