import { writeFile } from 'node:fs/promises';
import { Argument, Command } from 'commander';
import { readConfig } from '../config';
import { type Database, truncateLog } from '../db/client';
import { createPersonalDataStore, type Erasure, type PersonalData } from '../modules/personal-data/store';
import { createSalesStore } from '../modules/sales/store';
import { createUserStore } from '../modules/users/store';
import { toUserBody } from '../modules/users/view';
import { identifier } from './arguments';
import { withDatabase } from './command-database';
import { OperatorError } from './operator-error';
import { counted, printResult, toTable } from './print';

export function userCommand(): Command {
  return new Command('user')
    .description('Look at what is kept about a person, hand it out, erase it, or name a counselor')
    .addCommand(showCommand())
    .addCommand(exportCommand())
    .addCommand(eraseCommand())
    .addCommand(assignCommand());
}

function userArgument(): Argument {
  return new Argument('<user>', 'id of the person: the `sub` of the token').argParser(identifier);
}

function showCommand(): Command {
  return new Command('show')
    .description('Print what is kept about a person: which sections are answered, and which applications there are')
    .addArgument(userArgument())
    .option('--json', 'print the whole user object, as GET /v2/private/user answers it, and the rest', false)
    .action((userId: string, options: { json: boolean }) =>
      withDatabase(readConfig(process.env), async (db) => {
        const kept = await findPersonalData(db, userId);
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
      withDatabase(readConfig(process.env), async (db) => {
        const kept = await findPersonalData(db, userId);
        const all = {
          exportedAt: new Date().toISOString(),
          ...describe(kept),
          applications: kept.applications.map(({ attempts, ...application }) => ({
            ...withDates(application),
            attempts: attempts.map(withDates),
          })),
          idempotencyKeys: kept.idempotencyKeys.map(withDates),
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
What can only be counted stays, without a trace of whom it was about: that there was an application, when, and
how it ended, and the activities that a counselor was credited with. The partner carrier keeps what it was
sent; ask it to erase the application numbers that \`planning user show\` prints. It can be repeated.`,
    )
    .action((userId: string, options: { yes: boolean; json: boolean }) => {
      const config = readConfig(process.env);
      return withDatabase(config, async (db) => {
        const store = createPersonalDataStore(db);
        if (!options.yes) confirmErasure(await store.find(userId));
        const erased = await store.erase(userId);
        await truncateLog(db, config.database);
        printResult(options, erased, erasureSentence(erased));
      });
    });
}

function assignCommand(): Command {
  return new Command('assign')
    .description('Credit the applications that a person starts from now on to a counselor')
    .addArgument(userArgument())
    .addArgument(new Argument('[counselor]', 'id of somebody in staff').argParser(identifier))
    .option('--none', 'to nobody', false)
    .option('--json', 'print the result as JSON', false)
    .action((userId: string, counselorId: string | undefined, options: { none: boolean; json: boolean }) =>
      withDatabase(readConfig(process.env), async (db) => {
        if ((counselorId === undefined) !== options.none) {
          throw new OperatorError('Name a counselor, or say --none.');
        }
        if (counselorId !== undefined && !(await createSalesStore(db).listPositions()).has(counselorId)) {
          throw new OperatorError('There is nobody with this id in staff: run `bun planning import staff` first.');
        }
        const isFound = await createUserStore(db).assignCounselor(userId, counselorId ?? null);
        if (!isFound) throw new OperatorError('There is no record of this person yet: the first save makes it.');
        const sentence = counselorId === undefined ? 'nobody is credited' : `${counselorId} is credited`;
        printResult(options, { user: userId, counselor: counselorId ?? null }, `From now on ${sentence}.`);
      }),
    );
}

/** @throws OperatorError when nothing is kept about the person */
async function findPersonalData(db: Database, userId: string): Promise<PersonalData> {
  const kept = await createPersonalDataStore(db).find(userId);
  if (!isAnything(kept)) throw new OperatorError('Nothing is kept about this person.');
  return kept;
}

function isAnything({ record, applications, idempotencyKeys }: PersonalData): boolean {
  return record !== undefined || applications.length > 0 || idempotencyKeys.length > 0;
}

function describe({ record, counselor, applications }: PersonalData) {
  return {
    user: record === undefined ? null : toUserBody(record).user,
    version: record?.version ?? null,
    counselor: counselor === undefined ? null : { id: counselor.id, name: nameOf(counselor) },
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
  }).flatMap(([name, section]) => (section === undefined ? [] : [name]));
  const facts = [
    ['person', userId],
    ['record', user === null ? 'none' : `version ${version}, made ${user.createdAt}, changed ${user.updatedAt}`],
    ['sections', sections.join(', ') || 'none'],
    ['counselor', counselor === null ? 'none' : `${counselor.id} (${counselor.name})`],
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

/** Says what would be erased, and asks whoever sits at the terminal. */
function confirmErasure(kept: PersonalData): void {
  if (!isAnything(kept)) return;
  if (!process.stdin.isTTY) throw new OperatorError('Nothing was erased: say --yes where nobody can be asked.');
  const record = kept.record === undefined ? 'no record' : 'the record';
  const question = `Erase ${record} and ${counted(kept.applications.length, 'application')} of this person for good?`;
  if (!confirm(question)) throw new OperatorError('Nothing was erased.');
}

function erasureSentence({ record, applications, attempts, idempotencyKeys }: Erasure): string {
  if (!record && applications + attempts + idempotencyKeys === 0) return 'Nothing is kept about this person.';
  const parts = [
    record ? 'the record' : 'no record',
    counted(applications, 'application'),
    counted(attempts, 'attempt'),
    counted(idempotencyKeys, 'idempotency key'),
  ];
  return `Erased: ${parts.join(', ')}.`;
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
