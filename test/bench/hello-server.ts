/** A minimal server on the same framework, the baseline for the start time. */
import { Elysia } from 'elysia';

const app = new Elysia()
  .get('/health/ready', () => ({ status: 'ready' }))
  .listen({ hostname: '127.0.0.1', port: process.env.PORT ?? 0 });
process.stdout.write(`http://127.0.0.1:${app.server?.port}\n`);
