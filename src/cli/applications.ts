import { Argument, Command, Option } from 'commander';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import type { Database } from '../db/client';
import { type ApplicationRow, erasedUserId } from '../db/schema/people';
import { OperatorError } from '../errors';
import { createAuditStore, noUserId, type Operator } from '../modules/audit/store';
import { createOperationStore, type ShownState, shownState, shownStates } from '../modules/coverage/outcomes';
import { createApplicationStore, staleAfterMsOf } from '../modules/coverage/store';
import { CarrierAcceptance, type CarrierDecision, carrierId } from '../shared/carrier';
import { findFieldErrors } from '../shared/field-errors';
import { type Context, confirm, durationSeconds, identifier, readJsonFile, readSettings } from './context';
import { withDatabase } from './database';
import { mapPages, printResult, streamJson, streamTable } from './output';

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

export function applicationsCommand(context: Context): Command {
  return new Command('applications')
    .description('List the applications of all users, and end those that the carrier has not decided')
    .addCommand(listCommand(context))
    .addCommand(settleCommand(context))
    .addCommand(abandonCommand(context));
}

function idArgument(): Argument {
  return new Argument('<id>', 'id of the application: the reference at the carrier').argParser(identifier);
}

function listCommand(context: Context): Command {
  return new Command('list')
    .description('Print applications with their state, age, user and number, in the order in which they started')
    .addOption(
      new Option('--state <state...>', 'only these states').choices(shownStates).default(['submitting', 'unknown']),
    )
    .option('--older-than <duration>', 'only older ones, such as 2h or 7d', durationSeconds)
    .option('--json', 'print them as JSON', false)
    .addHelpText('after', '\nApplications of erased users are not listed. The audit log records this command.')
    .action((options: ListOptions) =>
      withDatabase(context, readSettings(context, 'applications list'), async (db) => {
        const now = Date.now();
        const access = { userId: noUserId, action: 'read', actor: 'operator', section: 'applications' } as const;
        await createAuditStore(db).record({ ...access, ...context.operator(), now });
        const createdBefore = options.olderThan === undefined ? undefined : now - options.olderThan * 1000;
        const pages = createOperationStore(db).pages(options.state, createdBefore);
        if (options.json) {
          const toJson = (application: ApplicationRow) => toShown(application, now);
          return streamJson(context, {}, 'applications', mapPages(pages, toJson));
        }
        const toCells = (application: ApplicationRow) => [
          application.id,
          application.flow,
          shownState(application),
          readableAge(now - application.createdAt),
          String(application.applicationNumber ?? ''),
          application.userId,
        ];
        const header = ['id', 'flow', 'state', 'age', 'number', 'person'];
        return streamTable(context, [36, 4, 10, 6, 16], header, mapPages(pages, toCells));
      }),
    );
}

function settleCommand(context: Context): Command {
  return new Command('settle')
    .description('Store the decision of the carrier on an open application')
    .addArgument(idArgument())
    .option('--number <number>', 'the application number, if the carrier has accepted')
    .option('--pricing <file>', 'JSON file of the pricing, in the form of the carrier’s response')
    .addOption(new Option('--declined <reason>', 'the carrier has declined').choices(['declined', 'not-filed']))
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Ask the carrier by the id. The command checks and stores the decision like a response of the carrier: an accepted
application becomes the purchase of its user and is credited to the counselor. It also settles abandoned applications.`,
    )
    .action(async (id: string, options: SettleOptions) => {
      const decision = await decisionOf(context, options);
      const config = readSettings(context, 'applications settle');
      await withDatabase(context, config, async (db) => {
        const application = await findOpen(db, id, config);
        const outcome = decision.kind === 'accepted' ? `accepted as ${decision.applicationNumber}` : decision.reason;
        if (!options.yes) {
          await confirm(context, `Settle ${describe(application)} as ${outcome}?`, 'Nothing was settled');
        }
        await settle(db, application, decision, { config, operator: context.operator() });
        const settled = await createOperationStore(db).findById(id);
        const result = settled === undefined ? { id } : toShown(settled, Date.now());
        printResult(context, options, result, `The application is settled: ${outcome}.`);
      });
    });
}

function abandonCommand(context: Context): Command {
  return new Command('abandon')
    .description('End an application without a decision of the carrier')
    .addArgument(idArgument())
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Use it when the carrier does not know the application, or will not decide. The service stops asking the carrier. If the
user applies again, the service sends the application again under the same id, so that the carrier never has two.`,
    )
    .action((id: string, options: { yes: boolean; json: boolean }) => {
      const config = readSettings(context, 'applications abandon');
      return withDatabase(context, config, async (db) => {
        const application = await findOpen(db, id, config);
        if (shownState(application) === 'abandoned') throw new OperatorError('The application is already abandoned.');
        if (!options.yes) await confirm(context, `Abandon ${describe(application)}?`, 'Nothing was abandoned');
        const now = Date.now();
        const isDone = await createApplicationStore(db).abandon(application, { ...context.operator(), now });
        if (!isDone) throw hasChanged();
        printResult(context, options, { id, state: 'abandoned' }, 'The application is abandoned.');
      });
    });
}

/** @throws OperatorError that names each invalid field */
async function decisionOf(context: Context, { number, pricing, declined }: SettleOptions): Promise<CarrierDecision> {
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
    pricing: await readJsonFile(context, pricing),
  };
  const parsed = v.safeParse(CarrierAcceptance, given);
  if (parsed.success) return { kind: 'accepted', ...parsed.output, reply };
  const faults = findFieldErrors(CarrierAcceptance, parsed.issues, 'column').map(({ pointer, message }) =>
    pointer === 'applicationNumber' ? '  --number must be a whole number from 1' : `  ${pointer} ${message}`,
  );
  throw new OperatorError(`Nothing was settled:\n${faults.join('\n')}`);
}

/** @throws OperatorError for an application that is decided, or that a request to the carrier is deciding */
async function findOpen(db: Database, id: string, { carrier }: Pick<Config, 'carrier'>): Promise<ApplicationRow> {
  const application = await createOperationStore(db).findById(id);
  if (application === undefined) throw new OperatorError('There is no application with this id.');
  if (application.userId === erasedUserId) {
    throw new OperatorError('The user was erased, and the application closed.');
  }
  const { state, attemptStartedAt } = application;
  if (state === 'submitted' || state === 'declined') throw new OperatorError(`The application is already ${state}.`);
  const leftMs = staleAfterMsOf(carrier) - Math.abs(Date.now() - attemptStartedAt);
  if (state === 'submitting' && leftMs >= 0) {
    throw new OperatorError(`A request to the carrier is in flight. Try again in ${Math.ceil(leftMs / 1000) + 1} s.`);
  }
  return application;
}

/** @throws OperatorError when another process has settled the application, or another application has the number */
async function settle(
  db: Database,
  application: ApplicationRow,
  decision: CarrierDecision,
  { config, operator }: { readonly config: Pick<Config, 'carrier'>; readonly operator: Operator },
) {
  const doing = () => ({ ...operator, now: Date.now() });
  const store = createApplicationStore(db);
  // A new fencing token stops the reconciler and the requests of the user from settling the application.
  const claimed = await store.claim(application, Date.now());
  if (claimed === undefined) throw hasChanged();
  const carrier = carrierId(config.carrier.url ?? 'http://sandbox');
  const outcome = await store.settle(claimed, decision, carrier, { reconcileAt: null }, doing());
  if (outcome === 'settled') return;
  if (application.abandonedAt !== null) {
    const revived = await store.find(claimed);
    if (revived !== undefined) await store.abandon(revived, doing());
  }
  throw new OperatorError('Nothing was settled: another application has this number.');
}

function hasChanged(): OperatorError {
  return new OperatorError('Nothing was changed: another process has changed the application. List it again.');
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
