import { expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { runToEnd, temporaryFolder } from '../support/resources';

const path = join(import.meta.dirname, '../../docs/alerts.yml');
const Rules = v.object({
  groups: v.array(
    v.object({
      rules: v.array(
        v.object({
          alert: v.string(),
          expr: v.string(),
          labels: v.object({ severity: v.picklist(['critical', 'warning']) }),
          annotations: v.object({ summary: v.string(), description: v.optional(v.string()) }),
        }),
      ),
    }),
  ),
});
const rules = v.parse(Rules, Bun.YAML.parse(await Bun.file(path).text())).groups.flatMap((group) => group.rules);

/** Series in the notation of `promtool test rules`, with one value a minute. Their job is `planning`, their instance `a`. */
type Series = Readonly<Record<string, string>>;

const saves = 'method="POST",route="/v2/private/user/profile"';
const applications = 'method="POST",route="/v2/private/ltc/totalCoverage"';
const saved = `http_requests_total{${saves},`;
const tookUpTo = `http_request_duration_seconds_bucket{${saves},`;
const backup = 'planning_task_last_success_timestamp_seconds{task="backup"}';
const retention = 'planning_task_last_success_timestamp_seconds{task="audit-retention"}';
const calls = 'planning_carrier_call_duration_seconds_count';
const otherCatalog = 'planning_catalog_version{instance="b"}';
const eventLoop = 'event_loop_delay_seconds_bucket';
const databaseBusy = 'planning_database_calls_total{database="primary",kind="write",outcome="busy"}';

/** Normal operation, while carrier calls are slow and carrier calls and probes fail. */
const normal: Series = {
  up: '1x150',
  process_start_time_seconds: '1000x150',
  [`http_requests_total{${saves},status="200"}`]: '0+600x150',
  [`http_requests_total{${applications},status="503"}`]: '0+600x150',
  'http_requests_total{method="GET",route="/health/ready",status="503"}': '0+600x150',
  [`http_request_duration_seconds_bucket{${saves},le="0.05"}`]: '0+600x150',
  [`http_request_duration_seconds_bucket{${saves},le="+Inf"}`]: '0+600x150',
  [`http_request_duration_seconds_bucket{${applications},le="10"}`]: '0x150',
  [`http_request_duration_seconds_bucket{${applications},le="+Inf"}`]: '0+600x150',
  planning_writes_available: '1x150',
  planning_database_lost: '0x150',
  planning_database_disk_free_bytes: '50x150',
  planning_database_disk_size_bytes: '100x150',
  planning_database_log_size_bytes: '4000000x150',
  planning_database_checkpoint_overdue_seconds: '0+10x30 0x120',
  [backup]: '0x150',
  [retention]: '0+60x150',
  planning_jwks_age_seconds: '300x150',
  planning_replica_in_sync: '1x150',
  planning_replica_last_sync_timestamp_seconds: '0+60x150',
  'planning_carrier_call_duration_seconds_count{outcome="accepted"}': '0+60x150',
  planning_catalog_version: '7x150',
  'planning_applications{state="unknown"}': '3x150',
  planning_applications_oldest_unknown_seconds: '600x150',
};

/** For each alert: when it fires, its labels other than the severity, and the series that make it fire. */
const instance = { job: 'planning', instance: 'a' };
const firing: Readonly<Record<string, readonly [at: string, labels: Readonly<Record<string, string>>, Series]>> = {
  PlanningDown: ['10m', instance, { up: '0x30' }],
  PlanningAbsent: ['10m', { job: 'planning' }, {}],
  PlanningRestarts: ['30m', instance, { process_start_time_seconds: '0+5x60' }],
  PlanningErrors: ['15m', {}, { [`${saved}status="200"}`]: '0+97x60', [`${saved}status="503"}`]: '0+3x60' }],
  PlanningSavesSlow: [
    '15m',
    {},
    {
      [`${tookUpTo}le="1"}`]: '0+95x60',
      [`${tookUpTo}le="2.5"}`]: '0+100x60',
      [`${tookUpTo}le="+Inf"}`]: '0+100x60',
    },
  ],
  PlanningWritesUnavailable: ['5m', instance, { planning_writes_available: '0x30' }],
  PlanningDatabaseLost: ['1m', instance, { planning_database_lost: '1x30' }],
  PlanningDatabaseErrors: ['15m', { instance: 'a', outcome: 'busy' }, { [databaseBusy]: '0+60x60' }],
  PlanningWriteQueueLong: ['10m', instance, { planning_write_queue_units: '2000x30' }],
  PlanningDiskAlmostFull: [
    '15m',
    instance,
    { planning_database_disk_free_bytes: '9x30', planning_database_disk_size_bytes: '100x30' },
  ],
  PlanningLogLarge: ['20m', instance, { planning_database_log_size_bytes: '300000000x60' }],
  PlanningCheckpointOverdue: ['20m', instance, { planning_database_checkpoint_overdue_seconds: '0+60x60' }],
  PlanningBackupOld: ['38h', {}, { [backup]: '0x3000' }],
  PlanningBackupMissing: ['25h', { job: 'planning', task: 'backup' }, { up: '1x3000' }],
  PlanningRetentionFailing: ['5h', {}, { [retention]: '0x3000' }],
  PlanningJwksOld: ['40m', instance, { planning_jwks_age_seconds: '0+60x60' }],
  PlanningReplicaUnused: ['10m', instance, { planning_replica_in_sync: '0x30' }],
  PlanningReplicaOld: ['20m', instance, { planning_replica_last_sync_timestamp_seconds: '60x60' }],
  PlanningCarrierBreakerOpen: [
    '10m',
    { instance: 'a', endpoint: 'start' },
    { 'planning_carrier_breaker_state{endpoint="start"}': '2x30' },
  ],
  PlanningCarrierFailing: [
    '40m',
    {},
    { [`${calls}{outcome="accepted"}`]: '0+1x60', [`${calls}{outcome="timeout"}`]: '0+1x60' },
  ],
  PlanningApplicationUndecided: ['45m', {}, { planning_applications_oldest_unknown_seconds: '600x10 7260+60x60' }],
  PlanningApplicationsAbandoned: ['45m', {}, { 'planning_applications{state="abandoned"}': '0x30 1x60' }],
  PlanningApplicationNumberTaken: ['45m', {}, { planning_application_numbers_taken_total: '0x30 1x60' }],
  PlanningEventLoopLag: [
    '15m',
    { instance: 'a' },
    {
      [`${eventLoop}{le="0.25"}`]: '0+90x60',
      [`${eventLoop}{le="1"}`]: '0+100x60',
      [`${eventLoop}{le="+Inf"}`]: '0+100x60',
    },
  ],
  PlanningOpenFilesHigh: ['10m', instance, { process_open_fds: '6000x30' }],
  PlanningCatalogDiffers: ['10m', {}, { planning_catalog_version: '7x30', [otherCatalog]: '8x30' }],
};

/** A case of `promtool test rules`. */
function toCase(name: string, series: Series, alert_rule_test: readonly object[]) {
  const input_series = Object.entries(series).map(([key, values]) => {
    const [, metric = '', labels = ''] = /^(\w+)(?:\{(.*)\})?$/.exec(key) ?? [];
    const all = ['job="planning"', ...(labels.includes('instance=') ? [] : ['instance="a"']), labels].filter(Boolean);
    return { series: `${metric}{${all.join(',')}}`, values };
  });
  return { name, interval: '1m', input_series, alert_rule_test };
}

test('every alert rule has a case in which it fires', () => {
  expect(rules.map(({ alert }) => alert)).toEqual(Object.keys(firing));
});

test.skipIf(Bun.which('promtool') === null)(
  'promtool accepts the alert rules, and each fires with its failure and none in normal operation',
  async () => {
    const silent = rules.map(({ alert }) => ({ eval_time: '2h', alertname: alert }));
    const cases = rules.map(({ alert, labels, annotations }) => {
      const [eval_time = '', own = {}, series = {}] = firing[alert] ?? [];
      const exp_alerts = [{ exp_labels: { ...labels, ...own }, exp_annotations: annotations }];
      return {
        isSlow: eval_time.endsWith('h'),
        ...toCase(alert, series, [{ eval_time, alertname: alert, exp_alerts }]),
      };
    });
    const write = async (evaluation_interval: string, tests: readonly object[]) => {
      const file = join(temporaryFolder(), 'alerts.test.json');
      await Bun.write(file, JSON.stringify({ rule_files: [path], evaluation_interval, tests }));
      return file;
    };
    const [slow = [], quick = []] = [true, false].map((isSlow) =>
      cases.filter((each) => each.isSlow === isSlow).map(({ isSlow: _, ...each }) => each),
    );
    const files = [
      await write('5m', [toCase('normal operation', normal, silent), ...quick]),
      // More evaluations of a day take seconds.
      await write('1h', slow),
    ];
    const runs = [
      ['check', 'rules', path],
      ['test', 'rules', ...files],
    ].map((args) => runToEnd(Bun.spawn(['promtool', ...args], { stdout: 'pipe', stderr: 'pipe' })));
    for (const { exitCode, stdout, stderr } of await Promise.all(runs))
      expect([exitCode, exitCode === 0 ? '' : stdout + stderr]).toEqual([0, '']);
  },
);
