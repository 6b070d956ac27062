import { writeFile } from 'node:fs/promises';
import { Argument, Command } from 'commander';
import * as v from 'valibot';
import { type Database, truncateLog } from '../db/client';
import { OperatorError } from '../errors';
import { createAuditStore } from '../modules/audit/store';
import { createPersonalDataStore, type Erasure, type PersonalData } from '../modules/privacy/store';
import { createSalesStore } from '../modules/sales/store';
import { toUserJson } from '../modules/users/save';
import { commandName } from '../shared/build';
import { toShown } from './audit';
import { confirm, currentOperator, identifier, subject, withDatabase } from './context';
import { counted, printResult, toTable } from './output';
import { readSettings } from './settings';

export function userCommand(): Command {
  return new Command('user')
    .description('Look at what is kept about a person, hand it out, erase it, or name a counselor')
    .addCommand(showCommand())
    .addCommand(exportCommand())
    .addCommand(eraseCommand())
    .addCommand(assignCommand());
}

function userArgument(): Argument {
  return new Argument('<user>', 'id of the person: the `sub` of the token').argParser(subject);
}

function showCommand(): Command {
  return new Command('show')
    .description('Print what is kept about a person: which sections are answered, and which applications there are')
    .addArgument(userArgument())
    .option('--json', 'print the whole user object, as GET /v2/private/user answers it, and the rest', false)
    .action((userId: string, options: { json: boolean }) =>
      withDatabase(readSettings('user show'), async (db) => {
        const kept = await findPersonalData(db, userId);
        await noteLook(db, userId, 'read');
        printResult(options, describe(kept), summary(userId, kept));
      }),
    );
}

function exportCommand(): Command {
  return new Command('export')
    .description('Write all that is kept about a person as JSON')
    .addArgument(userArgument())
    .option('--to <file>', 'a new file, readable by its owner alone; standard output if none is named')
    .action((userId: string, options: { to?: string }) =>
      withDatabase(readSettings('user export'), async (db) => {
        const kept = await findPersonalData(db, userId);
        await noteLook(db, userId, 'exported');
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
        if (options.to === undefined) return printResult({ json: true }, all, '');
        await writeFile(options.to, `${JSON.stringify(all, null, 2)}\n`, { mode: 0o600, flag: 'wx' });
        printResult({ json: false }, {}, `All that is kept about the person is in ${options.to}.`);
      }),
    );
}

function eraseCommand(): Command {
  return new Command('erase')
    .description('Erase a person: answers, identity, and what the carrier said')
    .addArgument(userArgument())
    .option('--yes', 'do not ask', false)
    .option('--json', 'print what was erased as JSON', false)
    .addHelpText(
      'after',
      `
What can only be counted stays, under ids that lead nowhere: that there was an application, when, and how it
stood, the activities that a counselor was credited with, and who did what when, under the one id that is
printed. A place in the staff stays, too, with what was done by it. The partner
carrier keeps what it was sent: ask it to erase the applications that are named at the end. Of a local
database the bytes are overwritten; what a libSQL server keeps in its files is up to its host.
It can be repeated.`,
    )
    .action(async (userId: string, options: { yes: boolean; json: boolean }) => {
      const config = readSettings('user erase');
      await withDatabase(config, async (db) => {
        const store = createPersonalDataStore(db);
        const kept = await store.find(userId);
        if (!options.yes) await confirmErasure(userId, kept);
        const erased = await store.erase(userId, { operator: currentOperator(), now: new Date() });
        const isGone = await truncateLog(db);
        printResult(options, erased, erasureSentence(erased, kept));
        if (!isGone) {
          throw new OperatorError(
            'Another process was reading the database, so its log still holds the erased data: run this command again.',
          );
        }
      });
    });
}

function assignCommand(): Command {
  return new Command('assign')
    .description('Credit the applications that a person starts from now on to a counselor')
    .addHelpText(
      'after',
      '\nThe person must have a record, which the first save makes. Any member of staff may be the counselor.',
    )
    .addArgument(userArgument())
    .addArgument(new Argument('[counselor]', 'id of a member of staff').argParser(identifier))
    .option('--none', 'to no counselor', false)
    .option('--json', 'print the result as JSON', false)
    .action((userId: string, counselorId: string | undefined, options: { none: boolean; json: boolean }) =>
      withDatabase(readSettings('user assign'), async (db) => {
        if ((counselorId === undefined) !== options.none) {
          throw new OperatorError('Name a counselor, or say --none.');
        }
        if (counselorId !== undefined && (await createSalesStore(db).findStaff(counselorId)) === undefined) {
          throw new OperatorError(`The staff have no member with this id: run \`${commandName} import staff\` first.`);
        }
        const operator = currentOperator();
        const assignment = { userId, counselorId: counselorId ?? null, operator, now: new Date() };
        const isFound = await createSalesStore(db).assignCounselor(assignment);
        if (!isFound) throw new OperatorError('There is no record of this person yet: the first save makes it.');
        const sentence = counselorId === undefined ? 'no counselor is credited' : `${counselorId} is credited`;
        printResult(options, { user: userId, counselor: counselorId ?? null }, `From now on ${sentence}.`);
      }),
    );
}

/** Nothing of a person is handed out that is not written down. */
async function noteLook(db: Database, userId: string, action: 'read' | 'exported'): Promise<void> {
  await createAuditStore(db).record({ userId, action, actor: 'operator', ...currentOperator(), now: Date.now() });
}

/** @throws OperatorError when nothing is kept about the person */
async function findPersonalData(db: Database, userId: string): Promise<PersonalData> {
  const kept = await createPersonalDataStore(db).find(userId);
  if (!isAnything(kept)) throw new OperatorError('Nothing is kept about this person.');
  return kept;
}

function isAnything(kept: PersonalData): boolean {
  return kept.staff !== undefined || isErasable(kept);
}

function isErasable({ record, applications, idempotencyKeys, isAudited }: PersonalData): boolean {
  return record !== undefined || applications.length > 0 || idempotencyKeys.length > 0 || isAudited;
}

/** Whatever is stored is shown, also what no model knows any more. */
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
    ['record', user === null ? 'none' : `version ${version}, made ${user.createdAt}, changed ${user.updatedAt}`],
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

/** Says what would be erased, and asks at the terminal. */
async function confirmErasure(userId: string, kept: PersonalData): Promise<void> {
  if (!isErasable(kept)) return;
  const record = kept.record === undefined ? 'no record' : 'the record';
  const what = `${record} and ${counted(kept.applications.length, 'application')} of ${JSON.stringify(userId)}`;
  await confirm(`Erase ${what} for good?`, 'Nothing was erased');
}

function erasureSentence(
  { record, applications, attempts, idempotencyKeys, events, keptAs }: Erasure,
  { staff }: PersonalData,
): string {
  const place = staff === undefined ? [] : [`The place in staff stays: ${staff.role}, ${nameOf(staff)}.`];
  if (keptAs === null) {
    return ['Nothing that can be erased is kept about this person.', ...place].join('\n');
  }
  const parts = [
    record ? 'the record' : 'no record',
    counted(applications.length, 'application'),
    counted(attempts, 'attempt'),
    counted(idempotencyKeys, 'idempotency key'),
  ];
  const rows = applications.map(({ applicationNumber, reference }) => [String(applicationNumber ?? ''), reference]);
  const carrier = `The partner carrier has these:\n${toTable(['number', 'reference'], rows)}`;
  const trail = `The audit trail (${counted(events, 'event')} and this one) is kept as ${keptAs}.`;
  return [`Erased: ${parts.join(', ')}.`, ...(rows.length === 0 ? [] : [carrier]), trail, ...place].join('\n');
}

function nameOf({ firstName, lastName }: { firstName: string; lastName: string }): string {
  return `${firstName} ${lastName}`;
}

/** The instants of a row, which are stored as epoch milliseconds, as people read them. */
function withDates(row: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      name.endsWith('At') && typeof value === 'number' ? new Date(value).toISOString() : value,
    ]),
  );
}
