"""The schema of the PostgreSQL store: numbered migrations, only upwards, under a lock, all of them or none.

The rules this file guards: a schema that is newer than this program is left alone; whatever the schema is for is in
one function, ``change``, which is one transaction and one round trip: it locks, compares what a decision saw with what
is there, writes, and notes the commit under its random id; ``change_one`` is the same for one record, in half the time.
They need no state of a connection, so that a pooler may give each call another one. Rows of a workspace are seen by the
roles in ``members`` alone, whatever a client sets.

``commits`` is the feed, and how a lost answer is found out. ``xact`` is the transaction's id: what a snapshot has not
seen was committed after it, however late; a late commit would get a serial number below one already read. Rows older
than a day are removed; one without paths stands for them, with the last of their ids: a point before it is too old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from memfiles.errors import StorageRefused

if TYPE_CHECKING:
    from psycopg import Connection

# One row of members is looked up for each row: a list of all workspaces of the role, for each statement, takes longer.
_POLICY = (
    " POLICY own ON {s}.<table> USING (EXISTS"
    " (SELECT FROM {s}.members m WHERE m.role = current_user AND m.workspace = <table>.workspace));\n"
)
_PROTECTION = "ALTER TABLE {s}.<table> ENABLE ROW LEVEL SECURITY;\nCREATE" + _POLICY


def _for_each(tables: str, statements: str) -> str:
    """The statements for each of these tables."""
    return "".join(statements.replace("<table>", table) for table in tables.split())


_FIRST = """
CREATE TABLE {s}.store (version integer NOT NULL, id uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO {s}.store (version) VALUES (0);

CREATE TABLE {s}.members (role name NOT NULL, workspace text COLLATE "C" NOT NULL, PRIMARY KEY (role, workspace));

CREATE TABLE {s}.records (
    workspace text COLLATE "C" NOT NULL, path text COLLATE "C" NOT NULL, version bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (workspace, path)
) WITH (fillfactor = 70);
ALTER TABLE {s}.records ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE {s}.commits (
    workspace text COLLATE "C" NOT NULL, xact xid8 NOT NULL DEFAULT pg_current_xact_id(), id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), paths text[] NOT NULL
);
CREATE INDEX commits_by_xact ON {s}.commits (workspace, xact);

CREATE TABLE {s}.quarantine (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, workspace text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL, at timestamptz NOT NULL DEFAULT now(), reason text NOT NULL, data bytea NOT NULL
);
ALTER TABLE {s}.quarantine ALTER COLUMN data SET STORAGE EXTERNAL;

ALTER TABLE {s}.members ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON {s}.members USING (role = current_user);
""" + _for_each("records commits quarantine", _PROTECTION)

_SECOND = """
ALTER TABLE {s}.quarantine ADD COLUMN folder text NOT NULL DEFAULT 'quarantine', ADD COLUMN lost text;

CREATE TABLE {s}.audit (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, workspace text COLLATE "C" NOT NULL,
    month text COLLATE "C" NOT NULL, batch bigint NOT NULL, line bytea NOT NULL
);
CREATE INDEX audit_by_month ON {s}.audit (workspace, month, id);

CREATE TABLE {s}.notes (
    workspace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (workspace, name)
);
CREATE TABLE {s}.lease (
    workspace text COLLATE "C" PRIMARY KEY, holder bigint NOT NULL, until timestamptz NOT NULL
);

-- the ledger of a mirror, with the columns that it has in a file; who uses it names the workspace in its transaction
CREATE TABLE {s}.mirror_meta (
    key text COLLATE "C" NOT NULL, value text,
    workspace text COLLATE "C" NOT NULL DEFAULT current_setting('memfiles.workspace'), PRIMARY KEY (workspace, key)
);
CREATE TABLE {s}.mirror_note (
    path text COLLATE "C" NOT NULL, version text, digest text, inode bigint, size bigint, mtime_ns bigint,
    body bytea, sent bytea, sent_version text, redacted bigint NOT NULL DEFAULT 0,
    workspace text COLLATE "C" NOT NULL DEFAULT current_setting('memfiles.workspace'), PRIMARY KEY (workspace, path)
);
""" + _for_each("audit notes lease mirror_meta mirror_note", _PROTECTION)

_THIRD = """
CREATE INDEX commits_by_time ON {s}.commits (workspace, at);

-- a copy of the search index, in parts; whatever erases something removes it, and counts, so that none is kept that was
-- made before
CREATE TABLE {s}.image (
    workspace text COLLATE "C" NOT NULL, part integer NOT NULL, id bigint NOT NULL, format integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), data bytea NOT NULL, PRIMARY KEY (workspace, part)
);
ALTER TABLE {s}.image ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE {s}.image_state (
    workspace text COLLATE "C" PRIMARY KEY, erased bigint NOT NULL DEFAULT 0, claimed timestamptz NOT NULL
);

CREATE FUNCTION {s}.erase_image(of_workspace text, changed text[]) RETURNS text[] LANGUAGE plpgsql AS $erase$
BEGIN
    INSERT INTO {s}.image_state (workspace, erased, claimed) VALUES (of_workspace, 1, '-infinity')
        ON CONFLICT (workspace) DO UPDATE SET erased = image_state.erased + 1;
    DELETE FROM {s}.image i WHERE i.workspace = of_workspace;
    RETURN changed;
END
$erase$;

CREATE OR REPLACE FUNCTION {s}.change(
    of_workspace text, commit_id bigint, is_again boolean, is_durable boolean, wait_ms integer, locks bigint[],
    seen_paths text[], seen_versions bigint[], aside_paths text[], reasons text[],
    new_paths text[], replaced bigint[], bodies bytea[]
) RETURNS text[] LANGUAGE plpgsql AS $change$
DECLARE
    each record;
    changed text[] := ARRAY[]::text[];
    written bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'memfiles needs the isolation level "read committed"' USING ERRCODE = 'MF002';
    END IF;
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    IF NOT is_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- several records: the first lock is that of the workspace, held alone or, with locks of records, together
    IF cardinality(locks) = 1 THEN
        PERFORM pg_advisory_xact_lock(locks[1]);
    ELSIF cardinality(locks) > 1 THEN
        PERFORM pg_advisory_xact_lock_shared(locks[1]);
        PERFORM pg_advisory_xact_lock(key) FROM unnest(locks[2:]) AS key;
    END IF;
    IF is_again THEN  -- was it done, and the answer lost?
        SELECT c.paths INTO each FROM {s}.commits c WHERE c.workspace = of_workspace AND c.id = commit_id;
        IF FOUND THEN
            RETURN each.paths;
        END IF;
    END IF;
    IF cardinality(seen_paths) > 0 AND EXISTS (
        SELECT FROM unnest(seen_paths, seen_versions) AS seen(path, version)
        LEFT JOIN {s}.records r ON r.workspace = of_workspace AND r.path = seen.path
        WHERE r.version IS DISTINCT FROM seen.version
    ) THEN
        RAISE EXCEPTION 'a record was changed meanwhile' USING ERRCODE = 'MF001';
    END IF;
    IF cardinality(aside_paths) > 0 THEN
        INSERT INTO {s}.quarantine (workspace, path, reason, data)
            SELECT of_workspace, r.path, a.reason, r.data FROM unnest(aside_paths, reasons) AS a(path, reason)
            JOIN {s}.records r ON r.workspace = of_workspace AND r.path = a.path;
    END IF;
    IF cardinality(new_paths) <= 8 THEN
        FOR each IN SELECT * FROM unnest(new_paths, replaced, bodies) AS w(path, version, body) LOOP
            IF each.body IS NULL THEN  -- removed, if it is at this version
                DELETE FROM {s}.records r
                    WHERE r.workspace = of_workspace AND r.path = each.path AND r.version = each.version;
                CONTINUE WHEN NOT FOUND;
            ELSIF each.version IS NULL THEN
                INSERT INTO {s}.records (workspace, path, version, data)
                    VALUES (of_workspace, each.path, commit_id, each.body) ON CONFLICT DO NOTHING;
            ELSE
                UPDATE {s}.records r SET version = commit_id, data = each.body
                    WHERE r.workspace = of_workspace AND r.path = each.path AND r.version = each.version;
            END IF;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'a record was changed meanwhile' USING ERRCODE = 'MF001';
            END IF;
            changed := array_append(changed, each.path);
        END LOOP;
    ELSE  -- many records: one statement for all of them
        WITH w AS MATERIALIZED (SELECT * FROM unnest(new_paths, replaced, bodies) AS w(path, version, body)),
        removed AS (
            DELETE FROM {s}.records r USING w
            WHERE w.body IS NULL AND r.workspace = of_workspace AND r.path = w.path AND r.version = w.version
            RETURNING r.path
        ), made AS (
            INSERT INTO {s}.records AS r (workspace, path, version, data)
                SELECT of_workspace, w.path, commit_id, w.body FROM w WHERE w.body IS NOT NULL AND w.version IS NULL
            ON CONFLICT DO NOTHING RETURNING r.path
        ), updated AS (
            UPDATE {s}.records r SET version = commit_id, data = w.body FROM w
            WHERE w.body IS NOT NULL AND r.workspace = of_workspace AND r.path = w.path AND r.version = w.version
            RETURNING r.path
        )
        SELECT array(SELECT path FROM removed UNION ALL SELECT path FROM made UNION ALL SELECT path FROM updated),
            (SELECT count(*) FROM made) + (SELECT count(*) FROM updated)
            INTO changed, written;
        IF written <> (SELECT count(body) FROM unnest(bodies) AS body) THEN
            RAISE EXCEPTION 'a record was changed meanwhile' USING ERRCODE = 'MF001';
        END IF;
    END IF;
    IF cardinality(changed) > 0 THEN
        INSERT INTO {s}.commits (workspace, id, paths) VALUES (of_workspace, commit_id, changed);
    END IF;
    RETURN changed;
END
$change$;

-- one record of which nothing but itself was seen: false if it is not at that version, null for one that is new
CREATE FUNCTION {s}.change_one(
    of_workspace text, of_path text, replaced bigint, body bytea, commit_id bigint, is_durable boolean, wait_ms integer,
    is_again boolean
) RETURNS boolean LANGUAGE plpgsql AS $change$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'memfiles needs the isolation level "read committed"' USING ERRCODE = 'MF002';
    END IF;
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    IF NOT is_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF is_again THEN  -- was it done, and the answer lost?
        PERFORM FROM {s}.commits c WHERE c.workspace = of_workspace AND c.id = commit_id;
        IF FOUND THEN
            RETURN true;
        END IF;
    END IF;
    IF replaced IS NULL THEN
        INSERT INTO {s}.records (workspace, path, version, data)
            VALUES (of_workspace, of_path, commit_id, body) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE {s}.records r SET version = commit_id, data = body
            WHERE r.workspace = of_workspace AND r.path = of_path AND r.version = replaced;
    END IF;
    IF NOT FOUND THEN  -- or was the first try not over yet, so that this one waited for it?
        RETURN is_again AND EXISTS (SELECT FROM {s}.commits c WHERE c.workspace = of_workspace AND c.id = commit_id);
    END IF;
    INSERT INTO {s}.commits (workspace, id, paths) VALUES (of_workspace, commit_id, ARRAY[of_path]);
    RETURN true;
END
$change$;
"""
_THIRD += _for_each("image image_state", _PROTECTION)
# a schema of version 1 or 2 may have other policies, and another function ``change``
_THIRD += _for_each("records commits quarantine audit notes lease mirror_meta mirror_note", "ALTER" + _POLICY)

MIGRATIONS = (sql.SQL(_FIRST), sql.SQL(_SECOND), sql.SQL(_THIRD))
"""The migration at place n makes version n + 1 of version n. What leads to the same schema may be written anew."""

VERSION = len(MIGRATIONS)
_LOCK = 0x6D656D66  # any number that no other program is likely to take


def version_of(connection: Connection, schema: str) -> int:
    """The version of a schema, 0 if there is none. ``StorageRefused`` if this role may not look at it."""
    name = f"{schema}.store"
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    if found is None or not found[0]:
        return 0
    allowed = connection.execute("SELECT has_table_privilege(%s, 'SELECT')", (name,)).fetchone()
    if allowed is None or not allowed[0]:
        raise StorageRefused(f"this role may not use the schema {schema}: see postgres-role.sql in the docs")
    query = sql.SQL("SELECT version FROM {}.store").format(sql.Identifier(schema))
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def migrate(connection: Connection, schema: str) -> int:
    """Bring a schema to the version of this program, and return the version that it had.

    Several processes may try at once. ``StorageRefused`` if the schema is newer.
    """
    named = sql.Identifier(schema)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, schema))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(named))
        found = check_version(version_of(connection, schema), schema)
        for migration in MIGRATIONS[found:]:
            connection.execute(migration.format(s=named))
        connection.execute(sql.SQL("UPDATE {}.store SET version = %s").format(named), (VERSION,))
    return found


def check_version(found: int, schema: str) -> int:
    """The version of a schema, or ``StorageRefused`` if it is newer than this program."""
    if found > VERSION:
        raise StorageRefused(
            f"the schema {schema} has version {found}, and this program knows versions up to {VERSION}: "
            f"upgrade memfiles on this machine"
        )
    return found
