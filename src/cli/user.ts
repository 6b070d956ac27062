import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Argument, Command } from 'commander';
import * as v from 'valibot';
import { type Database, truncateWal } from '../db/client';
import { OperatorError } from '../errors';
import { createAuditStore } from '../modules/audit/store';
import { createPersonalDataStore, type Erasure, type PersonalData } from '../modules/privacy/store';
import { createSalesStore } from '../modules/sales/store';
import { toUserJson } from '../modules/users/save';
import { commandName } from '../shared/build';
import { toShown } from './audit';
import { type Context, confirm, identifier, readSettings, subject } from './context';
import { withDatabase } from './database';
import { counted, printResult, toTable } from './output';

export function userCommand(context: Context): Command {
  return new Command('user')
    .description('Show, export or erase the data of a user, or assign a counselor')
    .addCommand(showCommand(context))
    .addCommand(exportCommand(context))
    .addCommand(eraseCommand(context))
    .addCommand(assignCommand(context));
}

function userArgument(): Argument {
  return new Argument('<user>', 'id of the user: the `sub` of the token').argParser(subject);
}

function showCommand(context: Context): Command {
  return new Command('show')
    .description('Print a summary of the data of a user: the sections with answers, and the applications')
    .addArgument(userArgument())
    .option('--json', 'print the whole user object, as GET /v2/private/user returns it, and the rest', false)
    .action((userId: string, options: { json: boolean }) =>
      withDatabase(context, readSettings(context, 'user show'), async (db) => {
        const kept = await findPersonalData(db, userId);
        await recordAccess(context, db, userId, 'read');
        printResult(context, options, describe(kept), summary(userId, kept));
      }),
    );
}

function exportCommand(context: Context): Command {
  return new Command('export')
    .description('Write all data of a user as JSON')
    .addArgument(userArgument())
    .option('--to <file>', 'a new file, readable by its owner only; default: standard output')
    .action((userId: string, options: { to?: string }) =>
      withDatabase(context, readSettings(context, 'user export'), async (db) => {
        const kept = await findPersonalData(db, userId);
        await recordAccess(context, db, userId, 'exported');
        const auditTrail = [];
        for await (const page of createAuditStore(db).pages({ userId })) auditTrail.push(...page.map(toShown));
        const all = {
          exportedAt: new Date().toISOString(),
          ...describe(kept),
          applications: kept.applications.map(({ attempts, ...application }) => ({
            ...withDates(application),
            attempts: attempts.map(withDates),
          })),
          credits: kept.credits.map(withDates),
          idempotencyKeys: kept.idempotencyKeys.map(withDates),
          auditTrail,
        };
        if (options.to === undefined) return printResult(context, { json: true }, all, '');
        const file = resolve(context.cwd, options.to);
        await writeFile(file, `${JSON.stringify(all, null, 2)}\n`, { mode: 0o600, flag: 'wx' });
        printResult(context, { json: false }, {}, `All data of the user is in ${options.to}.`);
      }),
    );
}

function eraseCommand(context: Context): Command {
  return new Command('erase')
    .description('Erase a user: answers, identity, and the responses of the carrier')
    .addArgument(userArgument())
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the erased data as JSON, in numbers and references', false)
    .addHelpText(
      'after',
      `
Anonymized records stay for statistics: that an application existed, its dates and its state; the activities that a
counselor was credited with; and the audit events, under a new id that the command prints. An entry in staff stays with
the audit events of that member. The partner carrier keeps the applications that it received: ask it to erase those that
the command prints at the end. The bytes in a local database are overwritten; the host of a libSQL server decides about
its files. The command can be repeated.`,
    )
    .action(async (userId: string, options: { yes: boolean; json: boolean }) => {
      const config = readSettings(context, 'user erase');
      await withDatabase(context, config, async (db) => {
        const store = createPersonalDataStore(db);
        const kept = await store.find(userId);
        if (!options.yes && isErasable(kept)) {
          await confirm(context, erasureQuestion(userId, kept), 'Nothing was erased');
        }
        const erased = await store.erase(userId, { operator: context.operator(), now: new Date() });
        const isEmptied = await truncateWal(db);
        printResult(context, options, erased, erasureSentence(erased, kept));
        if (!isEmptied) {
          throw new OperatorError(
            'Another process was reading the database, so its log still contains the erased data: run this command again.',
          );
        }
      });
    });
}

function assignCommand(context: Context): Command {
  return new Command('assign')
    .description('Credit the applications that a user starts from now on to a counselor')
    .addHelpText(
      'after',
      '\nThe user must have a record, which the first save creates. Any member of staff may be the counselor.',
    )
    .addArgument(userArgument())
    .addArgument(new Argument('[counselor]', 'id of a member of staff').argParser(identifier))
    .option('--none', 'to no counselor', false)
    .option('--json', 'print the result as JSON', false)
    .action((userId: string, counselorId: string | undefined, options: { none: boolean; json: boolean }) =>
      withDatabase(context, readSettings(context, 'user assign'), async (db) => {
        if ((counselorId === undefined) !== options.none) {
          throw new OperatorError('Name a counselor, or use --none.');
        }
        const store = createSalesStore(db);
        if (counselorId !== undefined && (await store.findStaff(counselorId)) === undefined) {
          throw new OperatorError(`The staff have no member with this id: run \`${commandName} import staff\` first.`);
        }
        const assignment = { userId, counselorId: counselorId ?? null, operator: context.operator(), now: new Date() };
        const isFound = await store.assignCounselor(assignment);
        if (!isFound) throw new OperatorError('This user has no record yet: the first save creates it.');
        const sentence = counselorId === undefined ? 'no counselor is credited' : `${counselorId} is credited`;
        printResult(context, options, { user: userId, counselor: counselorId ?? null }, `From now on ${sentence}.`);
      }),
    );
}

/** Every command that prints data of a user records it first. */
async function recordAccess(
  context: Context,
  db: Database,
  userId: string,
  action: 'read' | 'exported',
): Promise<void> {
  await createAuditStore(db).record({ userId, action, actor: 'operator', ...context.operator(), now: Date.now() });
}

/** @throws OperatorError when the database has no data of the user */
async function findPersonalData(db: Database, userId: string): Promise<PersonalData> {
  const kept = await createPersonalDataStore(db).find(userId);
  if (kept.staff === undefined && !isErasable(kept)) throw new OperatorError('There is no data of this user.');
  return kept;
}

function isErasable({ record, applications, idempotencyKeys, isAudited }: PersonalData): boolean {
  return record !== undefined || applications.length > 0 || idempotencyKeys.length > 0 || isAudited;
}

/** Shows every stored section, including those that the current model does not have. */
const Section = v.optional(v.unknown());
const StoredUser = v.object({
  user: v.looseObject({
    createdAt: v.string(),
    updatedAt: v.string(),
    profile: Section,
    insurance: v.looseObject({ matches: Section }),
    ltc: v.looseObject({ lifetimeCare: Section }),
    purchase: v.looseObject({ partner: Section }),
    lifeInsurance: Section,
    lifetimeCare: Section,
  }),
});

function describe({ record, counselor, staff, applications }: PersonalData) {
  return {
    user: record === undefined ? null : v.parse(StoredUser, JSON.parse(toUserJson(record))).user,
    version: record?.version ?? null,
    counselor: counselor === undefined ? null : { id: counselor.id, name: nameOf(counselor) },
    staff: staff === undefined ? null : withDates(staff),
    applications: applications.map(({ id, flow, state, applicationNumber, createdAt }) => ({
      id,
      flow,
      state,
      applicationNumber,
      createdAt: new Date(createdAt).toISOString(),
    })),
  };
}

function summary(userId: string, kept: PersonalData): string {
  const { user, version, counselor, applications } = describe(kept);
  const sections = Object.entries({
    profile: user?.profile,
    'ltc.lifetimeCare': user?.ltc.lifetimeCare,
    lifeInsurance: user?.lifeInsurance,
    lifetimeCare: user?.lifetimeCare,
    'insurance.matches': user?.insurance.matches,
    'purchase.partner': user?.purchase.partner,
  }).flatMap(([name, section]) => (Bun.deepEquals(section ?? {}, {}) ? [] : [name]));
  const facts = [
    ['person', userId],
    ['record', user === null ? 'none' : `version ${version}, created ${user.createdAt}, changed ${user.updatedAt}`],
    ['sections', sections.join(', ') || 'none'],
    ['counselor', counselor === null ? 'none' : `${counselor.id} (${counselor.name})`],
    ['staff', kept.staff === undefined ? 'no' : `${kept.staff.role} (${nameOf(kept.staff)})`],
    ['applications', applications.length === 0 ? 'none' : String(applications.length)],
  ].map(([label = '', value = '']) => `${label.padEnd(12)}  ${value}`);
  const rows = applications.map(({ id, flow, state, applicationNumber, createdAt }) => [
    String(applicationNumber ?? ''),
    flow,
    state,
    createdAt,
    id,
  ]);
  const table = toTable(['number', 'flow', 'state', 'started', 'reference at the carrier'], rows);
  return rows.length === 0 ? facts.join('\n') : `${facts.join('\n')}\n\n${table}`;
}

function erasureQuestion(userId: string, { record, applications }: PersonalData): string {
  const data = `${record === undefined ? 'no record' : 'the record'} and ${counted(applications.length, 'application')}`;
  return `Erase ${data} of ${JSON.stringify(userId)} permanently?`;
}

function erasureSentence(
  { record, applications, attempts, idempotencyKeys, events, keptAs }: Erasure,
  { staff }: PersonalData,
): string {
  const entry = staff === undefined ? [] : [`The entry in staff stays: ${staff.role}, ${nameOf(staff)}.`];
  if (keptAs === null) {
    return ['There is no data to erase of this user.', ...entry].join('\n');
  }
  const parts = [
    record ? 'the record' : 'no record',
    counted(applications.length, 'application'),
    counted(attempts, 'attempt'),
    counted(idempotencyKeys, 'idempotency key'),
  ];
  const rows = applications.map(({ applicationNumber, reference }) => [String(applicationNumber ?? ''), reference]);
  const carrier = `The partner carrier has these applications:\n${toTable(['number', 'reference'], rows)}`;
  const log = `The audit log keeps ${counted(events, 'event')} and this one as ${keptAs}.`;
  return [`Erased: ${parts.join(', ')}.`, ...(rows.length === 0 ? [] : [carrier]), log, ...entry].join('\n');
}

function nameOf({ firstName, lastName }: { firstName: string; lastName: string }): string {
  return `${firstName} ${lastName}`;
}

/** Formats the timestamps of a row, which are stored as epoch milliseconds. */
function withDates(row: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      name.endsWith('At') && typeof value === 'number' ? new Date(value).toISOString() : value,
    ]),
  );
}
