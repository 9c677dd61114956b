"""The index of a store in a cache folder: it goes on where it was left, and keeps nothing that was forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.index.catch_up import Maintenance
from memfiles.index.record_source import StoreSource
from memfiles.storage.events import Subscribers, utc_now
from memfiles.storage.home import home_of
from tests.conftest import unavailable
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.postgres import PostgresServer
from tests.support.records import declared
from tests.support.saved import Visitor

pytestmark = pytest.mark.slow
ANN = Visitor()
WORK = """
import sys
from pathlib import Path
from tests.index.test_store_cache import ANN, entries_at, found
with entries_at(sys.argv[1], Path(sys.argv[2])) as entries:
    print(found(entries, sys.argv[3]), flush=True)
    for line in sys.stdin:
        print(found(entries, line.strip()), flush=True)
"""


KILLED = """
import os, sys
from pathlib import Path
from memfiles.index.catch_up import Maintenance
from tests.index.test_store_cache import entries_at, found
Maintenance._scrub = lambda *_: os._exit(9)  # the rows are current, and words of earlier ones are still in the file
with entries_at(sys.argv[1], Path(sys.argv[2])) as entries:
    found(entries, "zebra")
"""


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.url(server.workspace())


@contextmanager
def entries_at(url: str, cache: Path | None) -> Iterator[Entries]:
    """The entries of a store, as another program on this machine opens them."""
    home = home_of(url, cache=cache)
    with ExitStack() as stack:
        store = home.open(now=utc_now)
        stack.callback(store.close)
        entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
        stack.callback(entries.close)
        yield entries


@contextmanager
def plans_at(url: str, entries: Entries) -> Iterator[MemoryManager]:
    """A memory file that each user has."""
    files = [declared("plan", per="user")]
    with MemoryManager(url) as manager:
        manager.restore(files)
        manager.with_users(files, lambda: entries.users)
        yield manager


def found(entries: Entries, query: str) -> list[str]:
    return sorted(match.found.key for match in entries.search(ANN, query).matches)


def were_all_compared(entries: Entries) -> bool:
    return entries._index._maintenance.compared.are_all


def holding(cache: Path, text: bytes) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_it_goes_on_where_it_was_left(url: str, tmp_path: Path) -> None:
    """Whoever opens it again reads what changed since, and nothing else; the answers are those of the records."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save_many(ANN, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(50)])
        assert (10, True) == (len(found(entries, "zebra")), were_all_compared(entries))
    with entries_at(url, tmp_path / "elsewhere") as other:
        other.save(ANN, "new", "giraffe")
        other.delete(ANN, "k1")
        other.save(ANN, "k2", "giraffe too")
    with entries_at(url, cache) as entries:
        again = found(entries, "giraffe"), found(entries, "1"), were_all_compared(entries)

    assert (["k2", "new"], [], False) == again
    assert 0o700 == cache.stat().st_mode & 0o777


@pytest.mark.parametrize("ending", [signal.SIGKILL, None], ids=["killed", "closed"])
def test_nothing_forgotten_is_left_in_it(url: str, tmp_path: Path, ending: signal.Signals | None) -> None:
    """Neither in the rows nor in free pages, once the process that kept it was started again."""
    cache = tmp_path / "cache"
    with entries_at(url, tmp_path / "elsewhere") as other:
        other.save(ANN, "secret", "xylophone quagmire")
        other.save_many(ANN, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(50)])
        with subprocess.Popen(
            [sys.executable, "-c", WORK, url, str(cache), "quagmire"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            assert worker.stdin is not None and worker.stdout is not None
            assert "['secret']\n" == worker.stdout.readline()
            if ending is not None:
                os.kill(worker.pid, ending)
            worker.stdin.close() if ending is None else None
            worker.wait()
        assert holding(cache, b"quagmire")
        other.forget(ANN, key="secret")
    with entries_at(url, cache) as entries:
        assert ([], 10) == (found(entries, "quagmire"), len(found(entries, "zebra")))
        assert [] == [name for name in holding(cache, b"quagmire") if not name.endswith(("-wal", "-shm"))]

    assert [] == holding(cache, b"quagmire")


def test_nothing_forgotten_is_left_in_it_after_a_kill_between_the_rows_and_the_rest(url: str, tmp_path: Path) -> None:
    """Nothing in the rows tells the next process of it, so that is noted."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save(ANN, "secret", "xylophone quagmire")
        entries.save_many(ANN, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(300)])
        assert ["secret"] == found(entries, "quagmire")
    with entries_at(url, tmp_path / "elsewhere") as other:
        other.forget(ANN, key="secret")
    killed = subprocess.run([sys.executable, "-c", KILLED, url, str(cache)], cwd=ROOT, check=False)
    left = holding(cache, b"quagmire")
    with entries_at(url, cache) as entries:
        assert 10 == len(found(entries, "zebra"))
        at_once = [name for name in holding(cache, b"quagmire") if not name.endswith(("-wal", "-shm"))]

    assert (9, True, []) == (killed.returncode, bool(left), at_once)
    assert [] == holding(cache, b"quagmire")


def test_nothing_forgotten_is_left_in_it_by_who_closes_it(url: str, tmp_path: Path) -> None:
    """Also if nothing was searched for between the forget, by another process, and the end."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save(ANN, "secret", "xylophone quagmire")
        entries.save(ANN, "tea", "green")
        assert ["secret"] == found(entries, "quagmire")
        with entries_at(url, tmp_path / "elsewhere") as other:
            other.forget(ANN, key="secret")
        assert holding(cache, b"quagmire")
    left = holding(cache, b"quagmire")
    with entries_at(url, cache) as again:
        compared = found(again, "green"), were_all_compared(again)

    assert ([], (["tea"], False)) == (left, compared)


def test_nothing_forgotten_is_left_in_it_by_who_searches_again(url: str, tmp_path: Path) -> None:
    """A process that goes on needs no end: neither its rows nor its table of words have it, also if it is killed."""
    cache = tmp_path / "cache"
    with entries_at(url, tmp_path / "elsewhere") as other:
        other.save(ANN, "secret", "xylophone quagmire")
        other.save_many(ANN, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(50)])
        with another_process(WORK, url, cache, "quagmire") as worker:
            first = worker.hear(), bool(holding(cache, b"uagmir"))
            other.forget(ANN, key="secret")
            worker.tell("quagmire")
            second = worker.hear()
            os.kill(worker.pid, signal.SIGKILL)

    assert (("['secret']", True), "[]", []) == (first, second, holding(cache, b"uagmir"))


def test_nothing_redacted_is_left_in_it_by_who_searches_again(url: str, tmp_path: Path) -> None:
    """Nor what another machine took out of the file of a user."""
    cache = tmp_path / "cache"
    with entries_at(url, tmp_path / "elsewhere") as other, plans_at(url, other) as plans:
        plans.append("plan", "xylophone quagmire", user="ada")
        with another_process(WORK, url, cache, "xylophone") as worker:
            first = worker.hear(), bool(holding(cache, b"quagmire"))
            plans.redact("plan", "quagmire", user="ada")
            worker.tell("xylophone")
            second = worker.hear()
            os.kill(worker.pid, signal.SIGKILL)

    assert (("[]", True), "[]", []) == (first, second, holding(cache, b"quagmire"))


def test_nothing_is_left_in_it_of_what_was_forgotten_and_saved_again(url: str, tmp_path: Path) -> None:
    """Under the same key, before this worker looked: the row is of another entry."""
    cache = tmp_path / "cache"
    with entries_at(url, tmp_path / "elsewhere") as other:
        other.save(ANN, "secret", "xylophone quagmire")
        with another_process(WORK, url, cache, "xylophone") as worker:
            first = worker.hear(), bool(holding(cache, b"quagmire"))
            other.forget(ANN, key="secret")
            other.save(ANN, "secret", "xylophone zebra")
            worker.tell("xylophone")
            second = worker.hear()
            os.kill(worker.pid, signal.SIGKILL)

    assert (("['secret']", True), "['secret']", []) == (first, second, holding(cache, b"quagmire"))


def test_what_was_redacted_once_is_cleaned_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after each later change of the record, as that takes the longer the more entries there are."""
    cleaned: list[object] = []
    monkeypatch.setattr(Maintenance, "_scrub", lambda self, scrub=Maintenance._scrub: cleaned.append(scrub(self)))
    with entries_at(url, tmp_path / "elsewhere") as other, plans_at(url, other) as plans:
        counts = []
        for change in (
            partial(plans.append, "plan", "xylophone quagmire", user="ada"),
            partial(plans.redact, "plan", "quagmire", user="ada"),
            partial(plans.append, "plan", " again", user="ada"),
        ):
            change()
            with entries_at(url, tmp_path / "cache") as worker:
                found(worker, "xylophone")
            counts.append(len(cleaned))

    assert counts[0] < counts[1] == counts[2]


def test_an_index_whose_words_are_made_by_other_versions_is_removed(url: str, tmp_path: Path) -> None:
    """Its rows have the signatures of the records, and other words."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save(ANN, "tea", "green")
        folder = _folder(entries)
    other = folder.rename(folder.parent / f"00000000-{folder.name.partition('-')[2]}")
    with entries_at(url, cache) as entries:
        answers = found(entries, "green")

    assert (["tea"], [folder.name], False) == (answers, [path.name for path in folder.parent.iterdir()], other.exists())


def test_processes_have_folders_of_their_own(url: str, tmp_path: Path) -> None:
    """A second process on the machine takes another folder; the first folder is taken again once it is free."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save(ANN, "tea", "green")
        first = _folder(entries)
        command = [sys.executable, "-c", WORK, url, str(cache), "green"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None and "['tea']\n" == worker.stdout.readline()
            folders = sorted(path.name for path in first.parent.iterdir())
            worker.communicate()
    with entries_at(url, cache) as entries:
        again = _folder(entries)

    assert (["0", "1"], first) == ([name.partition("-")[2] for name in folders], again)


def test_that_of_another_store_is_thrown_away(server: PostgresServer, url: str, tmp_path: Path) -> None:
    """Its folder is removed, unless a process uses it."""
    cache = tmp_path / "cache"
    with entries_at(url, cache) as entries:
        entries.save(ANN, "tea", "green")
        with entries_at(server.url(server.workspace()), cache) as others:
            both = len(list(cache.iterdir()))
            others.save(ANN, "coffee", "black")
    with entries_at(server.url(server.workspace()), cache) as others:
        found(others, "black")
        left = len(list(cache.iterdir()))

    assert (2, 1) == (both, left)


def test_a_database_that_was_put_back_is_noticed(server: PostgresServer, url: str, tmp_path: Path) -> None:
    """Rows of changes that the database has lost are removed, although it has made as many others since."""
    if server.folder is None:
        unavailable("MEMFILES_TEST_DSN names a server that is not ours")
    kept, running = tmp_path / "kept", tmp_path / "running"
    with entries_at(url, running) as living:
        living.save(ANN, "tea", "green")
        with server.going_back(), entries_at(url, kept) as entries:
            entries.save(ANN, "coffee", "green beans")
            assert (["coffee", "tea"],) * 2 == (found(entries, "green"), found(living, "green"))
        for number in range(20):
            living.save(ANN, "water", f"clear {number}")
        with entries_at(url, kept) as entries:
            assert (["tea"], ["tea"]) == (found(entries, "green"), found(living, "green"))
            assert (["water"], ["water"]) == (found(entries, "clear"), found(living, "clear"))


def _folder(entries: Entries) -> Path:
    source = entries._index._records
    assert isinstance(source, StoreSource)
    return source.folder


def test_a_cache_that_cannot_be_used_costs_time_only(url: str, tmp_path: Path) -> None:
    """Something else is in its place: the index is in a temporary folder."""
    (tmp_path / "cache").write_text("")
    with entries_at(url, tmp_path / "cache") as entries:
        entries.save(ANN, "tea", "green")

        assert ["tea"] == found(entries, "green")
