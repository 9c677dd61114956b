"""Entries that only the mirror has: each arrives, whatever keeps another one away."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from memfiles.errors import CopyRefused, MirrorUnavailable
from memfiles.sync.conflicts import Conflicts
from memfiles.sync.mirror import Stored
from mirrors.memory import MemoryMirror
from tests.support.records import wait_until
from tests.support.saved import Visitor, saved
from tests.sync.entry_machine import AGENT, EntryMachine
from tests.sync.mirrors_for_tests import AbsentMirror

pytestmark = pytest.mark.slow

WHO = Visitor(AGENT)


@pytest.mark.parametrize("error", [CopyRefused("a false signature"), MirrorUnavailable("timed out")], ids=repr)
def test_what_cannot_be_read_at_the_new_place_of_an_entry_keeps_no_other_away(
    tmp_path: Path, error: MirrorUnavailable
) -> None:
    """The machine that renamed it was killed before it pushed the mark, and here another entry is in that place."""
    mirror, there, target = MemoryMirror(), saved("old", agent=AGENT).path, saved("new", agent=AGENT).path

    class Partly(AbsentMirror):
        def get(self, key: str) -> Stored | None:
            if key == target and not self.is_away:
                raise error
            return super().get(key)

    with EntryMachine(tmp_path / "one", mirror) as one:
        one.entries.save(WHO, "old", "renamed")
        one.flush()
        assert (before := mirror.get(there)) is not None
        one.entries.relocate(WHO, {"old": "new"})
        one.entries.save_many(WHO, [{"key": f"other {number}", "content": "text"} for number in range(30)])
        one.flush()
        mirror.put(there, before.body)
    way = Partly(mirror)
    with EntryMachine(tmp_path / "two", way) as two:
        two.entries.save(WHO, "new", "its own")
        way.is_away = False
        with suppress(MirrorUnavailable):
            two.sync.pull(1)
        wait_until(lambda: len(two.entries.list(WHO, limit=100).memories) == 31, what="the other entries")
    with EntryMachine(tmp_path / "two", mirror) as two:
        two.pull()
        found = {it.key: it.content for it in two.entries.list(WHO, limit=100).memories}

        kept = [conflict.content for conflict in Conflicts(two.directory).conflicts()]

    assert (31, "its own", ["renamed"]) == (len(found), found["new"], kept)
