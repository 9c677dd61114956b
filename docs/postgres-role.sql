-- What the role of a worker may do, and nothing else. Run it as the owner of the schema, once it exists:
--   psql -c "CREATE ROLE memfiles_app LOGIN" -f postgres-role.sql
-- The owner alone creates and upgrades the schema, and says which workspaces the role belongs to:
--   INSERT INTO memfiles.members (role, workspace) VALUES ('memfiles_app', 'support-desk')
GRANT USAGE ON SCHEMA memfiles TO memfiles_app;
GRANT SELECT ON memfiles.store, memfiles.members TO memfiles_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON memfiles.records TO memfiles_app;
GRANT SELECT, INSERT, DELETE ON memfiles.commits TO memfiles_app;
GRANT SELECT, INSERT, DELETE ON memfiles.quarantine TO memfiles_app;
-- the audit: what names a forgotten user is blanked, and months that are too old are dropped
GRANT SELECT, INSERT, UPDATE, DELETE ON memfiles.audit TO memfiles_app;
-- notes, also of forgets in progress, and for workflows with a mirror the ledger, and whose turn it is
GRANT SELECT, INSERT, UPDATE, DELETE ON memfiles.notes, memfiles.mirror_meta, memfiles.mirror_note TO memfiles_app;
GRANT SELECT, INSERT, UPDATE ON memfiles.lease TO memfiles_app;
-- the image of the search index, which fresh workers fetch
GRANT SELECT, INSERT, UPDATE, DELETE ON memfiles.image TO memfiles_app;
GRANT SELECT, INSERT, UPDATE ON memfiles.image_state TO memfiles_app;
-- PostgreSQL 17 and later: what is forgotten is also removed from dead rows. Before 17, the owner has to vacuum
GRANT MAINTAIN ON memfiles.records, memfiles.quarantine, memfiles.image, memfiles.mirror_note TO memfiles_app;
-- what a pooler in transaction mode does not let a client say
ALTER ROLE memfiles_app SET default_transaction_isolation = 'read committed';
ALTER ROLE memfiles_app SET statement_timeout = '60s'
