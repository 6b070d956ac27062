CREATE TABLE `row_counts` (
	`table_name` text PRIMARY KEY NOT NULL,
	`row_count` integer NOT NULL
);
--> statement-breakpoint
INSERT INTO `row_counts` SELECT 'cemeteries', count(*) FROM `cemeteries`;--> statement-breakpoint
CREATE TRIGGER `cemeteries_count_added` AFTER INSERT ON `cemeteries` BEGIN
	UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'cemeteries';
END;--> statement-breakpoint
CREATE TRIGGER `cemeteries_count_removed` AFTER DELETE ON `cemeteries` BEGIN
	UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'cemeteries';
END;
