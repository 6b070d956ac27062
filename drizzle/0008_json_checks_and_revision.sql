-- Rebuilds "applications" and "users" for checks that hold for NULL in every SQLite, and for "revision". The migrator has
-- switched foreign keys off, outside the transaction: else the DROP would delete the attempts of every application.
-- Each pair of lists gets both lists, an empty pair is removed, and a section without answers is NULL.
-- Each trigger is on one line: the loader of a libSQL server's dump ends a statement where a line ends in a semicolon.
CREATE TABLE `__new_applications` (
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
	CONSTRAINT "applications_applicant_is_json" CHECK(json_valid("__new_applications"."applicant")),
	CONSTRAINT "applications_pricing_is_json" CHECK("__new_applications"."pricing" IS NULL OR json_valid("__new_applications"."pricing"))
);
--> statement-breakpoint
INSERT INTO `__new_applications`("id", "user_id", "flow", "identity_hash", "generation", "supersedes", "applicant", "state", "decline_reason", "application_number", "pricing", "attempt", "attempt_started_at", "created_at", "settled_at") SELECT "id", "user_id", "flow", "identity_hash", "generation", "supersedes", "applicant", "state", "decline_reason", "application_number", "pricing", "attempt", "attempt_started_at", "created_at", "settled_at" FROM `applications`;--> statement-breakpoint
DROP TABLE `applications`;--> statement-breakpoint
ALTER TABLE `__new_applications` RENAME TO `applications`;--> statement-breakpoint
CREATE UNIQUE INDEX `applications_once` ON `applications` (`user_id`,`flow`,`identity_hash`,`generation`);--> statement-breakpoint
CREATE INDEX `applications_by_user` ON `applications` (`user_id`,`created_at`);--> statement-breakpoint
CREATE INDEX `applications_open` ON `applications` (`attempt_started_at`) WHERE "applications"."state" IN ('submitting', 'unknown');--> statement-breakpoint
CREATE TABLE `__new_users` (
	`id` text PRIMARY KEY NOT NULL,
	`profile` text,
	`insurance` text,
	`ltc_lifetime_care` text,
	`purchase` text,
	`life_insurance` text,
	`lifetime_care` text,
	`counselor_id` text,
	`version` integer NOT NULL,
	`revision` text DEFAULT (lower(hex(randomblob(8)))) NOT NULL,
	`request_id` text,
	`request_version` integer,
	`requested_at` integer,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	FOREIGN KEY (`counselor_id`) REFERENCES `staff`(`id`) ON UPDATE no action ON DELETE no action,
	CONSTRAINT "users_profile_is_json" CHECK("__new_users"."profile" IS NULL OR json_valid("__new_users"."profile")),
	CONSTRAINT "users_insurance_is_json" CHECK("__new_users"."insurance" IS NULL OR json_valid("__new_users"."insurance")),
	CONSTRAINT "users_ltc_lifetime_care_is_json" CHECK("__new_users"."ltc_lifetime_care" IS NULL OR json_valid("__new_users"."ltc_lifetime_care")),
	CONSTRAINT "users_purchase_is_json" CHECK("__new_users"."purchase" IS NULL OR json_valid("__new_users"."purchase")),
	CONSTRAINT "users_life_insurance_is_json" CHECK("__new_users"."life_insurance" IS NULL OR json_valid("__new_users"."life_insurance")),
	CONSTRAINT "users_lifetime_care_is_json" CHECK("__new_users"."lifetime_care" IS NULL OR json_valid("__new_users"."lifetime_care"))
);
--> statement-breakpoint
INSERT INTO `__new_users`("id", "profile", "insurance", "ltc_lifetime_care", "purchase", "life_insurance", "lifetime_care", "counselor_id", "version", "revision", "request_id", "request_version", "requested_at", "created_at", "updated_at") SELECT "id", nullif("profile", '{}'), "insurance", nullif("ltc_lifetime_care", '{}'), "purchase", nullif(CASE WHEN json_type("life_insurance", '$.policySupport') IS NOT 'object' THEN "life_insurance" WHEN json_extract("life_insurance", '$.policySupport') = '{}' THEN json_remove("life_insurance", '$.policySupport') ELSE json_set("life_insurance", '$.policySupport', json_object('selections', json(coalesce(json_extract("life_insurance", '$.policySupport.selections'), '[]')), 'customSelections', json(coalesce(json_extract("life_insurance", '$.policySupport.customSelections'), '[]')))) END, '{}'), nullif(CASE WHEN json_type("lifetime_care", '$.hobbies') IS NOT 'object' THEN "lifetime_care" WHEN json_extract("lifetime_care", '$.hobbies') = '{}' THEN json_remove("lifetime_care", '$.hobbies') ELSE json_set("lifetime_care", '$.hobbies', json_object('selections', json(coalesce(json_extract("lifetime_care", '$.hobbies.selections'), '[]')), 'customSelections', json(coalesce(json_extract("lifetime_care", '$.hobbies.customSelections'), '[]')))) END, '{}'), "counselor_id", "version", lower(hex(randomblob(8))), "request_id", "request_version", "requested_at", "created_at", "updated_at" FROM `users`;--> statement-breakpoint
DROP TABLE `users`;--> statement-breakpoint
ALTER TABLE `__new_users` RENAME TO `users`;--> statement-breakpoint
DROP TRIGGER `cemeteries_count_added`;--> statement-breakpoint
DROP TRIGGER `cemeteries_count_removed`;--> statement-breakpoint
DROP TRIGGER `audit_events_not_replaced`;--> statement-breakpoint
DROP TRIGGER `audit_events_not_changed`;--> statement-breakpoint
DROP TRIGGER `audit_events_not_removed`;--> statement-breakpoint
CREATE TRIGGER `cemeteries_count_added` AFTER INSERT ON `cemeteries` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'cemeteries'; END;--> statement-breakpoint
CREATE TRIGGER `cemeteries_count_removed` AFTER DELETE ON `cemeteries` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'cemeteries'; END;--> statement-breakpoint
CREATE TRIGGER `users_made_audited` AFTER INSERT ON `users` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) SELECT iif(NEW.`request_version` IS NEW.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', `section`, iif(NEW.`request_version` IS NEW.`version`, NEW.`request_id`, NULL) FROM ( SELECT 'profile' AS `section` WHERE NEW.`profile` IS NOT NULL UNION ALL SELECT 'insurance.matches' WHERE NEW.`insurance` IS NOT NULL UNION ALL SELECT 'ltc.lifetimeCare' WHERE NEW.`ltc_lifetime_care` IS NOT NULL UNION ALL SELECT 'purchase.partner' WHERE NEW.`purchase` IS NOT NULL UNION ALL SELECT 'lifeInsurance' WHERE NEW.`life_insurance` IS NOT NULL UNION ALL SELECT 'lifetimeCare' WHERE NEW.`lifetime_care` IS NOT NULL UNION ALL SELECT NULL WHERE coalesce(NEW.`profile`, NEW.`insurance`, NEW.`ltc_lifetime_care`, NEW.`purchase`, NEW.`life_insurance`, NEW.`lifetime_care`) IS NULL ); END;--> statement-breakpoint
CREATE TRIGGER `users_profile_audited` AFTER UPDATE OF `profile` ON `users` WHEN NEW.`profile` IS NOT OLD.`profile` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'profile', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `users_insurance_audited` AFTER UPDATE OF `insurance` ON `users` WHEN NEW.`insurance` IS NOT OLD.`insurance` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'insurance.matches', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `users_ltc_lifetime_care_audited` AFTER UPDATE OF `ltc_lifetime_care` ON `users` WHEN NEW.`ltc_lifetime_care` IS NOT OLD.`ltc_lifetime_care` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'ltc.lifetimeCare', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `users_purchase_audited` AFTER UPDATE OF `purchase` ON `users` WHEN NEW.`purchase` IS NOT OLD.`purchase` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'purchase.partner', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `users_life_insurance_audited` AFTER UPDATE OF `life_insurance` ON `users` WHEN NEW.`life_insurance` IS NOT OLD.`life_insurance` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'lifeInsurance', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `users_lifetime_care_audited` AFTER UPDATE OF `lifetime_care` ON `users` WHEN NEW.`lifetime_care` IS NOT OLD.`lifetime_care` BEGIN INSERT INTO `audit_events` (`occurred_at`, `user_id`, `actor`, `action`, `section`, `request_id`) VALUES (iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`requested_at`, unixepoch() * 1000), NEW.`id`, iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, iif(NEW.`request_id` IS NULL, 'service', 'person'), 'unknown'), 'saved', 'lifetimeCare', iif(NEW.`request_version` IS NEW.`version` AND NEW.`version` > OLD.`version`, NEW.`request_id`, NULL)); END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_replaced` BEFORE INSERT ON `audit_events` WHEN EXISTS (SELECT 1 FROM `audit_events` WHERE `id` = NEW.`id`) BEGIN SELECT RAISE(ABORT, 'An audit event is never replaced'); END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_changed` BEFORE UPDATE ON `audit_events` WHEN NOT ( NEW.`user_id` GLOB 'erased:*' AND substr(NEW.`user_id`, 8) NOT GLOB '*[^0-9a-f]*' AND length(NEW.`user_id`) = 39 AND NEW.`application_id` IS NULL AND NEW.`request_id` IS NULL AND NEW.`id` IS OLD.`id` AND NEW.`occurred_at` IS OLD.`occurred_at` AND NEW.`actor` IS OLD.`actor` AND NEW.`actor_id` IS OLD.`actor_id` AND NEW.`action` IS OLD.`action` AND NEW.`section` IS OLD.`section` ) BEGIN SELECT RAISE(ABORT, 'An audit event is never changed, except that its user is erased'); END;--> statement-breakpoint
CREATE TRIGGER `audit_events_not_removed` BEFORE DELETE ON `audit_events` WHEN OLD.`occurred_at` > (unixepoch() - 30 * 86400) * 1000 BEGIN SELECT RAISE(ABORT, 'An audit event is kept for at least 30 days'); END;--> statement-breakpoint
CREATE TRIGGER `applications_count_added` AFTER INSERT ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || NEW.`state`; END;--> statement-breakpoint
CREATE TRIGGER `applications_count_moved` AFTER UPDATE OF `state` ON `applications` WHEN OLD.`state` <> NEW.`state` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || OLD.`state`; UPDATE `row_counts` SET `row_count` = `row_count` + 1 WHERE `table_name` = 'applications:' || NEW.`state`; END;--> statement-breakpoint
CREATE TRIGGER `applications_count_removed` AFTER DELETE ON `applications` BEGIN UPDATE `row_counts` SET `row_count` = `row_count` - 1 WHERE `table_name` = 'applications:' || OLD.`state`; END;
