/** Starts the service in this process, prints the loaded modules to standard error and exits. */
const { runProcess } = await import('../../src/main');
await runProcess();
process.stderr.write(JSON.stringify(Object.keys(require.cache)));
process.exit(0);
