CREATE TABLE `catalog_versions` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`content_hash` text NOT NULL,
	`source` text NOT NULL,
	`penalty_hundredths` integer NOT NULL,
	`is_complete` integer NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `conditions` (
	`catalog_version` integer NOT NULL,
	`position` integer NOT NULL,
	`code` text NOT NULL,
	`when` text NOT NULL,
	PRIMARY KEY(`catalog_version`, `code`),
	FOREIGN KEY (`catalog_version`) REFERENCES `catalog_versions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "conditions_when_is_json" CHECK(json_valid("conditions"."when"))
);
--> statement-breakpoint
CREATE TABLE `product_disqualifiers` (
	`catalog_version` integer NOT NULL,
	`product_id` integer NOT NULL,
	`position` integer NOT NULL,
	`code` text NOT NULL,
	PRIMARY KEY(`catalog_version`, `product_id`, `code`),
	FOREIGN KEY (`catalog_version`) REFERENCES `catalog_versions`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE TABLE `product_rules` (
	`catalog_version` integer NOT NULL,
	`product_id` integer NOT NULL,
	`position` integer NOT NULL,
	`id` text NOT NULL,
	`when` text NOT NULL,
	`points_hundredths` integer NOT NULL,
	`text_list` text NOT NULL,
	`text` text NOT NULL,
	`reason` text NOT NULL,
	PRIMARY KEY(`catalog_version`, `product_id`, `id`),
	FOREIGN KEY (`catalog_version`) REFERENCES `catalog_versions`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "product_rules_when_is_json" CHECK(json_valid("product_rules"."when"))
);
--> statement-breakpoint
CREATE TABLE `products` (
	`catalog_version` integer NOT NULL,
	`position` integer NOT NULL,
	`id` integer NOT NULL,
	`product_name` text NOT NULL,
	`product_wrapper` text NOT NULL,
	`product_icon` text NOT NULL,
	`is_active` integer NOT NULL,
	PRIMARY KEY(`catalog_version`, `id`),
	FOREIGN KEY (`catalog_version`) REFERENCES `catalog_versions`(`id`) ON UPDATE no action ON DELETE no action
);
