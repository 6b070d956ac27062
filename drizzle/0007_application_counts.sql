WITH `counts` AS MATERIALIZED (SELECT
	count(*) FILTER (WHERE `state` = 'submitting') AS `submitting`, count(*) FILTER (WHERE `state` = 'submitted') AS `submitted`,
	count(*) FILTER (WHERE `state` = 'declined') AS `declined`, count(*) FILTER (WHERE `state` = 'unknown') AS `unknown` FROM `applications`)
INSERT INTO `row_counts` SELECT 'applications:submitting', `submitting` FROM `counts` UNION ALL SELECT 'applications:submitted', `submitted` FROM `counts`
	UNION ALL SELECT 'applications:declined', `declined` FROM `counts` UNION ALL SELECT 'applications:unknown', `unknown` FROM `counts`;--> statement-breakpoint
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
