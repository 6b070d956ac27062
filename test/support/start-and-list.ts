/** Starts the service in this process, prints the loaded modules to standard error and exits. */
await import('../../src/main');
process.stderr.write(JSON.stringify(Object.keys(require.cache)));
process.exit(0);
