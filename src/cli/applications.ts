import { Argument, Command, Option } from 'commander';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import type { Database } from '../db/client';
import { type ApplicationRow, erasedUserId } from '../db/schema/people';
import { OperatorError } from '../errors';
import { createAuditStore, noUserId } from '../modules/audit/store';
import { createOperationStore, type ShownState, shownState, shownStates } from '../modules/coverage/outcomes';
import { createApplicationStore, staleAfterMsOf } from '../modules/coverage/store';
import { CarrierAcceptance, type CarrierDecision, carrierId } from '../shared/carrier';
import { findFieldErrors } from '../shared/field-errors';
import { confirm, currentOperator, durationSeconds, identifier, withDatabase } from './context';
import { readJsonFile } from './files';
import { printResult, toLine, writeOut } from './output';
import { readSettings } from './settings';

interface ListOptions {
  readonly state: readonly ShownState[];
  readonly olderThan?: number;
  readonly json: boolean;
}

interface SettleOptions {
  readonly number?: string;
  readonly pricing?: string;
  readonly declined?: 'declined' | 'not-filed';
  readonly yes: boolean;
  readonly json: boolean;
}

export function applicationsCommand(): Command {
  return new Command('applications')
    .description('List the applications of all persons, and end those that the carrier has not decided')
    .addCommand(listCommand())
    .addCommand(settleCommand())
    .addCommand(abandonCommand());
}

function idArgument(): Argument {
  return new Argument('<id>', 'id of the application: the reference at the carrier').argParser(identifier);
}

function listCommand(): Command {
  return new Command('list')
    .description('Print applications: state, age, person and number, in the order in which they were started')
    .addOption(
      new Option('--state <state...>', 'only these states').choices(shownStates).default(['submitting', 'unknown']),
    )
    .option('--older-than <duration>', 'only older ones, such as 2h or 7d', durationSeconds)
    .option('--json', 'print them as JSON', false)
    .addHelpText('after', '\nApplications of erased persons are not listed. The look is recorded in the audit trail.')
    .action((options: ListOptions) =>
      withDatabase(readSettings('applications list'), async (db) => {
        const now = Date.now();
        const look = { userId: noUserId, action: 'read', actor: 'operator', section: 'applications' } as const;
        await createAuditStore(db).record({ ...look, ...currentOperator(), now });
        const createdBefore = options.olderThan === undefined ? undefined : now - options.olderThan * 1000;
        const pages = createOperationStore(db).pages(options.state, createdBefore);
        await (options.json ? printJson : printLines)(pages, now);
      }),
    );
}

function settleCommand(): Command {
  return new Command('settle')
    .description('Store what the carrier says about an application that is not decided')
    .addArgument(idArgument())
    .option('--number <number>', 'the application number, if the carrier has accepted')
    .option('--pricing <file>', 'JSON file of the pricing, in the form of the carrier’s response')
    .addOption(new Option('--declined <reason>', 'the carrier has declined').choices(['declined', 'not-filed']))
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Ask the carrier by the id. What it says is checked and stored like a response of the carrier: an accepted application
becomes the purchase of its person and is credited to the counselor. An abandoned application can be settled, too.`,
    )
    .action(async (id: string, options: SettleOptions) => {
      const decision = await decisionOf(options);
      const config = readSettings('applications settle');
      await withDatabase(config, async (db) => {
        const application = await findOpen(db, id, config);
        const outcome = decision.kind === 'accepted' ? `accepted as ${decision.applicationNumber}` : decision.reason;
        if (!options.yes) await confirm(`Settle ${describe(application)} as ${outcome}?`, 'Nothing was settled');
        await settle(db, application, decision, config);
        const settled = await createOperationStore(db).findById(id);
        const result = settled === undefined ? { id } : toShown(settled, Date.now());
        printResult(options, result, `The application is settled: ${outcome}.`);
      });
    });
}

function abandonCommand(): Command {
  return new Command('abandon')
    .description('End an application without a decision of the carrier')
    .addArgument(idArgument())
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Use it when the carrier does not know the application, or will not decide. The service asks the carrier no more. If the
person applies again, the application is sent again under the same id, so that the carrier never holds two.`,
    )
    .action((id: string, options: { yes: boolean; json: boolean }) => {
      const config = readSettings('applications abandon');
      return withDatabase(config, async (db) => {
        const application = await findOpen(db, id, config);
        if (shownState(application) === 'abandoned') throw new OperatorError('The application is already abandoned.');
        if (!options.yes) await confirm(`Abandon ${describe(application)}?`, 'Nothing was abandoned');
        const isDone = await createApplicationStore(db).abandon(application, doing());
        if (!isDone) throw hasChanged();
        printResult(options, { id, state: 'abandoned' }, 'The application is abandoned.');
      });
    });
}

/** @throws OperatorError that names each field that is wrong */
async function decisionOf({ number, pricing, declined }: SettleOptions): Promise<CarrierDecision> {
  const reply = 'entered by an operator';
  if (declined !== undefined) {
    if (number === undefined && pricing === undefined) return { kind: 'declined', reason: declined, reply };
    throw new OperatorError('Give either --declined, or --number and --pricing.');
  }
  if (number === undefined || pricing === undefined) {
    throw new OperatorError('Give --number and --pricing, or --declined.');
  }
  const given = {
    applicationNumber: /^\d{1,16}$/.test(number) ? Number(number) : Number.NaN,
    pricing: await readJsonFile(pricing),
  };
  const parsed = v.safeParse(CarrierAcceptance, given);
  if (parsed.success) return { kind: 'accepted', ...parsed.output, reply };
  const faults = findFieldErrors(CarrierAcceptance, parsed.issues, 'column').map(({ pointer, message }) =>
    pointer === 'applicationNumber' ? '  --number must be a whole number from 1 on' : `  ${pointer} ${message}`,
  );
  throw new OperatorError(`Nothing was settled:\n${faults.join('\n')}`);
}

/** @throws OperatorError when there is nothing to end */
async function findOpen(db: Database, id: string, { carrier }: Pick<Config, 'carrier'>): Promise<ApplicationRow> {
  const application = await createOperationStore(db).findById(id);
  if (application === undefined) throw new OperatorError('There is no application with this id.');
  if (application.userId === erasedUserId)
    throw new OperatorError('The person was erased, and the application closed.');
  const { state, attemptStartedAt } = application;
  if (state === 'submitted' || state === 'declined') throw new OperatorError(`The application is already ${state}.`);
  const leftMs = staleAfterMsOf(carrier) - Math.abs(Date.now() - attemptStartedAt);
  if (state === 'submitting' && leftMs >= 0) {
    throw new OperatorError(`The carrier is being asked about it now. Try again in ${Math.ceil(leftMs / 1000) + 1} s.`);
  }
  return application;
}

/** @throws OperatorError */
async function settle(
  db: Database,
  application: ApplicationRow,
  decision: CarrierDecision,
  config: Pick<Config, 'carrier'>,
) {
  const store = createApplicationStore(db);
  // Fences off the reconciler and the requests of the person, as their own attempts do.
  const taken = await store.takeOver(application, Date.now());
  if (taken === undefined) throw hasChanged();
  const carrier = carrierId(config.carrier.url ?? 'http://sandbox');
  const outcome = await store.settle(taken, decision, carrier, { reconcileAt: null }, doing());
  if (outcome === 'settled') return;
  if (application.abandonedAt !== null) {
    const revived = await store.find(taken);
    if (revived !== undefined) await store.abandon(revived, doing());
  }
  throw new OperatorError('Nothing was settled: another application holds this number.');
}

function doing() {
  return { ...currentOperator(), now: Date.now() };
}

function hasChanged(): OperatorError {
  return new OperatorError('Nothing was changed: another process has changed the application. List it again.');
}

type Pages = AsyncIterable<readonly ApplicationRow[]>;

const widths = [36, 4, 10, 6, 16];

async function printLines(pages: Pages, now: number): Promise<void> {
  await writeOut(`${toLine(['id', 'flow', 'state', 'age', 'number', 'person'], widths)}\n`);
  for await (const page of pages) {
    const lines = page.map(({ id, flow, userId, ...application }) => {
      const age = readableAge(now - application.createdAt);
      const number = String(application.applicationNumber ?? '');
      return toLine([id, flow, shownState(application), age, number, userId], widths);
    });
    await writeOut(`${lines.join('\n')}\n`);
  }
}

async function printJson(pages: Pages, now: number): Promise<void> {
  await writeOut('{\n  "applications": [');
  let separator = '\n';
  for await (const page of pages) {
    for (const application of page) {
      await writeOut(`${separator}    ${JSON.stringify(toShown(application, now))}`);
      separator = ',\n';
    }
  }
  await writeOut('\n  ]\n}\n');
}

function toShown(application: ApplicationRow, now: number) {
  const { id, userId, flow, applicationNumber, attempt, createdAt } = application;
  return {
    ...{ id, user: userId, flow, state: shownState(application), appNumber: applicationNumber, attempts: attempt },
    createdAt: new Date(createdAt).toISOString(),
    ageSeconds: Math.max(0, Math.round((now - createdAt) / 1000)),
  };
}

function describe({ flow, userId, createdAt }: ApplicationRow): string {
  return `the ${flow} application of ${JSON.stringify(userId)} of ${new Date(createdAt).toISOString()}`;
}

/** `45s`, `12m`, `5h` or `9d`. */
function readableAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units = [
    ['d', 86_400],
    ['h', 3_600],
    ['m', 60],
  ] as const;
  const unit = units.find(([, length]) => seconds >= length);
  return unit === undefined ? `${seconds}s` : `${Math.floor(seconds / unit[1])}${unit[0]}`;
}
