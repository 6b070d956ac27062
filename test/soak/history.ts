import { Database as SqliteDatabase } from 'bun:sqlite';
import { copyFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { openWalIndex } from '../../src/db/wal';
import { createSaveHistory } from '../support/disks';
import { createProduction, productionToken } from '../support/processes';
import type { EndedProcess } from '../support/resources';
import { temporaryFolder } from '../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
/** Stops the run after this many faults. */
const maxFaults = 20;
const sampledEveryMs = 5;
const maxUsersToErase = 200;

const Erased = v.object({ keptAs: v.string() });

interface Options {
  readonly seconds: number;
  readonly savers?: number;
  /** Rows of each imported file. */
  readonly rows?: number;
  /** Each saver continues as a new user after this many saves, so that the finished user can be erased. */
  readonly savesOfAUser?: number;
  readonly report?: (figures: HistoryFigures) => void;
}

export interface HistoryFigures {
  /** Acknowledged saves. */
  readonly saves: number;
  /** Saves with a 503 response. */
  readonly refused: number;
  /** Restarts of the WAL, each after a complete checkpoint. */
  readonly restarts: number;
  readonly imports: number;
  readonly erasures: number;
  readonly doctors: number;
  readonly backups: number;
}

/**
 * Saves as many users while commands import, erase, check and back up the same file. Then stops the service and
 * compares the database file with every acknowledged save.
 */
export async function runHistory({ seconds, savers = 64, rows = 3000, savesOfAUser = 50, report }: Options) {
  const production = await createProduction({ RATE_LIMIT_PER_MINUTE: '0' });
  const { databasePath, planning } = production;
  const service = await production.start();
  const history = createSaveHistory();
  const faults: string[] = [];
  const count = { refused: 0, restarts: 0, imports: 0, erasures: 0, doctors: 0, backups: 0 };
  const figures = (): HistoryFigures => ({ saves: history.acknowledged.length, ...count });
  const endsAtMs = performance.now() + seconds * 1000;
  const isOver = () =>
    (performance.now() >= endsAtMs && count.restarts * count.erasures > 0) || faults.length > maxFaults;
  const expectOk = (name: string, { exitCode, stdout, stderr }: EndedProcess): boolean => {
    if (exitCode !== 0) faults.push(`${name} ended with ${exitCode}: ${stderr}${stdout}`);
    return exitCode === 0;
  };
  /** Runs `work` at least once, then until the time is over. */
  const repeat = async (work: (round: number) => Promise<void>): Promise<void> => {
    let round = 0;
    do await work(++round);
    while (!isOver());
  };

  const usersToErase: string[] = [];
  const save = async (saver: number): Promise<void> => {
    for (let generation = 0; !isOver(); generation += 1) {
      const userId = `saver-${saver}-${generation}`;
      const headers = { authorization: `Bearer ${await productionToken(userId)}` };
      for (let value = 1; !isOver() && value <= savesOfAUser; value += 1) {
        const careCosts = generation * savesOfAUser + value;
        const response = await service.call('POST', ltc, { headers, body: { careCosts } });
        if (response.status === 200) history.note(userId, response, careCosts);
        else if (response.status === 503) count.refused += 1;
        else faults.push(`a save: ${response.status} ${response.text}`);
      }
      if (!isOver() && usersToErase.length < maxUsersToErase) usersToErase.push(userId);
    }
  };

  expectOk('import staff', await planning('import', 'staff', await production.write('staff.json', staff)));
  let imported = 0;
  const importRows = async (round: number): Promise<void> => {
    const numbers = Array.from({ length: rows }, (_, index) => index);
    const cemeteries = numbers.map((n) => `c-${n},Cemetery ${n} ${round},,Reston,VA,`);
    const activities = numbers.map((n) => `a-${n},seller,quote,${round},2026-03-01`);
    const files = {
      cemeteries: ['externalId,name,street,city,state,zip', ...cemeteries],
      activities: ['externalId,staffId,kind,amount,occurredAt', ...activities],
    };
    for (const [name, lines] of Object.entries(files)) {
      const file = await production.write(`${name}.csv`, lines.join('\n'));
      if (expectOk(`import ${name}`, await planning('import', name, file))) count.imports += 1;
    }
    imported = round;
  };
  const erase = async (): Promise<void> => {
    const userId = usersToErase.shift();
    if (userId === undefined) return Bun.sleep(20);
    const ended = await planning('user', 'erase', '--yes', '--json', userId);
    // A backup that reads the file prevents the truncation of the WAL; the command reports it after the erasure.
    if (!ended.stderr.includes('still holds what was erased') && !expectOk('erase', ended)) return;
    history.noteErasure(userId, v.parse(Erased, JSON.parse(ended.stdout)).keptAs);
    count.erasures += 1;
  };
  const check = async (): Promise<void> => {
    if (expectOk('doctor', await planning('doctor'))) count.doctors += 1;
  };
  const backup = join(temporaryFolder(), 'backup.db');
  const backUp = async (): Promise<void> => {
    if (expectOk('backup', await planning('backup', '--replace', backup))) count.backups += 1;
  };

  const index = openWalIndex(databasePath);
  let salts = index.read()?.salts;
  const sampler = setInterval(() => {
    const now = index.read()?.salts;
    if (now === undefined || now === salts) return;
    salts = now;
    count.restarts += 1;
  }, sampledEveryMs);
  const reporter = setInterval(() => report?.(figures()), 60_000);
  await Promise.all([
    ...Array.from({ length: savers }, (_, saver) => save(saver)),
    ...[importRows, erase, check, backUp].map(repeat),
  ]);
  clearInterval(sampler);
  clearInterval(reporter);

  service.process.kill('SIGTERM');
  if ((await service.process.exited) !== 0) faults.push(`the service ended with ${service.process.exitCode}`);
  if (existsSync(`${databasePath}-wal`)) faults.push('the WAL was not removed');
  for (const { level, msg } of service.logLines()) if (level === 'fatal') faults.push(msg);
  const copy = join(temporaryFolder(), 'copy.db');
  copyFileSync(databasePath, copy);
  faults.push(...history.faultsOf(copy), ...faultsOfRows(copy, { rows, round: imported }));
  expectOk('doctor --deep', await planning('doctor', '--deep'));
  return { ...figures(), faults };
}

const staff = JSON.stringify([
  { id: 'manager', role: 'salesManager', firstName: 'May', lastName: 'Manager', managerId: '' },
  { id: 'seller', role: 'counselor', firstName: 'Sam', lastName: 'Seller', managerId: 'manager' },
]);

/** Checks that the rows of the last import exist and that the integrity check passes. */
function faultsOfRows(path: string, { rows, round }: { rows: number; round: number }): string[] {
  const database = new SqliteDatabase(path, { readonly: true });
  const countOf = (sql: string) => database.query<{ n: number }, []>(`SELECT count(*) AS n FROM ${sql}`).get()?.n;
  const counts = {
    cemeteries: countOf(`cemeteries WHERE external_id GLOB 'c-*' AND name GLOB '* ${round}'`),
    activities: countOf(`activities WHERE external_id GLOB 'a-*' AND amount_cents = ${100 * round}`),
  };
  const found = database.query<{ integrity_check: string }, []>('PRAGMA integrity_check').all();
  database.close();
  return [
    ...Object.entries(counts).flatMap(([name, n]) => (n === rows ? [] : [`${n} of ${rows} ${name} are as imported`])),
    ...found.flatMap(({ integrity_check }) => (integrity_check === 'ok' ? [] : [integrity_check])),
  ];
}
