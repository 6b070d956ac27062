import { networkInterfaces } from 'node:os';

/** An address of this machine that others could reach it by, if it has one. */
export const lanAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
