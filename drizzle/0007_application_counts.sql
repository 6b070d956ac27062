INSERT INTO `row_counts` SELECT 'applications:' || `state`, (SELECT count(*) FROM `applications` WHERE `applications`.`state` = `states`.`state`)
	FROM (SELECT 'submitting' AS `state` UNION ALL SELECT 'submitted' UNION ALL SELECT 'declined' UNION ALL SELECT 'unknown') AS `states`;--> statement-breakpoint
CREATE TRIGGER `applications_count_added` AFTER INSERT ON `applications` BEGIN
	UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || NEW.`state`;
END;--> statement-breakpoint
CREATE TRIGGER `applications_count_moved` AFTER UPDATE OF `state` ON `applications` WHEN OLD.`state` <> NEW.`state` BEGIN
	UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || OLD.`state`;
	UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || NEW.`state`;
END;--> statement-breakpoint
CREATE TRIGGER `applications_count_removed` AFTER DELETE ON `applications` BEGIN
	UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || OLD.`state`;
END;
