"""What this process changes is told once, whoever looks at the files meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.records.entry import EntryRecord
from memfiles.storage.events import Subscribers, utc_now
from memfiles.storage.store import Store
from tests.support.saved import Visitor, saved


class TellingStore:
    """A store that says when somebody begins to wait for a record."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.waiting = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def hold(self, paths: Iterable[str]) -> Any:
        """As of the store, and told before."""
        if threading.current_thread() is not threading.main_thread():
            self.waiting.set()
        return self._inner.hold(paths)


def test_a_change_of_ours_that_is_noticed_while_it_is_made_is_told_once(tmp_path: Path) -> None:
    """Whoever watches may see the file before this process has called its change done."""
    told: list[tuple[str, str]] = []
    subscribers = Subscribers()
    subscribers.add(lambda change: told.append((change.op, change.origin)))
    inner = Store(tmp_path, now=utc_now, durability="os")
    store: Any = TellingStore(inner)
    entries = Entries(store, rules=EntryRules(), subscribers=subscribers)
    entry = saved("color", "blue")
    watcher = threading.Thread(target=lambda: entries.repository.notice(entry.path))

    def decide(_: object) -> tuple[None, list[EntryRecord]]:
        watcher.start()
        assert store.waiting.wait(20)
        return None, [entry]

    entries.repository.change([entry.path], decide)
    watcher.join()
    entries.close()
    inner.close()

    assert [("save", "local")] == told


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_what_another_process_made_is_told_once_also_if_it_was_read_before_it_was_noticed(
    tmp_path: Path, reads: int
) -> None:
    """A question that is answered between a change and the look at it swallows no news of the change."""
    told: list[tuple[str, str, str]] = []
    subscribers = Subscribers()
    subscribers.add(lambda change: told.append((change.op, change.name, change.origin)))
    stores = [Store(tmp_path, now=utc_now, durability="os") for _ in range(2)]
    ours = Entries(stores[0], rules=EntryRules(), subscribers=subscribers)
    theirs = Entries(stores[1], rules=EntryRules(), subscribers=Subscribers())
    theirs.save(Visitor(), "color", "blue")

    for _ in range(reads):
        assert ours.get(Visitor(), "color") is not None
    for _ in range(2):
        assert ours.files.look(saved("color").path)
    ours.close()
    theirs.close()
    for store in stores:
        store.close()

    assert [("save", "color", "process")] == told
