"""The feed of the PostgreSQL store: it misses nothing that commits late, and notices that a database was put back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from memfiles.errors import StorageFailed
from memfiles.storage.entry_folders import Pause
from memfiles.storage.postgres.store import KEPT_SECONDS, PostgresStore
from memfiles.storage.watcher import FeedWatcher
from memfiles.sync.ledger import Ledger
from mirrors.testing.stores.place import put
from tests.support.postgres import PostgresServer, pooled, postgres_server, stores_of

pytestmark = pytest.mark.slow
BURN = "DO $$ BEGIN FOR n IN 1..{many} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


@pytest.fixture(scope="module")
def new() -> Iterator[PostgresServer]:
    """Another server, into which a dump is put."""
    with postgres_server() as started:
        yield started


def test_a_commit_that_ends_late_is_in_the_feed(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """A transaction that began first and commits last is told after those that were told already."""
    workspace = server.workspace()
    store = open_store(workspace)
    put(store, {"early.json": "1"})
    with server.admin() as slow:
        slow.execute("BEGIN")
        late = "INSERT INTO memfiles.records (workspace, path, version, data) VALUES (%s, 'late.json', 7, 'x')"
        slow.execute(late, (workspace,))
        slow.execute("INSERT INTO memfiles.commits (workspace, id, paths) VALUES (%s, 7, '{late.json}')", (workspace,))
        put(store, {"meanwhile.json": "1"})
        point = store.changes().until
        put(store, {"after.json": "1"})
        told = [store.changes(point)]
        slow.execute("COMMIT")
        told.append(store.changes(told[-1].until))
        told.append(store.changes(told[-1].until))

    assert [["after.json"], ["late.json"], []] == [[*each.records] for each in told]


def test_an_id_that_a_crashed_server_uses_again_is_told(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """A snapshot from before the crash takes that transaction for seen; it began later, which tells."""
    store = open_store(workspace := server.workspace())
    put(store, {"before.json": "1"})
    point = store.changes().until
    with server.admin() as admin:
        again = "INSERT INTO memfiles.records (workspace, path, version, data) VALUES (%s, 'again.json', 8, 'x')"
        admin.execute(again, (workspace,))
        commit = "INSERT INTO memfiles.commits (workspace, xact, id, paths) VALUES (%s, '3', 8, '{again.json}')"
        admin.execute(commit, (workspace,))

    assert (True, ["again.json"]) == (store.wait(point, seconds=0.0), [*store.changes(point).records])
    assert {} == store.changes(store.changes(point).until).records


def test_old_notes_of_commits_are_removed(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """What is told from a point before them is everything; what comes after a later point is told as ever."""
    store = open_store(workspace := server.workspace())
    before = store.changes().until
    for number in range(3):
        put(store, {f"a{number}.json": "1"})
    _make_old(server, workspace)
    point = store.changes().until
    put(store, {"new.json": "1"})
    store.checkpoint()
    store.checkpoint()
    with server.admin() as admin:
        left = admin.execute("SELECT paths FROM memfiles.commits WHERE workspace = %s ORDER BY xact", (workspace,))
        kept = [paths for (paths,) in left.fetchall()]

    every = {"a0.json", "a1.json", "a2.json", "new.json"}
    assert [[], ["new.json"]] == kept
    assert (True, every) == (store.wait(before, seconds=0.0), {*store.changes(before).records})
    assert ({""}, {"new.json"}) == ({*store.changes(before).complete}, {*store.changes(point).records})
    assert (frozenset(), False) == (store.changes(point).complete, store.wait(store.changes().until, seconds=0.0))


def test_only_so_many_notes_are_removed_at_once(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """The oldest ones, in whose place one note stands; the next time it is the turn of the others."""
    store, left = open_store(workspace := server.workspace()), []
    for number in range(5):
        put(store, {f"a{number}.json": "1"})
    for _ in range(3):
        store.rows.ask("prune", age=0, limit=3, what="old notes of commits cannot be removed")
        with server.admin() as admin:
            kept = "SELECT paths FROM memfiles.commits WHERE workspace = %s ORDER BY xact"
            left.append([paths for (paths,) in admin.execute(kept, (workspace,)).fetchall()])

    assert [[[], ["a3.json"], ["a4.json"]], [[]], [[]]] == left


def test_a_removed_note_of_an_id_that_was_used_again_makes_a_point_too_old(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Its id looks seen, and nothing but the time of what stands for it tells that it may not have been told."""
    store = open_store(workspace := server.workspace())
    put(store, {"before.json": "1"})
    point = store.changes().until
    with server.admin() as admin:
        commit = "INSERT INTO memfiles.commits (workspace, xact, id, paths) VALUES (%s, '3', 8, '{again.json}')"
        admin.execute(commit, (workspace,))
    store.rows.ask("prune", age=0, limit=10, what="old notes of commits cannot be removed")

    assert (True, {""}) == (store.wait(point, seconds=0.0), {*store.changes(point).complete})


def test_a_dump_goes_on_in_a_server_of_lower_ids(
    own: PostgresServer, new: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Everything is told once, also from a point of the old server; then what is new, and nothing else."""
    there = open_store(workspace := own.workspace())
    _go_ahead(own, new)
    put(there, {"a.json": "1", "b.json": "1"})
    _make_old(own, workspace)
    there.checkpoint()  # leaves a note without paths
    put(there, {"c.json": "1"})
    old = there.changes().until
    own.copy_to(new, "restored")
    with stores_of(new) as opening:
        store = opening(workspace, dbname="restored")
        first, _, now = _ids(store, workspace)
        told, waited = [store.changes(old)], [store.wait(old, seconds=0.0)]
        for path in ("d.json", "a.json", None):
            waited.append(store.wait(told[-1].until, seconds=0.0))
            put(store, {path: "2"} if path is not None else {})
            waited.append(store.wait(told[-1].until, seconds=0.0))
            told.append(store.changes(told[-1].until))

    assert (there.id, True) == (store.id, now < first)
    assert [["a.json", "b.json", "c.json"], ["d.json"], ["a.json"], []] == [sorted(each.records) for each in told]
    assert [{""}, set(), set(), set()] == [{*each.complete} for each in told]
    assert [True, False, True, False, True, False, False] == waited


def test_ids_of_a_dump_are_passed_without_a_loss(
    own: PostgresServer, new: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """While the new server gives the ids of the notes in a dump again, every change is told, and none as too old."""
    there = open_store(workspace := own.workspace())
    _go_ahead(own, new)
    for number in range(10):
        put(there, {"a.json": str(number)})
    _make_old(own, workspace)
    there.checkpoint()
    put(there, {"a.json": "last"})
    own.copy_to(new, "restored")
    with stores_of(new) as opening:
        store = opening(workspace, dbname="restored")
        first, last, now = _ids(store, workspace)
        with new.admin() as admin:
            admin.execute(BURN.format(many=first - now - 5))
        told = [store.changes()]
        for number in range(last - first + 10):
            put(store, {f"n{number}.json": "1"})
            told.append(store.changes(told[-1].until))
        quiet = store.changes(told[-1].until)
        passed = _ids(store, workspace)[2] > last

    assert [] == [number for number, each in enumerate(told[1:]) if f"n{number}.json" not in each.records]
    assert (True, {}) == (passed, dict(quiet.records))


def test_notes_of_a_dump_are_removed_after_a_day(
    own: PostgresServer, new: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Although their ids are in the future; nothing has to be told anew for that."""
    there = open_store(workspace := own.workspace())
    _go_ahead(own, new)
    put(there, {"a.json": "1"})
    _make_old(own, workspace)
    own.copy_to(new, "restored")
    with stores_of(new) as opening:
        store = opening(workspace, dbname="restored")
        point = store.changes().until
        put(store, {"b.json": "1"})
        store.checkpoint()
        told, (first, last, now) = store.changes(point), _ids(store, workspace)

    assert (["b.json"], frozenset(), True) == ([*told.records], told.complete, first == last < now)


def test_a_dump_put_back_into_its_own_server_is_noticed(
    own: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """The server has gone on since, so that its ids say nothing: the tables are others."""
    there = open_store(workspace := own.workspace())
    put(there, {"a.json": "1"})
    own.copy_to(own, "copy")
    put(there, {"b.json": "1"})
    point = there.changes().until
    store = open_store(workspace, dbname="copy")
    waited, told = store.wait(point, seconds=0.0), store.changes(point)

    assert (there.id, True, ["a.json"], {""}) == (store.id, waited, [*told.records], {*told.complete})


def test_a_dump_put_back_has_an_id_of_its_own(own: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """So a mirror tells its changes from those of the first database, which keeps its id when it is started again."""
    put(open_store(workspace := own.workspace()), {"a.json": "1"})

    def origin(database: str) -> str:
        book = Ledger(own.url(workspace, dbname=database, pool="1"), mirror="the shared one")
        try:
            return book.meta.origin()
        finally:
            book.close()

    first = origin("postgres")
    own.copy_to(own, "twin")
    second = origin("twin")
    own.stop()
    own.start()

    assert first != second
    assert (first, second) == (origin("postgres"), origin("twin"))


def test_files_that_were_put_back_are_noticed(own: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """A point has seen a commit that there is no more, also after as many others were made since."""
    store = open_store(own.workspace())
    put(store, {"a.json": "1"})
    with own.going_back():
        put(store, {"lost.json": "1"})
        point = store.changes().until
    for number in range(20):
        put(store, {"b.json": str(number)})
    waited, told = store.wait(point, seconds=0.0), store.changes(point)

    assert (True, {"a.json", "b.json"}, {""}) == (waited, {*told.records}, {*told.complete})
    assert (False, {}) == (store.wait(told.until, seconds=0.0), dict(store.changes(told.until).records))


def test_a_server_that_was_started_again_says_what_is_recent(
    own: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Whoever only wants news takes those: everything is told, as nothing may be missing."""
    store = open_store(own.workspace())
    put(store, {"a.json": "1"})
    point = store.changes().until
    put(store, {"b.json": "1"})
    own.kill()
    own.start()
    told = store.changes(point)
    put(store, {"c.json": "1"})

    assert ({"a.json", "b.json"}, {""}, {"b.json"}) == ({*told.records}, {*told.complete}, {*told.recent})
    assert ["c.json"] == [*store.changes(told.until).records]


def test_news_after_a_start_of_the_server_are_those_alone(
    own: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Nobody is told of all records because the server was started again."""
    store, looks = open_store(own.workspace()), Looks()
    put(store, {f"old{number}.json": "1" for number in range(20)})
    watcher = FeedWatcher(store, looks, None)
    try:
        own.kill()
        own.start()
        put(store, {"new.json": "1"})
        looks.wait_for("new.json")
    finally:
        watcher.close()

    assert ["new.json"] == looks.records


def test_a_change_that_could_not_be_examined_is_examined_again(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """The store could not be reached just when it was: the feed tells of it once, and others come first."""
    store, looks = open_store(server.workspace()), Looks()
    looks.fails = ["a.json"]
    watcher = FeedWatcher(store, looks, None)
    try:
        put(store, {"a.json": "1", "b.json": "1"})
        looks.wait_for("a.json")
    finally:
        watcher.close()

    assert (["b.json", "a.json"], []) == (looks.records, looks.fails)


class Looks:
    """Notes which records are examined; see ``Watched``."""

    is_deep, what = False, "memory file"

    def __init__(self) -> None:
        self.records: list[str] = []
        self.fails: list[str] = []  # each once
        self._looked = threading.Condition()

    def folder(self) -> Path:
        """See ``Watched``."""
        raise AssertionError("a store without files has no folder")

    def record_at(self, path: str) -> str | None:
        """See ``Watched``."""
        return path

    def look(self, record: str) -> bool:
        """See ``Watched``."""
        if record in self.fails:
            self.fails.remove(record)
            raise StorageFailed("the store cannot be reached")
        with self._looked:
            self.records.append(record)
            self._looked.notify_all()
        return True

    def suspects(self, pause: Pause) -> Iterable[str]:
        """See ``Watched``."""
        return ()

    def wait_for(self, record: str) -> None:
        """Return once a record was examined."""
        with self._looked:
            assert self._looked.wait_for(lambda: record in self.records, 30)


def _go_ahead(server: PostgresServer, other: PostgresServer) -> None:
    """Let a server give ids of transactions that another one gives much later."""
    with server.admin() as here, other.admin() as there:
        now, then = (each.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() for each in (here, there))
        assert now is not None and then is not None
        here.execute(BURN.format(many=max(0, then[0] + 2000 - now[0])))


def _ids(store: PostgresStore, workspace: str) -> tuple[int, int, int]:
    """The first and the last id of the notes on commits in a workspace, and the next one that the server gives."""
    with pooled(store) as connection:
        noted = (
            "SELECT min(xact::text::bigint), max(xact::text::bigint),"
            " pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM memfiles.commits WHERE workspace = %s"
        )
        return connection.execute(noted, (workspace,)).fetchone() or (0, 0, 0)


def _make_old(server: PostgresServer, workspace: str) -> None:
    """Let the notes of commits in a workspace be older than they are kept."""
    with server.admin() as admin:
        age = "UPDATE memfiles.commits SET at = at - make_interval(secs => %s) WHERE workspace = %s"
        admin.execute(age, (KEPT_SECONDS, workspace))
