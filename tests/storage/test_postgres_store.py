"""The PostgreSQL store: it passes the exam of stores, on a real server that is killed, paused and cut off."""

from __future__ import annotations

import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from memfiles.errors import (
    LockTimeout,
    OutcomeUnknown,
    StorageFailed,
    StorageRefused,
)
from memfiles.files.manager import MemoryManager
from memfiles.records.redactions import NONCE_BYTES, piece_of
from memfiles.storage.audit_reader import AuditReader
from memfiles.storage.events import AuditEvent, AuditLog, utc_now
from memfiles.storage.home import home_of
from memfiles.storage.postgres.store import PostgresStore
from memfiles.storage.record_store import ChangeSet, Records
from mirrors.testing.stores import StorePlace, questions
from mirrors.testing.stores.place import append, body_of, lines, next_version, put, read, remove
from tests.index.test_store_cache import ANN, entries_at
from tests.support.postgres import ROLE, PostgresServer
from tests.support.proxy import Cut, CuttingProxy
from tests.support.records import declared, wait_until

pytestmark = pytest.mark.slow
AT, FOLDERS = "2026-11-22T00:00:00.000Z", ("quarantine", "conflicts")
KILLS = 50 if os.environ.get("MEMFILES_EVERY_CALL") else 2


@pytest.fixture
def proxy(own: PostgresServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(f"{own.folder}/.s.PGSQL.5432")
    yield proxy
    proxy.close()


def through(proxy: CuttingProxy) -> dict[str, str]:
    return {"host": "127.0.0.1", "port": proxy.port}


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.__name__)
def test_the_postgresql_store_keeps_its_promises(
    question: Callable[[StorePlace], None], own: PostgresServer, proxy: CuttingProxy
) -> None:
    """It passes the exam that every store must pass, as a role that may do nothing else."""
    way = through(proxy) if question.__name__.endswith("connections_are_cut") else {}
    url = own.url(own.workspace(), **way)

    question(StorePlace("tests.support.stores:postgres_store", (url,), own.pages_holding, trouble=proxy.cutting))


def test_kept_copies_are_never_all_in_memory(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """Each may have 64 MiB. Those of another record are not even fetched."""
    workspace = server.workspace()
    kept = open_store(workspace).home.kept
    for number in range(24):
        body = f"{number:02} hunter2".encode() + bytes(2 << 20)
        kept.keep(f"notes-{number % 2}.json", body, reason="why", at=AT, folder="quarantine")
    kept.keep("empty.json", b"", reason="why", at=AT, folder="conflicts")
    held = piece_of(b"hunter2", known=(), nonce=bytes(NONCE_BYTES))
    tracemalloc.start()
    none = kept.remove("other.json", holding=[held])
    of_others = tracemalloc.get_traced_memory()[1]
    seen: dict[bytes, int] = {}
    kept.remove_if(lambda path, data: seen.setdefault(data[:3], len(data)) < 0)
    of_all = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (0, 25, 0) == (none, len(seen), seen[b""])
    assert (True, True) == (of_others < 1 << 20, of_all < 32 << 20), (of_others, of_all)
    assert (12, 13) == (kept.remove("notes-1.json", holding=[held]), sum(len(kept.notes(it)) for it in FOLDERS))


@pytest.mark.parametrize("cut", ["before", "during", "after"])
def test_a_commit_whose_connection_is_cut_is_made_once(
    cut: Cut, server: PostgresServer, proxy: CuttingProxy, open_store: Callable[..., PostgresStore]
) -> None:
    """The change is sent again under its id, and the commit is found if it was made."""
    store = open_store(server.workspace(), **through(proxy))
    append(store, ["a.json"], "1")
    proxy.cut_next(cut, cut)

    append(store, ["a.json", "b.json"], "2")
    append(store, ["a.json"], "3")

    assert [cut, cut] == proxy.made
    assert (["1", "2", "3"], ["2"]) == (lines(store, "a.json"), lines(store, "b.json"))


def test_a_lost_answer_is_found_out_after_others_went_on(
    server: PostgresServer, proxy: CuttingProxy, open_store: Callable[..., PostgresStore]
) -> None:
    """The record is at a later version when the change is sent again: its commit is still known by its id."""
    workspace = server.workspace()
    other = open_store(workspace)
    store = open_store(workspace, **through(proxy))
    proxy.cut_next("after")
    is_done = threading.Event()

    def go_on() -> None:
        while not is_done.is_set():
            append(other, ["a.json"], "theirs")

    others = threading.Thread(target=go_on)
    others.start()
    for number in range(20):
        append(store, ["a.json"], str(number))
        proxy.cut_next("after")
    is_done.set()
    others.join()

    assert [str(number) for number in range(20)] == [line for line in lines(other, "a.json") if line != "theirs"]


@pytest.mark.parametrize("is_new", [False, True], ids=["changed", "new"])
def test_a_commit_that_is_still_made_when_it_is_sent_again_is_made_once(
    is_new: bool, server: PostgresServer, proxy: CuttingProxy, open_store: Callable[..., PostgresStore]
) -> None:
    """The first try waits for a lock when its connection is lost, and the second one waits for the first."""
    store = open_store(workspace := server.workspace(), **through(proxy))
    if not is_new:
        append(store, ["a.json"], "1")
    held = "LOCK TABLE memfiles.commits IN EXCLUSIVE MODE"
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%change_one%'"
    proxy.cut_next("during")
    with server.admin() as admin, server.admin() as watcher:
        admin.execute("BEGIN")
        admin.execute(held)
        changing = threading.Thread(target=append, args=(store, ["a.json"], "2"))
        changing.start()
        wait_until(lambda: watcher.execute(waiting).fetchone() == (2,))
        admin.execute("COMMIT")
        changing.join()

    assert [*([] if is_new else ["1"]), "2"] == lines(open_store(workspace), "a.json")


@pytest.mark.parametrize("how", ["remove", "redact"])
def test_a_removal_that_is_still_made_when_it_is_sent_again_is_told_as_done(
    how: str, server: PostgresServer, proxy: CuttingProxy, open_store: Callable[..., PostgresStore]
) -> None:
    """Not as one that found nothing, because the first try had done it by then."""
    store = open_store(server.workspace(), **through(proxy))
    append(store, ["a.json"], "text")
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%change(%'"
    told: list[bool] = []

    def decide(records: Records) -> tuple[bool, ChangeSet]:
        if (found := records.find("a.json")) is None or b"text" not in found[0]:
            return False, ChangeSet()
        if how == "remove":
            return True, ChangeSet(removed={"a.json": found[1]})
        return True, ChangeSet([next_version(records, "a.json", "gone")], erases=True)

    proxy.cut_next("during")
    with server.admin() as admin, server.admin() as watcher:
        admin.execute("BEGIN")
        admin.execute("LOCK TABLE memfiles.commits IN EXCLUSIVE MODE")
        changing = threading.Thread(target=lambda: told.append(store.change(["a.json"], decide)[0]))
        changing.start()
        wait_until(lambda: watcher.execute(waiting).fetchone() == (2,))
        admin.execute("COMMIT")
        changing.join()

    assert [True] == told


def test_an_append_is_one_question(server: PostgresServer, proxy: CuttingProxy) -> None:
    """Nothing is read before, and the transaction has no beginning and end of its own."""
    with MemoryManager(server.url(server.workspace(), **through(proxy))) as manager:
        manager.restore([declared()])
        before = proxy.questions

        manager.append("notes", "1")
        asked = proxy.questions - before

        assert (1, "1") == (asked, manager.read("notes"))


def test_what_another_changed_meanwhile_is_decided_again(server: PostgresServer, proxy: CuttingProxy) -> None:
    """The change of a version that is gone is refused, then made of the newest one: three questions."""
    workspace = server.workspace()
    with (
        MemoryManager(server.url(workspace, **through(proxy))) as manager,
        MemoryManager(server.url(workspace)) as other,
    ):
        manager.restore([declared()])
        other.restore([declared()])
        other.append("notes", "1")
        before = proxy.questions

        manager.append("notes", "2")
        asked = proxy.questions - before

        assert (3, "12") == (asked, manager.read("notes"))


def test_many_entries_are_changed_with_as_many_questions_as_few(server: PostgresServer, proxy: CuttingProxy) -> None:
    """Where each of them belongs, and what is seen once they are deleted, is asked for all of them at once."""
    asked, deleted = [], []
    with entries_at(server.url(server.workspace(), **through(proxy)), None) as entries:
        entries.save(ANN, "first", "1")
        for start, count in ((0, 50), (100, 100)):
            before = proxy.questions
            entries.save_many(ANN, [{"key": f"k{start + number}", "content": "x"} for number in range(count)])
            asked.append(proxy.questions - before)
            entries.delete_many(ANN, [f"k{start + number}" for number in range(count)])
            deleted.append(proxy.questions - before - asked[-1])

    assert asked[0] == asked[1] < 10
    assert deleted[0] == deleted[1] < 10


def test_a_workspace_has_any_name_and_its_client_any_encoding(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """What is sent in binary form is in the encoding of the connection."""
    name = f"{server.workspace()}-\u5317\u4eac"
    with server.admin() as admin:
        admin.execute("INSERT INTO memfiles.members (role, workspace) VALUES (%s, %s)", (ROLE, name))
    store = open_store(name, client_encoding="GB18030")

    append(store, ["a.json"], "1")
    append(store, ["a.json"], "2")

    assert ["1", "2"] == lines(open_store(name), "a.json")


def test_a_database_without_an_encoding_is_used_as_any_other(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment says that the client has none."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    name = f"bytes-{server.workspace()}"
    with server.admin() as admin:
        admin.execute(f"CREATE DATABASE \"{name}\" ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    url = server.url("\u5317\u4eac", user="postgres").replace("/postgres?", f"/{name}?")
    with entries_at(url, None) as entries:
        entries.save(ANN, "Stra\u00dfe", "\u5317\u4eac gr\u00fc\u00dft")
        matches = [match.found.key for match in entries.search(ANN, "\u5317\u4eac").matches]
        got = entries.get(ANN, "Stra\u00dfe")

    assert (["Stra\u00dfe"], "\u5317\u4eac gr\u00fc\u00dft") == (matches, got.content if got else None)


def test_an_answer_that_cannot_be_found_out_is_an_unknown_outcome(
    server: PostgresServer,
    proxy: CuttingProxy,
    open_store: Callable[..., PostgresStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the server stays away after the question was sent; before it was, nothing happened."""
    monkeypatch.setattr("memfiles.storage.postgres.connections.PATIENCE_SECONDS", 0.5)
    store = open_store(server.workspace(), **through(proxy))
    put(store, {"a.json": "1"})

    with proxy.cutting(["after"]), pytest.raises(OutcomeUnknown):
        put(store, {"a.json": "2"})
    proxy.close()
    with pytest.raises(StorageFailed) as error:
        read(store, "a.json")

    assert error.value.transient


def test_an_answer_that_was_lost_too_long_ago_is_an_unknown_outcome(
    server: PostgresServer,
    proxy: CuttingProxy,
    open_store: Callable[..., PostgresStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that stood still for a day does not take a change for undone whose note was removed meanwhile."""
    monkeypatch.setattr("memfiles.storage.postgres.connections.RECOGNISED_SECONDS", 0.0)
    store = open_store(server.workspace(), **through(proxy))
    append(store, ["a.json"], "1")
    for paths in (["a.json"], ["a.json", "b.json"]):
        proxy.cut_next("after")
        with pytest.raises(OutcomeUnknown, match="nobody can tell whether the change was made"):
            append(store, paths, "2")
    proxy.cut_next("after")

    assert (["1", "2", "2"], ["2"]) == (lines(store, "a.json"), lines(store, "b.json"))


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(own: PostgresServer) -> None:
    """Two processes append to one record while the server dies: they go on, and every line is there once."""
    place = StorePlace("tests.support.stores:postgres_store", (own.url(own.workspace()),))
    with ExitStack() as stack:
        workers = [stack.enter_context(place.process("write", "a.json", 10_000 * each, 99_999)) for each in (1, 2)]
        for worker in workers:
            assert "open" == worker.hear()
        for worker in workers:
            worker.tell()
        told = []
        for _ in range(KILLS):
            told += [worker.hear() for worker in workers for _ in range(20)]
            own.kill()
            own.start()
        told += [worker.hear() for worker in workers for _ in range(20)]
        for worker in workers:
            told += worker.kill()
    with place.open() as store:
        found = lines(store, "a.json")

    assert len(found) == len(set(found))
    assert [] == [line for line in told if line not in set(found)]


def test_a_server_that_hangs_is_given_up(
    own: PostgresServer, open_store: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends when no answer comes, and the next one works once the server goes on."""
    store = open_store(own.workspace())
    put(store, {"a.json": "1"})
    monkeypatch.setattr("memfiles.storage.postgres.connections.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("memfiles.storage.postgres.connections.TimedConnection.answers_within", 0.3)
    own.pause()
    try:
        with pytest.raises(StorageFailed, match="no answer within|timeout expired"):
            read(store, "a.json")
    finally:
        own.resume()
    monkeypatch.undo()

    put(store, {"a.json": "2"})
    assert "2" == read(store, "a.json")


def test_a_change_does_not_wait_for_its_line_in_the_audit_while_the_server_is_away(own: PostgresServer) -> None:
    """It was acknowledged already; the line follows once the server is back, and once."""
    url = own.url(own.workspace())
    store, log = home_of(url).open(now=utc_now), AuditLog(url)
    log.record(AuditEvent("save", user="ada"))
    own.stop()
    took = []
    for user in ("bob", "cid", "dan"):
        begun = time.monotonic()
        log.record(AuditEvent("save", user=user))
        took.append(time.monotonic() - begun)
        time.sleep(1.5 if user == "bob" else 0.0)  # a thread tries by now, and does not give up so soon
    own.start()
    log.close()
    told = [json.loads(line)["user"] for _, _, line in home_of(url).audit.backwards(lambda _: True) if line]
    store.close()

    assert max(took) < 3
    assert ["dan", "cid", "bob", "ada"] == told


def test_a_read_does_not_undo_what_a_commit_in_between_made_known(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Its snapshot is older than the commit, and its answer comes later: it is asked for again."""
    store, views = open_store(server.workspace()), list[Records]()
    put(store, {"a.json": "1", "slow.json": "1"})
    reading = threading.Thread(target=lambda: views.append(store.view(["a.json", "slow.json"])))
    store.rows.forget(["a.json", "slow.json"])
    with server.admin() as admin, ExitStack() as stack:
        stack.callback(admin.execute, "DROP POLICY slow ON memfiles.records")
        is_slow = "path <> 'slow.json' OR pg_sleep(1)::text = ''"
        admin.execute(f"CREATE POLICY slow ON memfiles.records AS RESTRICTIVE FOR SELECT USING ({is_slow})")
        reading.start()
        asleep = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        while reading.is_alive() and admin.execute(asleep).fetchone() is None:
            reading.join(0.01)
        put(store, {"a.json": "2"})
        reading.join()

    assert ["2", "1"] == [read(views[0], path) for path in ("a.json", "slow.json")]


def test_decisions_on_several_records_wait_for_each_other(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """What another transaction is about to change, after it has seen our record, is seen here once it is done."""
    store = open_store(workspace := server.workspace())
    both, calls = ["a.json", "b.json"], list[str | None]()
    versions = {path: at[0] for path, at in put(store, dict.fromkeys(both, "1")).items()}

    def decide(records: Records) -> tuple[None, ChangeSet]:
        calls.append(read(records, "b.json"))
        return None, ChangeSet([next_version(records, "a.json", "0")] if calls[-1] == "1" else ())

    changing = threading.Thread(target=store.change, args=(both, decide))
    with server.admin() as other:
        other.execute("BEGIN")
        other.execute(
            "SELECT memfiles.change(%s, 7, false, true, 5000, %s::bigint[], ARRAY['a.json'], ARRAY[%s]::bigint[],"
            " ARRAY[]::text[], ARRAY[]::text[], ARRAY['b.json'], ARRAY[%s]::bigint[], ARRAY[%s]::bytea[])",
            (workspace, store._locks(both), versions["a.json"], versions["b.json"], body_of("b.json", 2, "0")),
        )
        changing.start()
        with server.admin() as looking:
            waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while changing.is_alive() and looking.execute(waiting).fetchone() is None:
                changing.join(0.01)
        other.execute("COMMIT")
        changing.join()

    assert (["1", "0"], ("1", "0")) == (calls, (read(store, "a.json"), read(store, "b.json")))


UNCONFIRMED = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def unconfirmed(server: PostgresServer) -> Iterator[None]:
    """No commit is confirmed: what waits for the disk waits for a standby as well, and there is none."""
    with server.admin() as admin, server.admin() as other:

        def expect(standby: str) -> None:
            admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
            admin.execute("SELECT pg_reload_conf()")

        def is_in_effect() -> bool:
            """Whether a commit waits now; a process of the server reads the settings some time after it was told to."""
            committing = threading.Thread(target=other.execute, args=("SELECT pg_logical_emit_message(true, '', '')",))
            committing.start()
            while committing.is_alive():
                if found := admin.execute(UNCONFIRMED).fetchone():
                    admin.execute("SELECT pg_cancel_backend(%s)", found)  # which ends the wait alone
                    committing.join()
                    return True
                committing.join(0.01)
            return False

        expect("nobody")
        try:
            wait_until(is_in_effect)
            yield
        finally:
            expect("")


def test_durability_os_does_not_wait_for_the_disk(own: PostgresServer) -> None:
    """While no commit is confirmed, a change with ``durability: os`` returns."""
    with ExitStack() as stack:
        store = PostgresStore(own.url(own.workspace()), durability="os")
        stack.callback(store.close)
        put(store, {"a.json": "1"})
        stack.enter_context(unconfirmed(own))
        changing = threading.Thread(target=put, args=(store, {"a.json": "2"}), daemon=True)
        changing.start()
        changing.join(10)

        assert not changing.is_alive()


@pytest.mark.parametrize("paths", [["a.json"], ["a.json", "b.json"]], ids=["one", "several"])
def test_a_change_waits_for_the_disk_whatever_its_role_was_given(own: PostgresServer, paths: list[str]) -> None:
    """``synchronous_commit = off`` of a role would lose what was acknowledged, if the server crashed."""
    with own.admin() as admin, ExitStack() as stack:
        stack.callback(admin.execute, f"ALTER ROLE {ROLE} RESET synchronous_commit")
        admin.execute(f"ALTER ROLE {ROLE} SET synchronous_commit = off")
        stack.callback((store := PostgresStore(own.url(own.workspace()))).close)
        put(store, dict.fromkeys(paths, "1"))
        changing = threading.Thread(target=put, args=(store, dict.fromkeys(paths, "2")))
        with unconfirmed(own):
            changing.start()
            wait_until(lambda: not changing.is_alive() or admin.execute(UNCONFIRMED).fetchone())
            waited = changing.is_alive()
        changing.join()

    assert waited


def test_a_line_of_the_audit_does_not_wait_for_the_disk(own: PostgresServer) -> None:
    """While no commit is confirmed, a line that is written at once is there: nobody waits for a second flush."""
    with ExitStack() as stack:
        url = own.url(own.workspace())
        stack.callback((store := PostgresStore(url)).close)
        put(store, {"a.json": "1"})
        log = AuditLog(url)
        stack.enter_context(unconfirmed(own))
        logging = threading.Thread(target=log.record, args=(AuditEvent("save", user="0" * 40),), daemon=True)
        logging.start()
        logging.join(10)

        assert (False, ["save"]) == (logging.is_alive(), [event.op for event in AuditReader(url).events()])


def test_a_scrub_waits_for_who_may_still_see_the_text(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """An open transaction keeps dead rows: the scrub says so, and may be repeated once it is over."""
    store = open_store(server.workspace())
    store._lock_timeout = 0.3
    put(store, {"a.json": "hunter2 correct horse"})
    with server.admin() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM memfiles.records")
        remove(store, ["a.json"])
        with pytest.raises(LockTimeout, match="a transaction has been open"):
            store.scrub()
        reader.execute("COMMIT")
    held = server.pages_holding(b"hunter2 correct horse")
    store.scrub()

    assert (["records"], []) == (held, server.pages_holding(b"hunter2 correct horse"))


def test_a_scrub_without_a_connection_says_that_the_text_is_gone_from_the_records(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """It needs one more than the change before it; whoever is refused that has to repeat the scrub alone."""
    store = open_store(server.workspace())
    put(store, {"a.json": "1"})
    with server.admin() as admin:
        admin.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT 1")
        try:
            with pytest.raises(StorageFailed, match="the text is in no record any more, but .* too many connections"):
                store.scrub()
        finally:
            admin.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
    store.scrub()


def test_another_isolation_level_is_refused(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """A decision on several records would be compared with an old snapshot."""
    store = open_store(server.workspace(), options="-c default_transaction_isolation=serializable")

    with pytest.raises(StorageRefused, match="read committed"):
        put(store, {"a.json": "1"})


def test_a_server_that_is_not_there_is_told(own: PostgresServer) -> None:
    """The message names the address, and the same call may succeed later."""
    with pytest.raises(StorageFailed, match="the store cannot be reached") as error:
        PostgresStore("postgresql://127.0.0.1:1/postgres?workspace=w")

    assert error.value.transient
