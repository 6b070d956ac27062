/**
 * Serves page.html like a static server, on another origin than the service. Run it after `npm run build:client` with
 * `bun test/examples/serve-page.ts`. BASE is the address of the service, which must allow this origin, for example
 * `CORS_ORIGINS=http://127.0.0.1:5173 npm start`.
 */
const service = process.env.BASE ?? 'http://127.0.0.1:3000';
const client = Bun.file(new URL('../../dist/client/client.js', import.meta.url));
if (!(await client.exists())) {
  process.stderr.write('The client is not built: npm run build:client\n');
  process.exit(1);
}
const file = (name: string) => Bun.file(new URL(name, import.meta.url));
const page = (await file('page.html').text()).replaceAll('http://127.0.0.1:3000', service);

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: Number(process.env.PORT ?? 5173),
  routes: {
    '/': new Response(page, { headers: { 'content-type': 'text/html; charset=utf-8' } }),
    '/page.js': new Response(file('page.js')),
    '/page.css': new Response(file('page.css')),
    '/client.js': new Response(client),
  },
  fetch: () => new Response('Not found', { status: 404 }),
});
process.stdout.write(`${server.url.origin} calls ${service}\n`);
