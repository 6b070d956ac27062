/** Starts the service in this process, tells on standard error which modules that has loaded, and ends. */
await import('../../src/main');
process.stderr.write(JSON.stringify(Object.keys(require.cache)));
process.exit(0);
