CREATE TABLE `schema_compatibility` (
	`id` integer PRIMARY KEY NOT NULL,
	`min_reader` integer NOT NULL,
	`database_id` text NOT NULL
);
--> statement-breakpoint
INSERT INTO `schema_compatibility` VALUES (1, 0, lower(hex(randomblob(16))));
