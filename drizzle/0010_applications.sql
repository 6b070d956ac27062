DROP INDEX `applications_by_user`;--> statement-breakpoint
ALTER TABLE `applications` ADD `carrier` text;--> statement-breakpoint
ALTER TABLE `applications` ADD `refusals` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `applications` ADD `retry_at` integer;--> statement-breakpoint
CREATE UNIQUE INDEX `applications_by_number` ON `applications` (`application_number`,`carrier`);--> statement-breakpoint
CREATE INDEX `applications_by_user` ON `applications` (`user_id`,`created_at`,`id`);--> statement-breakpoint
INSERT INTO `row_counts` VALUES ('applications:abandoned', 0);
