import Database from 'libsql';
import { mayEmptyPolicySupport } from '../shared/life-insurance.mjs';
import { lockTimeoutMs } from '../shared/settings.mjs';

const columns =
  'id, profile, insurance, ltc_lifetime_care, purchase, life_insurance, lifetime_care, version, created_at, updated_at';

/**
 * The users of a database file. A save is durable before its response.
 *
 * @param {string} path
 */
export function openUserStore(path) {
  const database = new Database(path, { timeout: lockTimeoutMs });
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON');
  // Only `all` is safe for a reused statement of this driver: `get` does not read to the end.
  const prepare = (/** @type {string} */ sql) => database.prepare(sql).raw(true);
  const find = prepare(`SELECT ${columns} FROM users WHERE id = ?`);
  const save = prepare(saveStatement(merged));
  const saveAndTidy = prepare(saveStatement(tidied));

  return {
    /** @param {string} userId */
    find(userId) {
      const [row] = find.all([userId]);
      return row && toRow(row);
    },

    /**
     * Merges a patch into the life insurance of a record, or makes the record, and gives the whole of it.
     *
     * @param {string} userId
     * @param {ReturnType<typeof import('../shared/life-insurance.mjs').toLifeInsurancePatch>} patch
     */
    saveLifeInsurance(userId, patch) {
      const statement = mayEmptyPolicySupport(patch) ? saveAndTidy : save;
      const [row] = statement.all([userId, JSON.stringify(patch), Date.now()]);
      return toRow(row);
    },
  };
}

/** Version and `updated_at` move only when the section changes. */
function saveStatement(/** @type {(section: string) => string} */ section) {
  const changed = section("coalesce(life_insurance, '{}')");
  const isChanged = `(${changed} IS NOT life_insurance)`;
  return `INSERT INTO users (id, life_insurance, version, created_at, updated_at)
    VALUES (?1, ${section("'{}'")}, 1, ?3, ?3) ON CONFLICT (id) DO UPDATE
    SET life_insurance = ${changed}, version = version + ${isChanged},
      updated_at = CASE WHEN ${isChanged} THEN ?3 ELSE updated_at END
    RETURNING ${columns}`;
}

/** A section without any answer is NULL. */
function merged(/** @type {string} */ section) {
  return `nullif(json_patch(${section}, ?2), '{}')`;
}

/** The same, without a `policySupport` that holds no list any more. */
function tidied(/** @type {string} */ section) {
  const patched = `json_patch(${section}, ?2)`;
  return `nullif(CASE WHEN json_extract(${patched}, '$.policySupport') = '{}'
    THEN json_remove(${patched}, '$.policySupport') ELSE ${patched} END, '{}')`;
}

function toRow([id, profile, insurance, ltcLifetimeCare, purchase, lifeInsurance, lifetimeCare, ...times]) {
  const [version, createdAt, updatedAt] = times;
  return {
    id,
    profile: parse(profile),
    insurance: parse(insurance),
    ltcLifetimeCare: parse(ltcLifetimeCare),
    purchase: parse(purchase),
    lifeInsurance: parse(lifeInsurance),
    lifetimeCare: parse(lifetimeCare),
    version,
    createdAt,
    updatedAt,
  };
}

function parse(/** @type {string | null} */ text) {
  return text === null ? null : JSON.parse(text);
}
