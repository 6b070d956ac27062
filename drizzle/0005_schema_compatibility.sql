CREATE TABLE `schema_compatibility` (
	`id` integer PRIMARY KEY NOT NULL,
	`min_reader` integer NOT NULL
);
--> statement-breakpoint
INSERT INTO `schema_compatibility` VALUES (1, 0);
