"""A memory's audit, notes and ledger of a mirror, in tables next to its records.

The rules this file guards: a line of the audit that was sent twice is there once; all statements of a transaction are
about one workspace, which row-level security allows or not; and the ledger of a mirror has the statements that it has
in a file, of which these tables take what SQLite and PostgreSQL have in common.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING, Any, LiteralString

from memfiles.errors import MemfilesError, StorageFailed

if TYPE_CHECKING:
    from memfiles.storage.postgres.connections import Connections
    from memfiles.storage.postgres.home import Workspace

_HURRIED_SECONDS = 1.0  # as long as a line of the audit may wait in any case
_AT_ONCE = 1000  # lines of the audit that are read with one question
_MONTH_SUFFIX = ".jsonl"
_UNREAD, _UNCHANGED = "the audit cannot be read", "a line of the audit cannot be changed"
_NO_IMAGE = "the image of the index cannot be used"
_PART_MAX = 8 * 2**20
_STAGED = 1000  # numbers of parts for an image that is not published yet
_STAGED_SECONDS = 3600.0  # after which its process is taken for dead
_LEDGER = ("note", "meta")
_SCOPED = "workspace = current_setting('memfiles.workspace')"

STATEMENTS: dict[str, LiteralString] = {
    # Without a flush, as in a directory: the operations that it tells of would wait for a second one.
    "append": "INSERT INTO {s}.audit (workspace, month, batch, line)"
    " SELECT %(workspace)s, %(month)s, %(batch)s, line FROM set_config('synchronous_commit', 'off', true),"
    " unnest(%(lines)b::bytea[]) WITH ORDINALITY AS t(line, n)"
    " WHERE NOT (%(is_again)s AND EXISTS (SELECT FROM {s}.audit WHERE workspace = %(workspace)s"
    " AND month = %(month)s AND batch = %(batch)s)) ORDER BY n RETURNING 1",
    "months": "SELECT DISTINCT month FROM {s}.audit WHERE workspace = %(workspace)s ORDER BY month DESC",
    "lines": "SELECT id, line FROM {s}.audit WHERE workspace = %(workspace)s AND month = %(month)s"
    " AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s",
    "rewrite": "UPDATE {s}.audit SET line = %(line)b WHERE workspace = %(workspace)s AND id = %(id)s RETURNING id",
    "blanked": "SELECT substr(name, 9) FROM {s}.notes"
    " WHERE workspace = %(workspace)s AND starts_with(name, 'blanked ')",
    "note_blanked": "INSERT INTO {s}.notes (workspace, name, body) SELECT %(workspace)s, 'blanked ' || path, ''"
    " FROM unnest(%(paths)s::text[]) AS path ON CONFLICT DO NOTHING RETURNING 1",
    "drop": "WITH gone AS (DELETE FROM {s}.audit WHERE workspace = %(workspace)s AND month < %(before)s"
    " RETURNING month) SELECT DISTINCT month FROM gone ORDER BY month",
    "get_note": "SELECT body FROM {s}.notes WHERE workspace = %(workspace)s AND name = %(name)s",
    "put_note": "INSERT INTO {s}.notes (workspace, name, body) VALUES (%(workspace)s, %(name)s, %(body)b)"
    " ON CONFLICT (workspace, name) DO UPDATE SET body = excluded.body RETURNING 1",
    "delete_note": "DELETE FROM {s}.notes WHERE workspace = %(workspace)s AND name = %(name)s RETURNING 1",
    "note_forgets": "INSERT INTO {s}.notes (workspace, name, body)"
    " SELECT %(workspace)s, concat_ws(' ', 'forget', path, revision), convert_to(revision::text, 'utf8')"
    " FROM unnest(%(paths)s::text[], %(revisions)s::bigint[]) AS n(path, revision) ON CONFLICT DO NOTHING RETURNING 1",
    "noted_forgets": "SELECT split_part(name, ' ', 2), min(convert_from(body, 'utf8')::bigint) FROM {s}.notes"
    " WHERE workspace = %(workspace)s AND starts_with(name, 'forget ') GROUP BY 1",
    "strike_forgets": "DELETE FROM {s}.notes WHERE workspace = %(workspace)s"
    " AND CASE WHEN starts_with(name, 'forget ') THEN EXISTS (SELECT FROM"
    " unnest(%(paths)s::text[], %(revisions)s::bigint[]) AS n(path, revision) WHERE n.path = split_part(name, ' ', 2)"
    " AND n.revision > convert_from(body, 'utf8')::bigint) ELSE false END RETURNING 1",
    "take_lease": "INSERT INTO {s}.lease AS l (workspace, holder, until)"
    " VALUES (%(workspace)s, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))"
    " ON CONFLICT (workspace) DO UPDATE SET holder = excluded.holder, until = excluded.until"
    " WHERE l.holder = excluded.holder OR l.until < clock_timestamp() RETURNING holder",
    "claim_image": "INSERT INTO {s}.image_state AS i (workspace, claimed) VALUES (%(workspace)s, clock_timestamp())"
    " ON CONFLICT (workspace) DO UPDATE SET claimed = clock_timestamp()"
    " WHERE i.claimed < clock_timestamp() - make_interval(secs => %(pause)s) AND NOT EXISTS (SELECT FROM {s}.image f"
    " WHERE f.workspace = %(workspace)s AND f.part = 0 AND f.format = %(format)s"
    " AND CASE WHEN f.at < clock_timestamp() - make_interval(secs => %(old)s) THEN 0 ELSE %(changed)s END >= ("
    " SELECT coalesce(sum(greatest(cardinality(c.paths), 1)), 0) FROM {s}.commits c"  # one stands for those removed
    " WHERE c.workspace = %(workspace)s AND c.at >= f.at)) RETURNING erased",
    "lock_image": "SELECT erased FROM {s}.image_state WHERE workspace = %(workspace)s FOR UPDATE",
    # Parts that are not published yet have negative numbers. A part is there before its statement takes the lock.
    "stage_image": "WITH same AS (SELECT FROM {s}.image_state WHERE workspace = %(workspace)s"
    " AND erased = %(erased)s FOR UPDATE) INSERT INTO {s}.image (workspace, part, id, format, data)"
    " SELECT %(workspace)s, %(part)s, %(id)s, %(format)s, %(data)b FROM same"
    " ON CONFLICT (workspace, part) DO UPDATE SET data = excluded.data WHERE image.id = excluded.id RETURNING 1",
    "drop_image": "DELETE FROM {s}.image WHERE workspace = %(workspace)s AND part >= 0",
    "publish_image": "UPDATE {s}.image SET part = part - %(least)s"
    " WHERE workspace = %(workspace)s AND id = %(id)s AND part < 0",
    "drop_staged": "DELETE FROM {s}.image WHERE workspace = %(workspace)s AND part < 0"
    " AND (id = %(id)s OR at < clock_timestamp() - make_interval(secs => %(age)s)) RETURNING 1",
    "give_image": "UPDATE {s}.image_state SET claimed = '-infinity' WHERE workspace = %(workspace)s RETURNING 1",
    "erase_image": "SELECT set_config('lock_timeout', %(wait)s, true), {s}.erase_image(%(workspace)s, '{{}}')",
    "get_image": "SELECT id, data FROM {s}.image WHERE workspace = %(workspace)s AND part = %(part)s"
    " AND format = %(format)s AND octet_length(data) <= %(limit)s",
    "give_lease": "UPDATE {s}.lease SET until = '-infinity'"
    " WHERE workspace = %(workspace)s AND holder = %(holder)s RETURNING 1",
}


class ImageRows:
    """The image of the search index of a workspace; see ``IndexImages``. The last part has no bytes."""

    def __init__(self, connections: Connections, statements: Mapping[str, bytes], *, old: float) -> None:
        """``old`` is for how many seconds the notes of commits are sure to be complete."""
        self._connections, self._statements, self._old = connections, statements, old
        self._workspace = {"workspace": connections.location.workspace}

    def claim(self, *, format: int, changed: int, pause: float) -> int | None:
        found = self._ask("claim_image", format=format, changed=changed, pause=pause, old=self._old)
        return int(found[0][0]) if found else None

    def keep(self, parts: Iterable[bytes], *, format: int, erased: int) -> bool:
        """See ``IndexImages``: an erasure meanwhile removes the parts that are there, and no more come.

        No lock is held while a part is on its way, so that nobody waits for a slow link.
        """
        id, is_kept = int.from_bytes(os.urandom(8)) >> 2, False
        least = -_STAGED * (1 + id % 2**20)
        known = {"id": id, "format": format, "erased": erased}
        self._ask("drop_staged", id=id, age=_STAGED_SECONDS)
        try:
            for number, data in enumerate(chain(parts, (b"",)), start=1):
                if not self._ask("stage_image", part=least + number - 1, data=data, **known):
                    return False
            is_kept = self._publish(id, least, erased=erased, count=number)
        finally:
            if not is_kept:
                self.give(id)
        return is_kept

    def give(self, id: int = -1) -> None:
        """See ``IndexImages``; parts with this id go."""
        with suppress(MemfilesError):  # then no process has the turn for a while
            self._ask("drop_staged", id=id, age=_STAGED_SECONDS)
            self._ask("give_image")

    def _publish(self, id: int, least: int, *, erased: int, count: int) -> bool:
        with self._connections.transaction(self._statements["lock_image"], self._workspace, what=_NO_IMAGE) as done:
            if done.execute(self._statements["lock_image"], self._workspace).fetchone() != (erased,):
                return False
            done.execute(self._statements["drop_image"], self._workspace)
            given = {**self._workspace, "id": id, "least": least}
            if done.execute(self._statements["publish_image"], given).rowcount != count:
                raise StorageFailed(f"{_NO_IMAGE}: another process removed a part")
        return True

    def _ask(self, statement: str, **given: Any) -> Sequence[tuple[Any, ...]]:
        return self._connections.ask(self._statements[statement], {**self._workspace, **given}, what=_NO_IMAGE) or ()

    def parts(self, *, format: int) -> Iterator[bytes]:
        for number in count():
            found = self._ask("get_image", part=number, format=format, limit=_PART_MAX)
            if number == 0:
                if not found:
                    return
                id = found[0][0]
            if not found or found[0][0] != id:
                raise StorageFailed(f"{_NO_IMAGE}: it was replaced or removed meanwhile")
            if not found[0][1]:
                return
            yield found[0][1]


class AuditRows:
    """The audit of a workspace; see ``home.AuditPages``."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def append(self, month: str, lines: bytes, *, is_hurried: bool = False) -> None:
        given: dict[str, Any] = {"month": month.removesuffix(_MONTH_SUFFIX), "lines": lines.splitlines()}
        given |= {"batch": int.from_bytes(os.urandom(8)) >> 2, "patience": _HURRIED_SECONDS if is_hurried else None}
        self._workspace.ask("append", what="the audit cannot be written", **given)

    def let_go(self) -> None:
        """See ``AuditPages``: nothing is open here."""

    def backwards(self, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, int | str, bytes | None]]:
        for (month,) in self._workspace.look("months", what=_UNREAD):
            if is_wanted(month + _MONTH_SUFFIX):
                for id, line in self._lines(month):
                    yield month + _MONTH_SUFFIX, id, bytes(line)

    def blank(self, tombstones: Collection[str], user_of: Callable[[str], str]) -> None:
        from memfiles.storage.audit_reader import blanked, runs_in  # late: few users are ever forgotten

        if not (due := sorted({*tombstones}.difference(self.blanked()))):
            return
        users = {user_of(path) for path in due}
        runs: set[bytes] = set()
        months = [month for (month,) in self._workspace.look("months", what=_UNREAD)]
        for month in months:
            runs |= runs_in((bytes(line) for _, line in self._lines(month)), users)
        for month in months:
            for id, line in self._lines(month):
                over = bytearray(line)
                for start, text in blanked(bytes(line), users, runs):
                    over[start : start + len(text)] = text
                if over != line:
                    self._workspace.ask("rewrite", id=id, line=bytes(over), what=_UNCHANGED)
        self._workspace.ask("note_blanked", paths=due, what=_UNCHANGED)

    def blanked(self) -> frozenset[str]:
        return frozenset(path for (path,) in self._workspace.look("blanked", what=_UNREAD))

    def drop(self, before: str, *, dry_run: bool) -> tuple[str, ...]:
        months = [month for (month,) in self._workspace.look("months", what=_UNREAD) if month < before]
        if months and not dry_run:
            self._workspace.ask("drop", before=before, what="an old month of the audit cannot be removed")
        return tuple(sorted(months))

    def _lines(self, month: str) -> Iterator[tuple[int, bytes]]:
        before = 1 << 62
        while found := self._workspace.look("lines", month=month, before=before, limit=_AT_ONCE, what=_UNREAD):
            yield from ((id, line) for id, line in found)
            before = found[-1][0]


class NoteRows:
    """The notes about a workspace; see ``home.StateNotes`` and ``home.ForgetNotes``."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def get(self, name: str) -> bytes | None:
        found = self._workspace.look("get_note", name=name, what=f"the note {name} cannot be read")
        return bytes(found[0][0]) if found else None

    def put(self, name: str, body: bytes, *, makes: bool = False) -> None:
        """See ``StateNotes``: only who opens the memory makes it."""
        self._workspace.ask("put_note", name=name, body=body, what=f"the note {name} cannot be written")

    def delete(self, name: str) -> None:
        self._workspace.look("delete_note", name=name, what=f"the note {name} cannot be removed")

    def note_forgets(self, revisions: Mapping[str, int]) -> None:
        given = {"paths": [*revisions], "revisions": [*revisions.values()]}
        self._workspace.ask("note_forgets", **given, what="nothing was forgotten")

    def noted_forgets(self) -> dict[str, int]:
        return dict(self._workspace.look("noted_forgets", what="the notes of forgets cannot be read"))

    def strike_forgets(self, revisions: Mapping[str, int]) -> None:
        given = {"paths": [*revisions], "revisions": [*revisions.values()]}
        self._workspace.look("strike_forgets", **given, what="it is forgotten, and the note of it stays")


class LedgerTables:
    """The ledger of a mirror in two tables of the store; it is used like a ``DerivedDatabase``.

    Nothing of it is lost in a power cut, so nothing is distrusted but the notes on another mirror.
    """

    is_current = True

    def __init__(
        self, workspace: Workspace, check: Callable[[Any], None] | None, *, before: Callable[[], object]
    ) -> None:
        """``before`` is called before the transaction of the check: there may be no second connection for it."""
        self._workspace, self._check, self._is_checked = workspace, check, check is None
        self._before = before

    def connection(self) -> None:
        """Check the notes, once."""
        if not self._is_checked and self._check is not None:
            self._before()
            with self._workspace.transaction() as connection:
                self._check(connection)
            self._is_checked = True

    @contextmanager
    def transaction(self) -> Iterator[ScopedConnection]:
        """One transaction."""
        with self._workspace.transaction() as connection:
            yield connection

    def compact(self) -> bool:
        """Remove what was deleted from the files of the server; True."""
        self._workspace.vacuum_ledger()
        return True

    def start_over(self) -> None:
        """Remove all notes."""
        with self._workspace.transaction() as connection:
            for table in _LEDGER:
                connection.execute(f"DELETE FROM {table} WHERE true")

    def settle(self) -> None:
        """Everything is durable already."""

    close = leave_to_parent = settle


class ScopedConnection:
    """A transaction in which the statements of a ledger are about the tables of one workspace."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection, self._schema = connection, schema

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute one statement in the common language of SQLite and PostgreSQL."""
        return self._connection.execute(_scoped(statement, self._schema), values, binary=True)


@lru_cache(maxsize=64)
def _scoped(statement: str, schema: str) -> bytes:
    """The statement with the tables of a schema, for rows of the workspace of the transaction alone."""
    text = re.sub(r"(?<=FROM |INTO )(note|meta)\b|(?<=UPDATE )(note|meta)\b", rf'"{schema}".mirror_\g<0>', statement)
    text = text.replace(" WHERE ", f" WHERE {_SCOPED} AND ").replace("ON CONFLICT (", "ON CONFLICT (workspace, ")
    if "INSERT" not in text and _SCOPED not in text:
        raise StorageFailed("a statement of the ledger would be about all workspaces")
    return text.replace("?", "%s").encode()
