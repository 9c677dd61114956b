"""Transactions keep what they find in their place, and threads that commit together share a flush."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from memfiles.storage import atomic, quarantine
from memfiles.storage.record_store import ChangeSet, NewVersion
from memfiles.storage.store import Store
from memfiles.storage.transaction import GroupCommit, Request
from tests.support.records import PATIENCE_SECONDS, wait_until

BY_HAND = b"written by hand\n"
FIRST = b'{"content":"the first"}\n'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With a journal: the first change of a process goes without one."""
    store = Store(tmp_path, now=lambda: "2026-01-01T00:00:00.000Z")
    commit(store, "a.json")
    commit(store, "b.json")
    yield store
    store.close()


def commit(store: Store, *paths: str) -> None:
    """Commit first versions, as of records that were not there when they were looked for."""
    store.change(paths, lambda _: (None, ChangeSet([NewVersion(path, 1, FIRST, None) for path in paths])))


def without_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that cannot exchange two names, nor look and rename at once."""
    monkeypatch.setattr(atomic, "_libc", SimpleNamespace)


@pytest.mark.parametrize("prepare", [lambda monkeypatch: None, without_call], ids=["at once", "in steps"])
def test_what_was_put_in_the_place_of_a_first_version_is_kept(
    prepare: Callable[[pytest.MonkeyPatch], None], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone makes the file after the last look at it: the new version wins, theirs is in quarantine."""
    prepare(monkeypatch)
    (tmp_path / "notes.json").write_bytes(BY_HAND)
    commit(store, "plans.json", "notes.json")
    ((kept, why),) = quarantine.Quarantine(store.descriptor).listing()

    assert FIRST == (tmp_path / "notes.json").read_bytes() == (tmp_path / "plans.json").read_bytes()
    assert BY_HAND == (tmp_path / kept).read_bytes()
    assert "edited by hand just before" in why
    assert [] == list(tmp_path.glob(".*.tmp"))


class Counter:
    """Serves requests, the first of them only once it may, and knows which it served together."""

    def __init__(self, *, patience: float) -> None:
        self.groups: list[list[str]] = []
        self.may_serve = threading.Event()
        self.group: GroupCommit[str] = GroupCommit()
        self._patience = patience

    def submitting(self, wanted: str) -> threading.Thread:
        """A thread that submits."""
        thread = threading.Thread(target=self.submit, args=(wanted,))
        thread.start()
        return thread

    def submit(self, wanted: str) -> None:
        """Submit, and return once it was served."""
        self.group.submit(wanted, self._serve, patience=lambda: self._patience)

    def _serve(self, requests: list[Request[str]]) -> None:
        self.groups.append(sorted(request.work for request in requests))
        assert self.may_serve.wait(PATIENCE_SECONDS)
        for request in requests:
            request.is_served = True


@pytest.fixture
def with_two() -> Callable[[float], Counter]:
    """A counter that has just served two together, because they came while another one was served."""

    def make(patience: float) -> Counter:
        counter = Counter(patience=patience)
        threads = [counter.submitting("first")]
        wait_until(lambda: counter.groups, what="the first group")
        threads += [counter.submitting("one"), counter.submitting("two")]
        wait_until(lambda: counter.group.waiting == 2, what="two that wait")
        counter.may_serve.set()
        for thread in threads:
            thread.join()
        assert [["first"], ["one", "two"]] == counter.groups
        return counter

    return make


def test_those_who_were_served_together_are_waited_for(with_two: Callable[[float], Counter]) -> None:
    """The first to come back does not go alone."""
    counter = with_two(PATIENCE_SECONDS)
    thread = counter.submitting("three")
    counter.submit("four")
    thread.join()

    assert ["four", "three"] == counter.groups[-1]


@pytest.mark.parametrize("patience", [0.0, 0.001])
def test_nobody_is_waited_for_longer_than_is_worth_while(patience: float, with_two: Callable[[float], Counter]) -> None:
    """Nor again, once one came alone."""
    counter = with_two(patience)
    counter.submit("three")
    counter.submit("four")

    assert [["three"], ["four"]] == counter.groups[-2:]
