DROP INDEX `applications_by_user`;--> statement-breakpoint
ALTER TABLE `applications` ADD `carrier` text;--> statement-breakpoint
ALTER TABLE `applications` ADD `refusals` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `applications` ADD `retry_at` integer;--> statement-breakpoint
ALTER TABLE `applications` ADD `reconcile_at` integer;--> statement-breakpoint
ALTER TABLE `applications` ADD `abandoned_at` integer;--> statement-breakpoint
CREATE INDEX `applications_by_number` ON `applications` (`application_number`,`carrier`);--> statement-breakpoint
CREATE INDEX `applications_by_user` ON `applications` (`user_id`,`created_at`,`id`);--> statement-breakpoint
INSERT INTO `row_counts` VALUES ('applications:abandoned', 0);--> statement-breakpoint
DROP TRIGGER `applications_count_added`;--> statement-breakpoint
DROP TRIGGER `applications_count_moved`;--> statement-breakpoint
DROP TRIGGER `applications_count_removed`;--> statement-breakpoint
CREATE TRIGGER `applications_count_added` AFTER INSERT ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || iif(NEW.`abandoned_at` IS NULL OR NEW.`state` IN ('submitted', 'declined'), NEW.`state`, 'abandoned'); END;--> statement-breakpoint
CREATE TRIGGER `applications_count_moved` AFTER UPDATE OF `state`, `abandoned_at` ON `applications` WHEN iif(OLD.`abandoned_at` IS NULL OR OLD.`state` IN ('submitted', 'declined'), OLD.`state`, 'abandoned') <> iif(NEW.`abandoned_at` IS NULL OR NEW.`state` IN ('submitted', 'declined'), NEW.`state`, 'abandoned') BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || iif(OLD.`abandoned_at` IS NULL OR OLD.`state` IN ('submitted', 'declined'), OLD.`state`, 'abandoned'); UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || iif(NEW.`abandoned_at` IS NULL OR NEW.`state` IN ('submitted', 'declined'), NEW.`state`, 'abandoned'); END;--> statement-breakpoint
CREATE TRIGGER `applications_count_removed` AFTER DELETE ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || iif(OLD.`abandoned_at` IS NULL OR OLD.`state` IN ('submitted', 'declined'), OLD.`state`, 'abandoned'); END;
