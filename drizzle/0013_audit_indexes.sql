-- The applications of erased people are closed, and an open one is not counted any more. An earlier build erases by "user_id" alone.
CREATE TABLE `audit_retention` (
	`id` integer PRIMARY KEY NOT NULL,
	`days` integer NOT NULL,
	`as_of` integer NOT NULL,
	`checked_at` integer NOT NULL,
	`day_began_at` integer NOT NULL,
	`removed` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `audit_events_by_time` ON `audit_events` (`occurred_at`);--> statement-breakpoint
CREATE INDEX `audit_events_by_actor` ON `audit_events` (`actor_id`,`occurred_at`) WHERE "audit_events"."actor_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `audit_events_by_action` ON `audit_events` (`action`,`occurred_at`) WHERE "audit_events"."action" <> 'saved';--> statement-breakpoint
DROP TRIGGER `applications_count_added`;--> statement-breakpoint
DROP TRIGGER `applications_count_moved`;--> statement-breakpoint
DROP TRIGGER `applications_count_removed`;--> statement-breakpoint
UPDATE `row_counts` SET `row_count` = `row_count` - (SELECT count(*) FROM `applications` WHERE `state` IN ('submitting', 'unknown') AND `user_id` = '' AND 'applications:' || iif(`abandoned_at` IS NULL, `state`, 'abandoned') = `table_name`) WHERE `table_name` IN ('applications:submitting', 'applications:unknown', 'applications:abandoned');--> statement-breakpoint
UPDATE `applications` SET `abandoned_at` = unixepoch() * 1000 WHERE `state` IN ('submitting', 'unknown') AND `user_id` = '' AND `abandoned_at` IS NULL;--> statement-breakpoint
CREATE TRIGGER `applications_count_added` AFTER INSERT ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || CASE WHEN NEW.`state` IN ('submitted', 'declined') THEN NEW.`state` WHEN NEW.`user_id` = '' THEN 'erased' WHEN NEW.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE NEW.`state` END; END;--> statement-breakpoint
CREATE TRIGGER `applications_count_moved` AFTER UPDATE OF `state`, `abandoned_at`, `user_id` ON `applications` WHEN CASE WHEN OLD.`state` IN ('submitted', 'declined') THEN OLD.`state` WHEN OLD.`user_id` = '' THEN 'erased' WHEN OLD.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE OLD.`state` END <> CASE WHEN NEW.`state` IN ('submitted', 'declined') THEN NEW.`state` WHEN NEW.`user_id` = '' THEN 'erased' WHEN NEW.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE NEW.`state` END BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || CASE WHEN OLD.`state` IN ('submitted', 'declined') THEN OLD.`state` WHEN OLD.`user_id` = '' THEN 'erased' WHEN OLD.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE OLD.`state` END; UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || CASE WHEN NEW.`state` IN ('submitted', 'declined') THEN NEW.`state` WHEN NEW.`user_id` = '' THEN 'erased' WHEN NEW.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE NEW.`state` END; END;--> statement-breakpoint
CREATE TRIGGER `applications_count_removed` AFTER DELETE ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || CASE WHEN OLD.`state` IN ('submitted', 'declined') THEN OLD.`state` WHEN OLD.`user_id` = '' THEN 'erased' WHEN OLD.`abandoned_at` IS NOT NULL THEN 'abandoned' ELSE OLD.`state` END; END;
