import { type Config, readConfig } from '../config/settings';

/** The parts of a Config, each with the settings that it is read from. */
const parts = {
  database: {
    in: 'database',
    settings: ['DATABASE_URL', 'DATABASE_AUTH_TOKEN', 'DATABASE_TIMEOUT_MS', 'DATABASE_ENCRYPTION_KEY'],
  },
  migrationBackup: { in: 'database', settings: ['DATABASE_MIGRATION_BACKUP'] },
  auth: {
    in: 'auth',
    settings: [
      'AUTH_SECRET',
      'AUTH_PUBLIC_KEY',
      'AUTH_JWKS_URL',
      'AUTH_ISSUER',
      'AUTH_AUDIENCE',
      'AUTH_AUDIENCE_CLAIM',
      'AUTH_ROLES_CLAIM',
    ],
  },
  carrierCalls: {
    in: 'carrier',
    settings: ['CARRIER_URL', 'CARRIER_TIMEOUT_MS', 'CARRIER_ATTEMPTS'],
  },
  carrierKey: { in: 'carrier', settings: ['CARRIER_API_KEY'] },
  auditRetentionDays: { in: 'auditRetentionDays', settings: ['AUDIT_RETENTION_DAYS'] },
  reportTimeZone: { in: 'reportTimeZone', settings: ['REPORT_TIME_ZONE'] },
  sandboxDatabaseUrl: { in: 'sandboxDatabaseUrl', settings: ['SANDBOX_DATABASE_URL'] },
  seedDemo: { in: 'seedDemo', settings: ['SEED_DEMO'] },
} as const satisfies Readonly<Record<string, { in: keyof Config; settings: readonly string[] }>>;

/**
 * The parts of a Config that each command uses. A command checks no other setting, so that a backup runs without the key of
 * the carrier. `doctor` reads all settings, and `catalog schema` none.
 */
export const partsOf = {
  migrate: ['database', 'migrationBackup', 'seedDemo'],
  seed: ['database', 'seedDemo'],
  token: ['auth', 'reportTimeZone'],
  'import cemeteries': ['database', 'reportTimeZone'],
  'import products': ['database'],
  'import staff': ['database', 'reportTimeZone'],
  'import activities': ['database', 'reportTimeZone'],
  'user show': ['database'],
  'user export': ['database'],
  'user erase': ['database'],
  'user assign': ['database'],
  'applications list': ['database'],
  'applications settle': ['database', 'carrierCalls'],
  'applications abandon': ['database', 'carrierCalls'],
  audit: ['database', 'reportTimeZone'],
  'audit prune': ['database', 'auditRetentionDays'],
  'catalog show': ['database'],
  'catalog diff': ['database'],
  'catalog try': ['database', 'reportTimeZone'],
  'demo remove': ['database'],
  backup: ['database'],
  restore: ['database'],
  copy: ['database'],
  rekey: ['database'],
  carrier: ['carrierKey', 'database', 'sandboxDatabaseUrl'],
} as const satisfies Readonly<Record<string, readonly (keyof typeof parts)[]>>;

export type CommandName = keyof typeof partsOf;

/** The settings that a command uses, by key. */
export function settingsFor(command: CommandName): string[] {
  return partsOf[command].flatMap((part) => parts[part].settings);
}

/**
 * Reads the settings of a command.
 *
 * @throws ConfigError that names every bad key of those that the command uses
 */
export function readSettings<Name extends CommandName>(
  command: Name,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Pick<Config, (typeof parts)[(typeof partsOf)[Name][number]]['in'] | 'isProduction'> {
  return readConfig(environment, undefined, settingsFor(command));
}
