"""Entries on each store: the same calls have the same results, and a search sees what anyone committed before it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

import memfiles
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, InvalidArgument
from memfiles.index.database import note_forgets, noted_forgets, strike_forgets
from memfiles.index.record_source import StoreSource
from memfiles.storage.events import RecordChanged, Subscribers, utc_now
from memfiles.storage.home import home_of
from memfiles.storage.postgres.store import PostgresStore
from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import Store
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.saved import Visitor

pytestmark = pytest.mark.slow

Opening = Callable[[], Entries]
ANN = Visitor()

SAVE = """
import sys
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.storage.events import Subscribers
from tests.entries.test_entries_stores import open_store
from tests.support.saved import Visitor
store = open_store(sys.argv[1])
entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
for line in sys.stdin:
    entries.save(Visitor(), line.strip(), f"zebra {line.strip()}")
    print("saved", flush=True)
entries.close()
store.close()
"""


FORGET = """
import os, sys
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.entries.forget import Forgetter
from memfiles.storage.events import Subscribers
from tests.entries.test_entries_stores import open_store
from tests.support.saved import Visitor
Forgetter.complete = lambda *_, **__: os._exit(9)  # the marks are durable, and nothing else was done
late = lambda: "2030-01-01T00:00:00.000Z"  # what was deleted is to be erased
entries = Entries(open_store(sys.argv[1]), rules=EntryRules(), subscribers=Subscribers(), now=late)
if sys.argv[2] == "late":
    bury = Forgetter._bury
    Forgetter._bury = lambda *given, **named: (print("noted", flush=True), input(), bury(*given, **named))[2]
entries.purge() if sys.argv[2] == "purge" else entries.forget(Visitor(), key="password")
"""
REDACT = """
import os, sys
import memfiles
from memfiles.files import manager
manager.erase = lambda *_: os._exit(9)  # the record is redacted, and nothing else was done
with memfiles.open(sys.argv[1], watch=False) as memory:
    memory.manager.redact(sys.argv[2], "quagmire", user="ada" if sys.argv[2] == "own" else None)
"""
WORKFLOW = """
name: redacted
memory:
  {place}
  files:
    - {{uid: notes, name: notes, max_size_bytes: 1000}}
    - {{uid: own, name: own, max_size_bytes: 1000, per: user}}
  entries: {{}}
agents: {{desk: {{memory: [{{id: notes, mode: rw}}, {{id: own, mode: rw}}]}}}}
"""


def open_store(where: str) -> RecordStore:
    return PostgresStore(where) if where.startswith("postgresql") else Store(Path(where), now=utc_now)


@pytest.fixture
def opening(where: str) -> Iterator[Opening]:
    """``opening()`` opens the entries of the same place once more, until the end of the test."""
    with ExitStack() as stack:

        def opening() -> Entries:
            store = open_store(where)
            stack.callback(store.close)
            entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
            stack.callback(entries.close)
            return entries

        yield opening


def found(entries: Entries, query: str, visitor: Visitor = ANN) -> list[str]:
    return sorted(match.found.key for match in entries.search(visitor, query).matches)


def test_the_verbs_of_entries(opening: Opening) -> None:
    """Save, get, search, list, update, delete, restore and undo."""
    entries = opening()
    entries.save(ANN, "plan", "Bob is on Free", tags=["billing"], call_id="c1")
    again = entries.save(ANN, "plan", "Bob is on Free", tags=["billing"], call_id="c1")
    entries.save_many(ANN, [{"key": "color", "content": "blue zebra"}, {"key": "food", "content": "no nuts"}])
    entries.save(ANN, "plan", "Bob is on Pro")
    got = entries.get(ANN, "plan")

    assert (1, "Bob is on Pro") == (again.revision, got.content if got else None)
    assert (["color"], ["plan"]) == (found(entries, "zebra"), found(entries, "who is on pro"))
    assert ["color", "food", "plan"] == [each.key for each in entries.list(ANN).memories]
    entries.delete(ANN, "color")
    assert [] == found(entries, "zebra")
    entries.restore(ANN, "color")
    entries.undo(ANN, "plan")
    assert (["color"], ["plan"]) == (found(entries, "zebra"), found(entries, "free"))


def test_a_search_sees_what_others_committed(opening: Opening) -> None:
    """Each of two sees every save, update and delete of the other that was acknowledged before."""
    one, other = opening(), opening()
    for number in range(4):
        one.save(ANN, f"a{number}", f"zebra {number}")
        assert f"a{number}" in found(other, "zebra")
        other.save(ANN, f"b{number}", f"zebra {number}")
        assert f"b{number}" in found(one, "zebra")
    other.delete(ANN, "a1")
    one.save(ANN, "a2", "giraffe")

    assert ["a0", "a3", "b0", "b1", "b2", "b3"] == found(one, "zebra") == found(other, "zebra")
    assert ["a2"] == found(other, "giraffe")


def test_a_change_by_another_thread_is_told_as_a_change_of_this_process(opening: Opening, where: str) -> None:
    """Also to one that has read several records, among them an earlier version of that one, and looks at it now."""
    opening().save_many(ANN, [{"key": key, "content": "zebra"} for key in ("a", "b")])
    told: list[RecordChanged] = []
    subscribers = Subscribers()
    subscribers.add(told.append)
    with closing(open_store(where)) as store:
        entries = Entries(store, rules=EntryRules(), subscribers=subscribers)
        paths = sorted(path for path in store.changes().records if path.startswith("entries/support/"))
        with entries.repository.together(paths):
            saving = threading.Thread(target=entries.save, args=(ANN, "a", "giraffe"))
            saving.start()
            saving.join()
            looked = [entries.repository.current(path) for path in paths]
        for record in looked:
            entries.repository.notice(record.path)
        entries.close()

    assert [1, 2] == sorted(record.revision for record in looked)
    assert ["local"] == [each.origin for each in told if each.revision == 2]


def test_levels_and_users_are_kept_apart(opening: Opening) -> None:
    """As in a directory: nobody finds what is above her level, or another user's."""
    entries, other = opening(), opening()
    entries.save(Visitor(level="CONFIDENTIAL"), "plan", "zebra secret")
    entries.save(Visitor(user="ada"), "mine", "zebra of ada")

    assert [] == found(other, "zebra")
    assert ["plan"] == found(other, "zebra", Visitor(level="CONFIDENTIAL"))
    assert ["mine"] == found(other, "zebra", Visitor(user="ada"))
    assert [] == found(other, "zebra", Visitor(user="eve"))


def test_a_session_of_a_user_forgotten_elsewhere_saves_nothing(opening: Opening) -> None:
    """A save only reads the mark of the user: it is compared when the save is committed, as another machine made it."""
    one, other = opening(), opening()
    ada = Visitor(user="ada")
    one.save(ada, "tea", "zebra green")
    other.users.forget("ada")
    with pytest.raises(InvalidArgument, match="the user of this session was forgotten"):
        one.save(ada, "coffee", "zebra black")

    assert [] == found(other, "zebra", ada) == found(one, "zebra", ada)


def test_what_is_forgotten_is_nowhere(opening: Opening, where: str, request: pytest.FixtureRequest) -> None:
    """Not in a search or a get of anyone, nor in a row that is dead; a tombstone stays."""
    one, other = opening(), opening()
    one.save(ANN, "password", "xylophone quagmire")
    one.save(ANN, "password", "xylophone quagmire two")
    other.save(ANN, "other", "stays")
    assert ["password"] == found(other, "quagmire")
    one.forget(ANN, key="password", why="asked to")

    assert [] == found(other, "quagmire") == found(one, "quagmire")
    assert (None, ["other"]) == (other.get(ANN, "password"), found(other, "stays"))
    with pytest.raises(EntryNotFound):
        other.restore(ANN, "password")
    if where.startswith("postgresql"):
        server: PostgresServer = request.getfixturevalue("server")
        assert [] == server.pages_holding(b"quagmire")


@pytest.mark.parametrize("how", ["forget", "purge"])
def test_a_forget_of_a_killed_process_is_finished_by_another_one(
    how: str, opening: Opening, where: str, request: pytest.FixtureRequest
) -> None:
    """The next process that opens the memory removes what was put aside, and the dead rows."""
    one = opening()
    one.save(ANN, "password", "xylophone quagmire")
    with closing(open_store(where)) as store:
        (path,) = [path for path in store.changes().records if path.startswith("entries/support/")]
        body, _ = store.find(path) or (b"", None)
    kept = home_of(where if where.startswith("postgresql") else Path(where)).kept
    kept.keep(path, body, reason="test", at="2026-11-22T00:00:00.000Z", folder="quarantine")
    if how == "purge":
        one.delete(ANN, "password")
    killed = subprocess.run([sys.executable, "-c", FORGET, where, how], cwd=ROOT, check=False)
    other = opening()
    found(other, "anything")

    assert (9, []) == (killed.returncode, kept.listing())
    if where.startswith("postgresql"):
        server: PostgresServer = request.getfixturevalue("server")
        assert [] == server.pages_holding(b"quagmire")


def test_a_forget_that_is_still_in_progress_stays_noted(opening: Opening, where: str) -> None:
    """The record is changed, and the memory opened by another process, before it is forgotten by one that is killed."""
    one = opening()
    one.save(ANN, "password", "xylophone quagmire")
    with closing(open_store(where)) as store:
        (path,) = [path for path in store.changes().records if path.startswith("entries/support/")]
        body, _ = store.find(path) or (b"", None)
    with subprocess.Popen(
        [sys.executable, "-c", FORGET, where, "late"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdin is not None and killed.stdout is not None and "noted\n" == killed.stdout.readline()
        one.save(ANN, "password", "another quagmire")
        found(opening(), "anything")
        kept = home_of(where if where.startswith("postgresql") else Path(where)).kept
        kept.keep(path, body, reason="test", at="2026-11-22T00:00:00.000Z", folder="quarantine")
        killed.stdin.write("\n")
    found(opening(), "anything")

    assert (9, []) == (killed.returncode, kept.listing())


@pytest.mark.parametrize("file", ["notes", "own"])
def test_a_redaction_of_a_killed_process_is_finished_by_another_one(
    file: str, where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The next process that opens the memory removes what was put aside, and the dead rows; once."""
    path, is_url = tmp_path / "workflow.yaml", where.startswith("postgresql")
    path.write_text(WORKFLOW.format(place=f"{'store' if is_url else 'directory'}: {where}"))
    home, user = home_of(where), "ada" if file == "own" else None
    with memfiles.open(path, watch=False) as memory:
        memory.manager.append(file, "xylophone quagmire\n", user=user)
        memory.manager.append(file, "stays\n", user=user)
    with closing(open_store(where)) as store:
        (at,) = [each for each in store.changes().records if ("/users/" in each if user else each == f"{file}.json")]
        body, _ = store.find(at) or (b"", None)
    for folder in ("quarantine", "conflicts"):
        home.kept.keep(at, body, reason="test", at="2026-11-22T00:00:00.000Z", folder=folder)
    killed = subprocess.run([sys.executable, "-c", REDACT, path, file], cwd=ROOT, check=False)
    with memfiles.open(path, watch=False) as memory:
        session = memory.session("desk", user=user)
        memory.entries.search(session, "anything")
        content = memory.manager.read(file, user=user)

    assert (9, [], "xylophone [redacted]\nstays\n") == (killed.returncode, home.kept.listing(), content)
    assert {} == home.notes.noted_forgets()
    if is_url:
        server: PostgresServer = request.getfixturevalue("server")
        assert [] == server.pages_holding(b"quagmire")
    else:
        assert [] == [each for each in tmp_path.rglob("*") if each.is_file() and b"quagmire" in each.read_bytes()]


@pytest.mark.parametrize("file", ["notes", "own"])
def test_another_redaction_of_the_file_finishes_that_of_a_killed_process(file: str, where: str, tmp_path: Path) -> None:
    """Both are noted once, and the note goes with the one that ends."""
    path, user = tmp_path / "workflow.yaml", "ada" if file == "own" else None
    path.write_text(WORKFLOW.format(place=f"{'store' if where.startswith('postgresql') else 'directory'}: {where}"))
    kept = home_of(where).kept
    with memfiles.open(path, watch=False) as memory:
        memory.manager.append(file, "xylophone quagmire\n", user=user)
        with closing(open_store(where)) as store:
            (at,) = [it for it in store.changes().records if ("/users/" in it if user else it == f"{file}.json")]
            body, _ = store.find(at) or (b"", None)
        kept.keep(at, body, reason="test", at="2026-11-22T00:00:00.000Z", folder="quarantine")
        killed = subprocess.run([sys.executable, "-c", REDACT, path, file], cwd=ROOT, check=False)
        memory.manager.append(file, "another text\n", user=user)
        memory.manager.redact(file, "another text", user=user)

    assert (9, []) == (killed.returncode, kept.listing())
    assert {} == home_of(where).notes.noted_forgets()


@pytest.mark.parametrize("file", ["notes", "own"])
def test_a_redaction_that_is_done_leaves_no_note(file: str, where: str, tmp_path: Path) -> None:
    """The next start finishes nothing."""
    path, user = tmp_path / "workflow.yaml", "ada" if file == "own" else None
    path.write_text(WORKFLOW.format(place=f"{'store' if where.startswith('postgresql') else 'directory'}: {where}"))
    with memfiles.open(path, watch=False) as memory:
        memory.manager.append(file, "xylophone quagmire\n", user=user)
        memory.manager.redact(file, "quagmire", user=user)
        noted = memory.entries._db.index.ask(noted_forgets)
    notes = home_of(where).notes

    assert ({}, {}) == (noted, notes.noted_forgets())


def test_each_forget_of_a_record_has_a_note_of_its_own(opening: Opening, where: str) -> None:
    """The first to end strikes none of one that began later, and the last those of all before it."""
    path, index, notes = "notes.json", opening()._db.index, home_of(where).notes
    noted = []
    for strike in ({}, {path: 6}, {path: 8}, {"other.json": 8}):
        if not strike:
            for revision in (7, 5, 10, 5):
                notes.note_forgets({path: revision, "other.json": 7})
                index.change(partial(note_forgets, revisions={path: revision, "other.json": 7}))
        notes.strike_forgets(strike)
        index.change(partial(strike_forgets, revisions=strike))
        assert notes.noted_forgets() == index.ask(noted_forgets)
        noted.append(notes.noted_forgets())

    other = {"other.json": 7}
    assert [{path: 5, **other}, {path: 7, **other}, {path: 10, **other}, {path: 10}] == noted


def test_a_search_sees_what_another_process_committed(opening: Opening, where: str) -> None:
    """It was told that the save is done before the search begins; what is opened later sees it as well."""
    entries = opening()
    assert [] == found(entries, "zebra")
    with subprocess.Popen(
        [sys.executable, "-c", SAVE, where], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        for number in range(5):
            worker.stdin.write(f"k{number}\n")
            worker.stdin.flush()
            assert "saved\n" == worker.stdout.readline()
            assert f"k{number}" in found(entries, "zebra")
        worker.stdin.close()

    assert [f"k{number}" for number in range(5)] == found(opening(), "zebra")


def test_an_index_of_a_store_is_removed_with_its_process(server: PostgresServer, tmp_path: Path) -> None:
    """It is kept in a folder of its own, which nobody else can read."""
    with ExitStack() as stack:
        store = PostgresStore(server.url(server.workspace()))
        stack.callback(store.close)
        entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
        entries.save(ANN, "plan", "zebra")
        source = entries._index._records
        assert isinstance(source, StoreSource)
        folder = source.folder
        mode = folder.stat().st_mode & 0o777
        with pytest.raises(InvalidArgument, match="not in files"):
            entries.files.folder()
        entries.close()

    assert (0o700, False) == (mode, folder.exists())
