"""Transactions: what a first version finds in its place is not lost, and nothing is left under temp names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from memfiles.storage import atomic
from memfiles.storage.store import Store
from memfiles.storage.transaction import NewVersion

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
    with store.hold(paths):
        store.commit([NewVersion(path, 1, FIRST, None) for path in paths])


def without_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that cannot exchange two names, nor look and rename at once."""
    monkeypatch.setattr(atomic, "_libc", SimpleNamespace())


@pytest.mark.parametrize("prepare", [lambda monkeypatch: None, without_call], ids=["at once", "in steps"])
def test_what_was_put_in_the_place_of_a_first_version_is_kept(
    prepare: Callable[[pytest.MonkeyPatch], None], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone makes the file after the last look at it: the new version wins, theirs is in quarantine."""
    prepare(monkeypatch)
    (tmp_path / "notes.json").write_bytes(BY_HAND)
    commit(store, "plans.json", "notes.json")
    ((kept, why),) = store.quarantined()

    assert FIRST == (tmp_path / "notes.json").read_bytes() == (tmp_path / "plans.json").read_bytes()
    assert BY_HAND == (tmp_path / kept).read_bytes()
    assert "by hand in the moment" in why
    assert [] == list(tmp_path.glob(".*.tmp"))
