CREATE TABLE `application_attempts` (
	`application_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`started_at` integer NOT NULL,
	`ended_at` integer NOT NULL,
	`outcome` text NOT NULL,
	`reply` text NOT NULL,
	PRIMARY KEY(`application_id`, `attempt`),
	FOREIGN KEY (`application_id`) REFERENCES `applications`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `applications` (
	`id` text PRIMARY KEY NOT NULL,
	`user_id` text NOT NULL,
	`flow` text NOT NULL,
	`identity_hash` text NOT NULL,
	`generation` integer NOT NULL,
	`supersedes` text,
	`applicant` text NOT NULL,
	`state` text NOT NULL,
	`decline_reason` text,
	`application_number` integer,
	`pricing` text,
	`attempt` integer NOT NULL,
	`attempt_started_at` integer NOT NULL,
	`created_at` integer NOT NULL,
	`settled_at` integer,
	CONSTRAINT "applications_applicant_is_json" CHECK(json_valid("applications"."applicant")),
	CONSTRAINT "applications_pricing_is_json" CHECK(json_valid("applications"."pricing"))
);
--> statement-breakpoint
CREATE UNIQUE INDEX `applications_once` ON `applications` (`user_id`,`flow`,`identity_hash`,`generation`);--> statement-breakpoint
CREATE INDEX `applications_by_user` ON `applications` (`user_id`,`created_at`);--> statement-breakpoint
CREATE INDEX `applications_open` ON `applications` (`attempt_started_at`) WHERE "applications"."state" IN ('submitting', 'unknown');--> statement-breakpoint
CREATE TABLE `idempotency_keys` (
	`user_id` text NOT NULL,
	`path` text NOT NULL,
	`key` text NOT NULL,
	`body_hash` text NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`user_id`, `path`, `key`)
);
--> statement-breakpoint
CREATE INDEX `idempotency_keys_by_age` ON `idempotency_keys` (`created_at`);--> statement-breakpoint
CREATE TABLE `leases` (
	`name` text PRIMARY KEY NOT NULL,
	`holder` text NOT NULL,
	`expires_at` integer NOT NULL
);
