"""The image of an index holds nothing erased: any erasure removes it, also while it is made or on its way."""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from memfiles.entries.decisions import of_id
from memfiles.index.database import PATH, IndexUnusable
from memfiles.records.keys import id_path
from memfiles.records.record import NOBODY, Stamp
from memfiles.storage.record_store import Records
from tests.index.images import AT, WORDS, bury, entry_of, fill, image, keep_image, keeper_of, let_claim, remote
from tests.index.test_store_cache import ANN, entries_at
from tests.support.postgres import SCHEMA, PostgresServer

pytestmark = pytest.mark.slow


def test_a_forget_removes_it(server: PostgresServer, workspace: str, url: str) -> None:
    """No row and no dead row of it is left, and the next one does not have the text."""
    with entries_at(url, None) as entries:
        fill(entries)
        (part,) = image(server, workspace)
        before = server.pages_holding(part[1000:1040])
        entries.forget(ANN, key="secret")
        after = image(server, workspace), server.pages_holding(part[1000:1040])
        let_claim(server, workspace)
        keep_image(entries)
        (part,) = image(server, workspace)

    assert (True, ([], [])) == (bool(before), after)
    assert [] == [word for word in WORDS if word.encode() in zlib.decompress(part)]


def test_it_is_removed_by_the_transaction_that_erases(server: PostgresServer, workspace: str, url: str) -> None:
    """A worker that dies right after it leaves no image with the text."""
    with entries_at(url, None) as entries:
        fill(entries)
        bury(entries, "secret")

        assert [] == image(server, workspace)


def test_one_that_was_made_before_an_erasure_is_not_kept(url: str) -> None:
    """What was erased while it was made may be in it."""
    with entries_at(url, None) as entries:
        fill(entries)
        images = remote(entries.repository.store).images
        erased = images.claim(format=1, changed=0, pause=0.0)
        assert erased is not None
        bury(entries, "secret")

        assert (False, []) == (images.keep([b"old"], format=1, erased=erased), [*images.parts(format=1)])
        assert (True, [b"new"]) == (images.keep([b"new"], format=1, erased=erased + 1), [*images.parts(format=1)])


def test_it_is_copied_once_another_thread_has_written_what_was_erased(
    server: PostgresServer, workspace: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows have the text until that thread commits, and nothing waits to be written meanwhile."""
    with entries_at(url, None) as entries, entries_at(url, None) as other:
        fill(entries)
        other.forget(ANN, key="secret")
        let_claim(server, workspace)
        index, store, keeper = entries._index, entries.repository.store, keeper_of(entries)
        view, is_writing, may_go_on = store.view, threading.Event(), threading.Event()

        def wait_and_view(paths: Iterable[str]) -> Records:
            is_writing.set()
            may_go_on.wait()
            return view(paths)

        monkeypatch.setattr(store, "view", wait_and_view)
        threads = [
            threading.Thread(target=index.catch_up),
            threading.Thread(target=keeper._keep, args=(index._at_rest,)),
        ]
        keeper.wait()
        threads[0].start()
        is_writing.wait()
        threads[1].start()
        threads[1].join(1.0)
        before = image(server, workspace)
        may_go_on.set()
        for thread in threads:
            thread.join()
        (part,) = image(server, workspace)

    assert ([], []) == (before, [word for word in WORDS if word.encode() in zlib.decompress(part)])


def test_none_is_made_of_an_index_that_cannot_be_caught_up(server: PostgresServer, workspace: str, url: str) -> None:
    """An answer comes from the records then, but what was erased is still in the rows."""
    with entries_at(url, None) as entries, entries_at(url, None) as other:
        fill(entries)
        other.forget(ANN, key="secret")
        let_claim(server, workspace)
        index = entries._index
        with closing(sqlite3.connect(index.directory / PATH, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(IndexUnusable):
                keeper_of(entries)._keep(index._at_rest)

        assert [] == image(server, workspace)


def test_a_forget_of_another_machine_that_is_followed_removes_it(
    server: PostgresServer, workspace: str, url: str
) -> None:
    """Nothing but a mark at the path of the entry is written then: the tombstone was there before the image."""
    with entries_at(url, None) as entries:
        fill(entries)
        images = remote(entries.repository.store).images
        entry = entry_of(entries, "secret")
        path = id_path(entry.id)
        told = of_id("tombstone", entry, path, None, Stamp(AT, NOBODY))
        entries.repository.change([path], lambda records: (None, [told]))
        let_claim(server, workspace)
        keeper_of(entries)._keep(entries._index._at_rest)
        before = image(server, workspace)
        erased = images.claim(format=1, changed=0, pause=0.0)
        assert erased is not None
        entries.parts.forgetter.follow()

        assert (True, []) == (WORDS[0].encode() in zlib.decompress(before[0]), image(server, workspace))
        assert not images.keep([b"old"], format=1, erased=erased)


def test_a_forget_does_not_wait_for_one_that_is_on_its_way(server: PostgresServer, workspace: str, url: str) -> None:
    """The parts that are there go with it, and no other one comes."""
    sent, is_forgotten = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"gyroscope"
        sent.set()
        is_forgotten.wait(60.0)
        yield b"gyroscope too"

    kept = list[bool]()
    with entries_at(url, None) as entries:
        entries.save(ANN, "secret", "gyroscope")
        images = remote(entries.repository.store).images
        assert 0 == images.claim(format=1, changed=0, pause=600.0)
        keeping = threading.Thread(target=lambda: kept.append(images.keep(parts(), format=1, erased=0)))
        keeping.start()
        assert sent.wait(60.0)
        entries.forget(ANN, key="secret")
        left = server.pages_holding(b"gyroscope")
        is_forgotten.set()
        keeping.join()
        claimed = images.claim(format=1, changed=0, pause=600.0)

    assert ([], [False], 2) == (left, kept, claimed)  # the forget counted twice
    with server.admin() as admin:
        query = f"SELECT count(*) FROM {SCHEMA}.image WHERE workspace = %s"
        assert (0,) == admin.execute(query, (workspace,)).fetchone()
