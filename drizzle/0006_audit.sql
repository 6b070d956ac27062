CREATE TABLE `audit_events` (
	`id` integer PRIMARY KEY NOT NULL,
	`occurred_at` integer NOT NULL,
	`user_id` text NOT NULL,
	`actor` text NOT NULL,
	`actor_id` text,
	`action` text NOT NULL,
	`section` text,
	`application_id` text,
	`request_id` text
);
--> statement-breakpoint
CREATE INDEX `audit_events_by_user` ON `audit_events` (`user_id`,`occurred_at`);--> statement-breakpoint
ALTER TABLE `users` ADD `request_id` text;--> statement-breakpoint
ALTER TABLE `users` ADD `request_version` integer;--> statement-breakpoint
ALTER TABLE `users` ADD `requested_at` integer;--> statement-breakpoint
CREATE TRIGGER `users_made_audited` AFTER INSERT ON `users` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	SELECT iif(NEW.`request_version` IS NEW.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', `section`, iif(NEW.`request_version` IS NEW.`version`, NEW.`request_id`, NULL)
	FROM (
		SELECT 'profile' AS `section` WHERE NEW.`profile` IS NOT NULL
		UNION ALL SELECT 'insurance.matches' WHERE NEW.`insurance` IS NOT NULL
		UNION ALL SELECT 'ltc.lifetimeCare' WHERE NEW.`ltc_lifetime_care` IS NOT NULL
		UNION ALL SELECT 'purchase.partner' WHERE NEW.`purchase` IS NOT NULL
		UNION ALL SELECT 'lifeInsurance' WHERE NEW.`life_insurance` IS NOT NULL
		UNION ALL SELECT 'lifetimeCare' WHERE NEW.`lifetime_care` IS NOT NULL
		UNION ALL SELECT NULL WHERE coalesce(NEW.`profile`, NEW.`insurance`, NEW.`ltc_lifetime_care`, NEW.`purchase`, NEW.`life_insurance`, NEW.`lifetime_care`) IS NULL
	);
END;--> statement-breakpoint
CREATE TRIGGER `users_profile_audited` AFTER UPDATE OF `profile` ON `users` WHEN NEW.`profile` IS NOT OLD.`profile` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'profile', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `users_insurance_audited` AFTER UPDATE OF `insurance` ON `users` WHEN NEW.`insurance` IS NOT OLD.`insurance` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'insurance.matches', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `users_ltc_lifetime_care_audited` AFTER UPDATE OF `ltc_lifetime_care` ON `users` WHEN NEW.`ltc_lifetime_care` IS NOT OLD.`ltc_lifetime_care` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'ltc.lifetimeCare', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `users_purchase_audited` AFTER UPDATE OF `purchase` ON `users` WHEN NEW.`purchase` IS NOT OLD.`purchase` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'purchase.partner', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `users_life_insurance_audited` AFTER UPDATE OF `life_insurance` ON `users` WHEN NEW.`life_insurance` IS NOT OLD.`life_insurance` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'lifeInsurance', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `users_lifetime_care_audited` AFTER UPDATE OF `lifetime_care` ON `users` WHEN NEW.`lifetime_care` IS NOT OLD.`lifetime_care` BEGIN
	INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`)
	VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'lifetimeCare', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL));
END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_replaced` BEFORE INSERT ON `audit_events` WHEN EXISTS (SELECT 1 FROM `audit_events` WHERE `id` = NEW.`id`) BEGIN
	SELECT RAISE(ABORT, 'An audit event is never replaced');
END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_changed` BEFORE UPDATE ON `audit_events` WHEN NOT (
	NEW.`user_id` GLOB 'erased:*' AND substr(NEW.`user_id`, 8) NOT GLOB '*[^0-9a-f]*' AND length(NEW.`user_id`) = 39
	AND NEW.`application_id` IS NULL AND NEW.`request_id` IS NULL
	AND NEW.`id` IS OLD.`id` AND NEW.`occurred_at` IS OLD.`occurred_at` AND NEW.`actor` IS OLD.`actor` AND NEW.`actor_id` IS OLD.`actor_id` AND NEW.`action` IS OLD.`action` AND NEW.`section` IS OLD.`section`
) BEGIN
	SELECT RAISE(ABORT, 'An audit event is never changed, except that its user is erased');
END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_removed` BEFORE DELETE ON `audit_events` WHEN OLD.`occurred_at` > (unixepoch() - 30 * 86400) * 1000 BEGIN
	SELECT RAISE(ABORT, 'An audit event is kept for at least 30 days');
END;
