/**
 * A minimal server for the same requests: prepared statements of the built-in SQLite, without fsync, token, validation
 * or framework. Its speed is the upper limit for the service.
 */
import { Database as SqliteDatabase } from 'bun:sqlite';

const [databasePath = '', listsPath = ''] = process.argv.slice(2);
const db = new SqliteDatabase(databasePath);
db.run('PRAGMA journal_mode = WAL');
db.run('PRAGMA synchronous = NORMAL');
const columns =
  'id, profile, insurance, ltc_lifetime_care, purchase, life_insurance, lifetime_care, version, created_at, updated_at';
const save = db.query<
  Row,
  [string, string, number]
>(`INSERT INTO users (id, life_insurance, version, created_at, updated_at)
  VALUES (?1, json_patch('{}', ?2), 1, ?3, ?3) ON CONFLICT (id) DO UPDATE
  SET life_insurance = json_patch(coalesce(life_insurance, '{}'), ?2), version = version + 1, updated_at = ?3
  RETURNING ${columns}`);
const find = db.query<Row, [string]>(`SELECT ${columns} FROM users WHERE id = ?1`);
const lists = await Bun.file(listsPath).bytes();

type Row = Readonly<Record<'id' | 'version' | 'created_at' | 'updated_at', string | number>> &
  Readonly<
    Record<
      'profile' | 'insurance' | 'ltc_lifetime_care' | 'purchase' | 'life_insurance' | 'lifetime_care',
      string | null
    >
  >;

function response(row: Row | null): Response {
  if (row === null) return new Response(null, { status: 404 });
  const section = (text: string | null) => (text === null ? undefined : JSON.parse(text));
  const user = {
    id: row.id,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
    profile: section(row.profile),
    insurance: section(row.insurance) ?? {},
    ltc: row.ltc_lifetime_care === null ? {} : { lifetimeCare: section(row.ltc_lifetime_care) },
    purchase: section(row.purchase) ?? {},
    lifeInsurance: section(row.life_insurance),
    lifetimeCare: section(row.lifetime_care),
  };
  return Response.json({ user });
}

const server = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === '/v2/private/healthAndCare/') {
      return new Response(lists, { headers: { 'content-type': 'application/json' } });
    }
    const userId = request.headers.get('x-user') ?? '';
    if (pathname === '/v2/private/user') return response(find.get(userId));
    const { selections, customSelections, ...answers } = await request.json();
    const patch = JSON.stringify({ ...answers, policySupport: { selections, customSelections } });
    return response(save.get(userId, patch, Date.now()));
  },
});
process.stdout.write(`http://127.0.0.1:${server.port}\n`);
