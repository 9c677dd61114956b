"""What one machine forgets while another one gives it a new key or place, and what it was there before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mirrors.memory import MemoryMirror
from tests.support.saved import Visitor
from tests.sync.entry_machine import EntryMachine, objects_holding
from tests.sync.mirrors_for_tests import AbsentMirror

AGENT = Visitor("support", run="monday")
SECRET = "the needle in it"


class Pair:
    """Two machines that share a mirror; the first can be offline."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.mirror = MemoryMirror()
        self.way = AbsentMirror(self.mirror, is_away=False)
        self.one = ending.enter_context(EntryMachine(folder / "one", self.way))
        self.two = ending.enter_context(EntryMachine(folder / "two", self.mirror))

    def come_together(self) -> None:
        """Both sync until nothing is new, and both are read."""
        for each in (self.one, self.two, self.one, self.two):
            each.flush(60)
            each.pull()
            each.entries.search(AGENT, "needle")
        self.one.flush(60)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The first is offline; afterwards what the second did is in the mirror, and they come together."""
        self.way.is_away = True
        yield
        self.two.flush(60)
        self.way.is_away = False
        for _ in range(2):
            self.come_together()

    def holding(self, text: str) -> list[str]:
        """Every file and object that holds the text."""
        return [*self.one.holding(text), *self.two.holding(text), *objects_holding(self.mirror, text)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as ending:
        yield Pair(tmp_path, ending)


def test_what_was_private_before_it_was_shared_is_forgotten_with_it(pair: Pair) -> None:
    """The machine that forgets it never had what belonged to the run alone."""
    pair.one.entries.save(AGENT, "key", SECRET, category="conversation")
    pair.one.entries.update(AGENT, "key", category="general")
    pair.come_together()
    pair.two.entries.forget(AGENT, key="key")
    pair.come_together()

    assert [] == pair.holding(SECRET)


@pytest.mark.parametrize("steps", [["b"], ["b", "c"]])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_renamed_while_another_machine_forgot_it_is_forgotten(
    pair: Pair, steps: list[str], is_first: bool
) -> None:
    """Whichever of the two comes to the mirror first, and however often it was renamed."""
    pair.two.entries.save(AGENT, "a", SECRET)
    pair.come_together()
    pair.way.is_away = True
    for key, new in zip(["a", *steps], steps, strict=False):
        pair.one.entries.relocate(AGENT, {key: new})
    if not is_first:
        pair.two.entries.forget(AGENT, key="a", why="asked to")
        pair.two.flush(60)
    pair.way.is_away = False
    pair.one.flush(60)
    if is_first:
        pair.two.entries.forget(AGENT, key="a", why="asked to")
    pair.come_together()
    pair.come_together()

    assert [] == pair.holding(SECRET)
    pair.two.entries.save(AGENT, steps[-1], "new")
    pair.come_together()
    assert "new" == getattr(pair.one.entries.get(AGENT, steps[-1]), "content", None)


def test_what_was_saved_under_a_key_in_between_is_not_taken_for_it(pair: Pair) -> None:
    """It was renamed twice, and then its second key was used for something else, while another machine forgot it."""
    pair.two.entries.save(AGENT, "a", SECRET)
    pair.come_together()
    with pair.apart():
        for key, new in (("a", "b"), ("b", "c")):
            pair.one.entries.relocate(AGENT, {key: new})
        pair.one.entries.save(AGENT, "b", "new")
        pair.two.entries.forget(AGENT, key="a")

    assert [] == pair.holding(SECRET)
    assert "new" == getattr(pair.two.entries.get(AGENT, "b"), "content", None)


def test_what_was_given_to_all_while_another_machine_forgot_it_is_forgotten(pair: Pair) -> None:
    """Another category is another place."""
    pair.two.entries.save(AGENT, "key", SECRET)
    pair.come_together()
    with pair.apart():
        pair.one.entries.update(AGENT, "key", category="workspace")
        pair.two.entries.forget(AGENT, key="key")

    assert [] == pair.holding(SECRET)


def test_what_was_known_to_have_been_renamed_stays(pair: Pair) -> None:
    """Who forgets an earlier key on another machine is told which one it has now."""
    pair.one.entries.save(AGENT, "a", "tea at four")
    pair.one.entries.relocate(AGENT, {"a": "b"})
    pair.come_together()
    held_by = pair.two.entries.forget(AGENT, key="a").held_by
    pair.come_together()

    assert ("b",) == held_by
    assert all(machine.entries.get(AGENT, "b") is not None for machine in (pair.one, pair.two))
