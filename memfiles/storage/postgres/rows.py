"""The rows of a workspace: reads of them, a decision's view of them, and the copies that were put aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, LiteralString

from msgspec import Struct

from memfiles.records.keys import is_record_path
from memfiles.records.redactions import Piece
from memfiles.storage.atomic import Signature
from memfiles.storage.postgres.connections import Connections
from memfiles.storage.quarantine import FOLDER, KeptCopy, MergeSide, holds_text

if TYPE_CHECKING:
    from memfiles.storage.postgres.home import Workspace

_FETCHED_MAX = 16  # up to so many unknown records are fetched whole before a decision, of more the signatures
_KEPT_AT_ONCE = 8 << 20  # bytes of kept copies that are fetched together, or one larger copy
_KNOWN_MAX = 65_536  # signatures of about 200 bytes each

# What a snapshot says holds in one history: that of a server since it was started, with tables that nobody replaced. A
# backup that was put back, or a standby that took over, may lack commits that a point has seen; once it has made as
# many others, its ids do not show that any more.
_HISTORY: LiteralString = (
    "(SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1e6)::bigint || '.' || s.tableoid || '.' || s.xmin"
    " FROM {s}.store s)"
)
# A server one of whose processes crashed uses ids of transactions again that were over but not on its disk, such as
# those of a NOTIFY. To a snapshot from before, the later ones look seen; so a point has a time as well, and what began
# since is told anyway.
_POINT: LiteralString = (
    "pg_current_snapshot()::text || '@' || (extract(epoch FROM statement_timestamp()) * 1e6)::bigint || '/' || "
    + _HISTORY
)
# The transaction of a note that can be read is over, unless the note came with a dump: its id is of another server.
_IS_OF_HERE: LiteralString = "pg_visible_in_snapshot(c.xact, (SELECT pg_current_snapshot()))"
# Before PostgreSQL 17 only the owner of a table may vacuum it.
_MAY_VACUUM: LiteralString = (
    "SELECT bool_and(pg_has_role(relowner, 'USAGE') OR current_setting('server_version_num')::integer >= 170000"
    " AND has_table_privilege(oid, CASE WHEN current_setting('server_version_num')::integer >= 170000"
    " THEN 'MAINTAIN' ELSE 'TRIGGER' END)) FROM pg_class"
    " WHERE relnamespace = '{s}'::regnamespace AND relname = ANY(%(tables)s)"
)

FLUSHED = b", set_config('synchronous_commit', 'on', true)"
"""The end of a statement that changes records, where the role or the server would not wait for the disk."""

# what postgres-role.sql gives, of which an earlier one may lack some
_LACKING: LiteralString = (
    "SELECT coalesce(string_agg(lower(verb) || ' on ' || c.relname, ', ' ORDER BY c.relname, verb), '')"
    " FROM pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS verb"
    " WHERE c.relnamespace = '{s}'::regnamespace AND c.relname IN ('records', 'commits', 'quarantine', 'audit',"
    " 'notes', 'lease', 'mirror_meta', 'mirror_note', 'image', 'image_state')"
    " AND (verb <> 'UPDATE' OR c.relname NOT IN ('commits', 'quarantine'))"
    " AND (verb <> 'DELETE' OR c.relname NOT IN ('lease', 'image_state')) AND NOT has_table_privilege(c.oid, verb)"
)

STATEMENTS: dict[str, LiteralString] = {
    "find": "SELECT path, version, data FROM {s}.records WHERE workspace = %(workspace)s AND path = ANY(%(paths)s)",
    "paths": "SELECT path FROM {s}.records WHERE workspace = %(workspace)s AND starts_with(path, %(folder)s)"
    " AND strpos(substr(path, length(%(folder)s) + 1), '/') = 0",
    "kept": "SELECT id, path, data FROM (SELECT id, path, data, sum(octet_length(data)) OVER (ORDER BY id)"
    " - octet_length(data) AS before FROM {s}.quarantine WHERE workspace = %(workspace)s AND id > %(after)s"
    " AND (%(path)s::text IS NULL OR path = %(path)s)) page WHERE before < %(at_once)s ORDER BY id",
    "kept_notes": "SELECT id, path, reason, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), lost"
    " FROM {s}.quarantine WHERE workspace = %(workspace)s AND folder = %(folder)s ORDER BY id",
    "kept_copy": "SELECT data FROM {s}.quarantine WHERE workspace = %(workspace)s AND id = %(id)s",
    "keep": "INSERT INTO {s}.quarantine (workspace, path, at, reason, data, folder, lost)"
    " SELECT %(workspace)s, %(path)s, %(at)s::timestamptz, %(reason)s, %(data)b, %(folder)s, %(lost)s"
    " WHERE NOT (%(is_again)s AND EXISTS (SELECT FROM {s}.quarantine WHERE workspace = %(workspace)s"
    " AND path = %(path)s AND folder = %(folder)s AND data = %(data)b)) RETURNING id",
    "remove_kept": "DELETE FROM {s}.quarantine WHERE workspace = %(workspace)s AND id = ANY(%(ids)s) RETURNING id",
    "signatures": "SELECT path, version, octet_length(data) FROM {s}.records"
    " WHERE workspace = %(workspace)s AND path = ANY(%(paths)s)",
    "change": "SELECT {s}.change(%(workspace)s, %(id)s, %(is_again)s, %(is_durable)s, %(wait_ms)s,"
    " %(locks)s::bigint[], %(seen_paths)s::text[], %(seen)s::bigint[], %(aside)s::text[], %(reasons)s::text[],"
    " %(paths)s::text[], %(replaced)s::bigint[], %(bodies)b::bytea[])",
    "erase": "SELECT {s}.erase_image(%(workspace)s, {s}.change(%(workspace)s, %(id)s, %(is_again)s, %(is_durable)s,"
    " %(wait_ms)s, %(locks)s::bigint[], %(seen_paths)s::text[], %(seen)s::bigint[], %(aside)s::text[],"
    " %(reasons)s::text[], %(paths)s::text[], %(replaced)s::bigint[], %(bodies)b::bytea[]))",
    "change_one": "SELECT {s}.change_one($1, $2, $3, $4, $5, $6, $7, $8)",
    "every": "SELECT " + _POINT + ", true, r.path, r.version, octet_length(r.data)"
    " FROM (SELECT) one LEFT JOIN {s}.records r ON r.workspace = %(workspace)s",
    # one statement, so that the changes and the next point are of the same snapshot
    "changed": "WITH changed AS (SELECT DISTINCT unnest(c.paths) AS path FROM {s}.commits c"
    " WHERE c.workspace = %(workspace)s AND (c.at >= to_timestamp(%(at)s / 1e6)"
    " OR c.xact >= pg_snapshot_xmin(%(point)s::pg_snapshot)"
    " AND NOT pg_visible_in_snapshot(c.xact, %(point)s::pg_snapshot)) AND " + _IS_OF_HERE + ")"
    " SELECT " + _POINT + ","
    " %(history)s = " + _HISTORY + " AND pg_snapshot_xmax(%(point)s::pg_snapshot) <="
    " pg_snapshot_xmax(pg_current_snapshot()) AND NOT EXISTS ("
    " SELECT FROM {s}.commits c WHERE c.workspace = %(workspace)s AND c.paths = '{{}}'"
    " AND (c.at >= to_timestamp(%(at)s / 1e6) OR c.xact >= pg_snapshot_xmin(%(point)s::pg_snapshot))"
    " AND " + _IS_OF_HERE + "),"
    " c.path, r.version, octet_length(r.data) FROM (SELECT) one LEFT JOIN changed c ON true"
    " LEFT JOIN {s}.records r ON r.workspace = %(workspace)s AND r.path = c.path",
    "is_behind": "SELECT %(history)s <> " + _HISTORY + " OR EXISTS (SELECT FROM {s}.commits c"
    " WHERE c.workspace = %(workspace)s"
    " AND (c.at >= to_timestamp(%(at)s / 1e6) OR c.xact >= pg_snapshot_xmin(%(point)s::pg_snapshot)"
    " AND (c.paths = '{{}}' OR NOT pg_visible_in_snapshot(c.xact, %(point)s::pg_snapshot))) AND " + _IS_OF_HERE + ")",
    # A row without paths is left in the place of what is removed, so that a point from before is known to be too old.
    # Nobody has a point from before notes that came with a dump.
    "prune": "WITH old AS (DELETE FROM {s}.commits c WHERE c.workspace = %(workspace)s"
    " AND c.at < now() - make_interval(secs => %(age)s) AND (c.xact < pg_snapshot_xmin(pg_current_snapshot())"
    " OR NOT " + _IS_OF_HERE + ") AND c.xact IN (SELECT o.xact FROM {s}.commits o"
    " WHERE o.workspace = %(workspace)s AND o.at < now() - make_interval(secs => %(age)s)"
    " ORDER BY o.xact LIMIT %(limit)s) RETURNING c.xact, c.at)"
    " INSERT INTO {s}.commits (workspace, xact, id, at, paths)"
    " SELECT %(workspace)s, (array_agg(xact ORDER BY xact DESC))[1], -1, max(at), '{{}}' FROM old"
    " WHERE xact < pg_snapshot_xmin(pg_current_snapshot()) HAVING count(*) > 0 RETURNING 1",
    "membership": "SELECT EXISTS (SELECT FROM {s}.members WHERE role = current_user AND workspace = %(workspace)s),"
    " has_table_privilege('{s}.members', 'INSERT'), current_user, (SELECT id FROM {s}.store),"
    " current_setting('synchronous_commit') = 'off'",
    "join": "INSERT INTO {s}.members (role, workspace) VALUES (current_user, %(workspace)s) ON CONFLICT DO NOTHING",
    "now": "SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::bigint & 4294967295)::text::xid::text",
    # by what any role may read on any server: its id and that of its log are kept from some
    "identity": "SELECT concat_ws('.', (SELECT oid FROM pg_database WHERE datname = current_database()), s.tableoid,"
    " s.xmin) FROM {s}.store s",
    "has_ledger": "SELECT EXISTS (SELECT FROM {s}.mirror_note WHERE workspace = %(workspace)s)",
    "survey": "SELECT current_setting('server_version'), current_user::text, (SELECT version FROM {s}.store),"
    " (SELECT count(*) FROM {s}.records WHERE workspace = %(workspace)s),"
    " (" + _MAY_VACUUM + "), (" + _LACKING + "), pg_is_in_recovery(),"
    " (SELECT count(*) FROM pg_snapshot_xip(pg_current_snapshot()))",
    "point": "SELECT " + _POINT,
    # a dead row keeps the oldest transaction of its table from being called frozen
    "is_clean": "SELECT bool_and(age(c.relfrozenxid) <= age(%(now)s::xid)) FROM pg_class t"
    " JOIN pg_class c ON c.oid IN (t.oid, t.reltoastrelid)"
    " WHERE t.relnamespace = '{s}'::regnamespace AND t.relname = ANY(%(tables)s)",
    "may_vacuum": _MAY_VACUUM,
}


class Rows:
    """The rows of one workspace, and which versions of its records this process knows. Threads may share it."""

    def __init__(self, connections: Connections, statements: Mapping[str, bytes]) -> None:
        self._connections, self._statements = connections, statements
        self._workspace = connections.location.workspace
        self._knowing = threading.Lock()
        self.known: dict[str, Signature | None] = {}

    def ask(
        self, statement: str, /, *, what: str, patience: float | None = None, **given: Any
    ) -> Sequence[tuple[Any, ...]]:
        """The rows of one of the statements above, for this workspace; see ``Connections.ask``."""
        values = {"workspace": self._workspace, **given}
        rows = self._connections.ask(self._statements[statement], values, what=what, patience=patience)
        return rows if rows is not None else ()

    look = ask

    def find(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Signature]]:
        """The bytes and signatures of those of these records that exist, asked for at once."""
        wanted = [path for path in paths if is_record_path(path)]
        before = self._known_of(wanted)
        rows = self.ask("find", paths=wanted, what="records cannot be read") if wanted else ()
        found = {path: (data, Signature(version, len(data), 0)) for path, version, data in rows}
        self.note({path: found[path][1] if path in found else None for path in wanted}, before=before)
        return found

    def signatures(self, paths: Iterable[str]) -> dict[str, Signature]:
        """The signatures of those of these records that exist, asked for at once."""
        wanted = [path for path in paths if is_record_path(path)]
        before = self._known_of(wanted)
        rows = self.ask("signatures", paths=wanted, what="records cannot be examined") if wanted else ()
        found = {path: Signature(version, size, 0) for path, version, size in rows}
        self.note({path: found.get(path) for path in wanted}, before=before)
        return found

    def note(self, found: Mapping[str, Signature | None], *, before: Mapping[str, object] | None = None) -> None:
        """Remember the versions of records, up to a number; those that were asked for with what was known ``before``.

        What another thread noted since then stays: it may have committed a newer version.
        """
        with self._knowing:
            if before is not None and before != (now := self._known_of(before)):
                found = {path: signature for path, signature in found.items() if before[path] == now[path]}
            self.known.update(found)
            if len(self.known) > _KNOWN_MAX:
                for path in list(islice(self.known, _KNOWN_MAX // 16)):
                    del self.known[path]

    def _known_of(self, paths: Iterable[str]) -> dict[str, object]:
        """What is known of these records; of one that is not known, an ellipsis."""
        return {path: self.known.get(path, ...) for path in paths}

    def forget(self, paths: Iterable[str]) -> None:
        """Ask for these records again before the next decision about them."""
        with self._knowing:
            for path in paths:
                self.known.pop(path, None)


class DecisionView:
    """The ``Records`` as one decision sees them: from what this process knows, else as they are; see ``Records``.

    ``seen`` has the signature of each that it was told of, which the transaction compares with what is there then.
    ``is_of_one_time`` is False once it was told of two versions of a record: then it has to be made again.
    A view of all asks again for a record that another thread of this process changed since: its reader may know the
    later version already, and would take the earlier one for a change that somebody else made.
    """

    def __init__(self, rows: Rows, wanted: Sequence[str], *, is_all: bool = False) -> None:
        """``is_all``: ask for all of them at once: for their bytes, unless most are known, and may be the same."""
        self.wanted = wanted
        self.seen: dict[str, Signature | None] = {}
        self.is_of_one_time = True
        self._rows, self._is_all = rows, is_all
        known = {} if is_all else rows.known
        self._signatures = {path: known[path] for path in wanted if path in known}
        self._bodies: dict[str, tuple[bytes, Signature]] = {}
        self._asked = {path for path in wanted if path not in self._signatures}
        are_known = is_all and 2 * sum(path in rows.known for path in wanted) > len(wanted)
        if are_known or (len(self._asked) > _FETCHED_MAX and not is_all):
            found: Mapping[str, Signature] = rows.signatures(self._asked)
            self._take(self._asked, found)
        elif self._asked:
            self._fetch(self._asked)

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        if path not in self._signatures:
            return self._rows.find([path]).get(path)
        self._renew(path)
        if path not in self._bodies and self._signatures[path] is not None:
            self._fetch([path])
        self._tell(path)
        return self._bodies.get(path)

    def signature(self, path: str) -> Signature | None:
        if path not in self._signatures:
            return self._rows.signatures([path]).get(path)
        self._renew(path)
        return self._tell(path)

    def holds(self) -> bool:
        """Whether all that the decision saw is still so, apart from what was asked for it, which is."""
        doubtful = self.seen.keys() - self._asked
        found = self._rows.signatures(doubtful)
        if self.is_of_one_time and all(found.get(path) == self.seen[path] for path in doubtful):
            return True
        self._rows.forget(doubtful)
        return False

    def _renew(self, path: str) -> None:
        signature = self._signatures[path]
        if self._is_all and self._rows.known.get(path, signature) != signature:
            self._fetch([path])

    def _tell(self, path: str) -> Signature | None:
        signature = self._signatures[path]
        if self.seen.setdefault(path, signature) != signature:
            self.is_of_one_time = False
        return signature

    def _fetch(self, paths: Iterable[str]) -> None:
        bodies = self._rows.find(paths)
        for path in paths:
            self._bodies.pop(path, None)
        self._bodies |= bodies
        self._take(paths, {path: body[1] for path, body in bodies.items()})

    def _take(self, paths: Iterable[str], found: Mapping[str, Signature]) -> None:
        """Take over what is there now."""
        self._asked |= {*paths}
        self._signatures |= {path: found.get(path) for path in paths}


class KeptRows(Struct, frozen=True):
    """The copies that were put aside or lost in a merge, in a table; see ``home.KeptConflicts``."""

    asked: Rows | Workspace

    def listing(self, folder: str = FOLDER) -> list[tuple[str, str]]:
        return [(note.kept, note.reason) for note in self.notes(folder)]

    def notes(self, folder: str) -> Sequence[KeptCopy]:
        rows = self.asked.look("kept_notes", folder=folder, what="the kept copies cannot be listed")
        return [KeptCopy(f"{folder}/{path}.{id}", path, why, at, lost) for id, path, why, at, lost in rows]

    def read(self, kept: str) -> bytes | None:
        found = self.asked.look("kept_copy", id=_id_in(kept), what=f"{kept} cannot be read")
        return bytes(found[0][0]) if found else None

    def keep(self, path: str, data: bytes, *, reason: str, at: str, folder: str, lost: MergeSide | None = None) -> None:
        given: dict[str, Any] = {"path": path, "data": data, "reason": reason, "at": at, "folder": folder, "lost": lost}
        self.asked.ask("keep", what=f"a copy of {path} cannot be kept in {folder}", **given)

    def remove(self, path: str, *, holding: Sequence[Piece] | None = None) -> int:
        return self._remove([id for id, _, data in self._rows(path) if holding is None or holds_text(data, holding)])

    def remove_if(self, is_unwanted: Callable[[str, bytes], bool]) -> None:
        self._remove([id for id, path, data in self._rows() if is_unwanted(path, data)])

    def remove_copy(self, kept: str) -> None:
        self._remove([_id_in(kept)])

    def _rows(self, path: str | None = None) -> Iterator[tuple[Any, ...]]:
        after = 0
        given: dict[str, Any] = {"path": path, "at_once": _KEPT_AT_ONCE, "what": "the kept copies cannot be read"}
        while page := self.asked.look("kept", after=after, **given):
            after = page[-1][0]
            yield from page

    def _remove(self, ids: Sequence[int]) -> int:
        if ids:
            self.asked.ask("remove_kept", ids=[*ids], what="the kept copies cannot be removed")
        return len(ids)  # a repeated call does not count the copies that were removed when the first answer was lost


def _id_in(kept: str) -> int:
    number = kept.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
