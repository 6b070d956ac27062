CREATE TABLE `cemeteries` (
	`id` text PRIMARY KEY NOT NULL,
	`external_id` text NOT NULL,
	`name` text NOT NULL,
	`sort_name` text NOT NULL,
	`street` text NOT NULL,
	`city` text NOT NULL,
	`state` text NOT NULL,
	`zip` text NOT NULL,
	`created_by` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `cemeteries_external_id_unique` ON `cemeteries` (`external_id`);--> statement-breakpoint
CREATE INDEX `cemeteries_by_name` ON `cemeteries` (`sort_name`,`id`);--> statement-breakpoint
CREATE TABLE `reference_lists` (
	`name` text PRIMARY KEY NOT NULL
);
--> statement-breakpoint
CREATE TABLE `reference_options` (
	`list` text NOT NULL,
	`id` integer NOT NULL,
	`title` text NOT NULL,
	PRIMARY KEY(`list`, `id`),
	FOREIGN KEY (`list`) REFERENCES `reference_lists`(`name`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`profile` text,
	`insurance` text,
	`ltc_lifetime_care` text,
	`purchase` text,
	`life_insurance` text,
	`lifetime_care` text,
	`version` integer NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	CONSTRAINT "users_profile_is_json" CHECK(json_valid("users"."profile")),
	CONSTRAINT "users_insurance_is_json" CHECK(json_valid("users"."insurance")),
	CONSTRAINT "users_ltc_lifetime_care_is_json" CHECK(json_valid("users"."ltc_lifetime_care")),
	CONSTRAINT "users_purchase_is_json" CHECK(json_valid("users"."purchase")),
	CONSTRAINT "users_life_insurance_is_json" CHECK(json_valid("users"."life_insurance")),
	CONSTRAINT "users_lifetime_care_is_json" CHECK(json_valid("users"."lifetime_care"))
);
