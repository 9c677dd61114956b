"""The verbs that take long tell how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.cli.doctor.command import look
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.storage.events import Progress, reported
from tests.support.saved import Visitor, entries_in
from tests.support.workflows import opened, write_workflow

ADA = Visitor(user="ada")
COUNT = 30


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Entries]:
    """Thirty entries of an agent, and thirty of a user."""
    with entries_in(tmp_path / "memory", rules=EntryRules()) as opened:
        for visitor in (Visitor(), ADA):
            opened.save_many(visitor, [{"key": f"k{number}", "content": "tea"} for number in range(COUNT)])
        opened.export(Visitor(), tmp_path / "all.jsonl", format="jsonl")
        yield opened


VERBS: dict[str, tuple[Callable[[Entries, Path, Progress], Any], int]] = {
    "export a folder": (lambda entries, at, told: entries.export(Visitor(), at / "x", progress=told), 60),
    "export a file": (lambda entries, at, told: entries.export(Visitor(), at / "x", format="jsonl", progress=told), 30),
    "import": (lambda entries, at, told: entries.import_(Visitor("sales"), at / "all.jsonl", take_over=True,
                                                        progress=told), 60),
    "try an import": (lambda entries, at, told: entries.import_(Visitor("sales"), at / "all.jsonl", dry_run=True,
                                                                progress=told), 30),
    "plan": (lambda entries, at, told: entries.plan(Visitor(), progress=told), 30),
    "export a user": (lambda entries, at, told: entries.users.export("ada", at / "x", progress=told), 30),
    "forget a user": (lambda entries, at, told: entries.users.forget("ada", progress=told), 30),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_tells_how_far_it_is(entries: Entries, tmp_path: Path, verb: str) -> None:
    """It goes up to the whole, which stays the same, and the result is the same as without."""
    told: list[tuple[int, int]] = []
    do, whole = VERBS[verb]
    do(entries, tmp_path, lambda done, total: told.append((done, total)))

    assert told == sorted(set(told))
    assert ({whole}, whole) == ({total for _, total in told}, told[-1][0])


def test_nothing_to_do_is_nothing_to_tell(tmp_path: Path) -> None:
    """Nobody divides by zero."""
    told: list[tuple[int, int]] = []
    with entries_in(tmp_path / "memory") as empty:
        empty.export(Visitor(), tmp_path / "x", progress=lambda *at: told.append(at))
        empty.plan(Visitor(), progress=lambda *at: told.append(at))
        empty.users.forget("nobody", progress=lambda *at: told.append(at))

    assert [] == told == list(reported([], lambda *at: told.append(at)))


def test_doctor_tells_how_many_entries_it_read(tmp_path: Path) -> None:
    """Of all agents and users."""
    path = write_workflow(tmp_path, "memory: {entries: {}}\nagents: {support: {}}\n")
    with opened(tmp_path, path.read_text()) as memory:
        for user in (None, "ada"):
            session = memory.session("support", user=user)
            memory.entries.save_many(session, [{"key": f"k{number}", "content": "tea"} for number in range(3)])
    told: list[tuple[int, int]] = []
    list(look(path, progress=lambda *at: told.append(at)))

    assert [(done, 6) for done in range(1, 7)] == told
