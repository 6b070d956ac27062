CREATE TABLE `activities` (
	`external_id` text PRIMARY KEY NOT NULL,
	`staff_id` text NOT NULL,
	`manager_id` text NOT NULL,
	`kind` text NOT NULL,
	`amount_cents` integer NOT NULL,
	`occurred_at` integer NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer NOT NULL,
	FOREIGN KEY (`staff_id`) REFERENCES `staff`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`manager_id`) REFERENCES `staff`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "activities_plan_of_manager" CHECK("activities"."kind" NOT IN ('monthlyPlan', 'semiAnnualPlan') OR "activities"."staff_id" = "activities"."manager_id")
);
--> statement-breakpoint
CREATE INDEX `activities_by_team` ON `activities` (`manager_id`,`occurred_at`,`staff_id`,`kind`,`amount_cents`);--> statement-breakpoint
CREATE TABLE `staff` (
	`id` text PRIMARY KEY NOT NULL,
	`role` text NOT NULL,
	`first_name` text NOT NULL,
	`last_name` text NOT NULL,
	`manager_id` text,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer NOT NULL,
	FOREIGN KEY (`manager_id`) REFERENCES `staff`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "staff_manager_of_counselor" CHECK(("staff"."role" = 'counselor') = ("staff"."manager_id" IS NOT NULL))
);
--> statement-breakpoint
CREATE INDEX `staff_by_manager` ON `staff` (`manager_id`);--> statement-breakpoint
ALTER TABLE `users` ADD `counselor_id` text REFERENCES staff(id);