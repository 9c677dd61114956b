"""A disk that fails for a moment while entries are looked for: an error or the right answer, never a wrong one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.entries import Entries
from memfiles.errors import StorageFailed
from tests.conftest import unavailable
from tests.durability.fault_sweep import REFUSED
from tests.durability.stops import EVERY_CALL
from tests.durability.tracer import Traced, can_trace
from tests.support.saved import Visitor, entries_in, saved

pytestmark = [pytest.mark.slow, pytest.mark.directory("the calls to the system are those on files")]
ANN, RUN = Visitor(), Visitor(run="evt-1")
KEYS = ["first", "second"]
FAILING = 3  # calls in a row: one alone is often made again
Ask = Callable[[Entries], Any]


def searched(entries: Entries) -> list[str]:
    return sorted(match.found.key for match in entries.search(ANN, "zebra").matches)


def listed(entries: Entries) -> list[str]:
    return [found.key for found in entries.list(ANN).memories]


@pytest.mark.parametrize(("ask", "is_warm"), [(searched, True), (listed, False)], ids=["search", "first list"])
def test_a_read_that_fails_hides_no_entry(tmp_path: Path, ask: Ask, is_warm: bool) -> None:
    """One that was saved just before and whose file could not be looked at was taken for one that is gone."""
    if not can_trace():
        unavailable("this machine does not let a process trace its child")
    with entries_in(tmp_path / "base") as entries:
        entries.save(ANN, "first", "zebra one")
    told = [*refused(tmp_path, ask, is_warm=is_warm)]

    wrong = [each for each in told if each[1] not in ("failed", KEYS) or each[2:] != [KEYS, KEYS]]
    assert [] == wrong
    assert KEYS in [answer for _, answer, *_ in told]


def deleted(entries: Entries) -> str:
    return entries.delete(ANN, "first").key


def ended(entries: Entries) -> int:
    return entries.end_run(RUN)


@pytest.mark.parametrize(("change", "done"), [(deleted, "first"), (ended, 1)], ids=["delete", "end of a run"])
def test_a_change_that_fails_is_an_error_of_ours(tmp_path: Path, change: Ask, done: Any) -> None:
    """One that returned was made, also if the disk failed after the commit; and later questions are answered right."""
    if not can_trace():
        unavailable("this machine does not let a process trace its child")
    with entries_in(tmp_path / "base") as entries:
        entries.save(ANN, "first", "zebra one")
    told = [*refused(tmp_path, change, is_warm=True)]

    left = [KEYS if change is ended else ["second"]] * 2
    assert [] == [each for each in told if each[1:] not in ([done, *left], ["failed", *left], ["failed", KEYS, KEYS])]
    assert done in [answer for _, answer, *_ in told]


def test_an_entry_whose_file_cannot_be_looked_at_is_not_taken_for_gone(tmp_path: Path) -> None:
    """It was saved just before, and the index has not read it yet: every later search left it out."""
    if not can_trace():
        unavailable("this machine does not let a process trace its child")
    with entries_in(tmp_path / "base") as entries:
        entries.save(ANN, "first", "zebra one")
    _, told = answered(tmp_path / "base", searched, refuse=0, is_warm=True, name=Path(saved("second").path).name)

    assert ["failed", KEYS, KEYS] == told


def refused(folder: Path, ask: Ask, *, is_warm: bool) -> Iterator[list[Any]]:
    """Of calls that were refused: which they were, what was answered, and what to later questions."""
    for number in count(0, 1 if EVERY_CALL else 5):
        directory = folder / str(number)
        shutil.copytree(folder / "base", directory)
        call, told = answered(directory, ask, refuse=number, is_warm=is_warm)
        if not call:
            return
        yield [call, *told]
        shutil.rmtree(directory)


def answered(directory: Path, ask: Ask, *, refuse: int, is_warm: bool, name: str = "") -> tuple[str, list[Any]]:
    """The refused calls ("" if there were fewer), the answer of the process, and its next answers.

    ``name``: only calls that look at this file.
    """
    answers, answering = os.pipe()

    def started() -> Callable[[], None]:
        opened = entries_in(directory)
        entries = opened.__enter__()
        if is_warm:
            entries.save(ANN, "first", "zebra one")  # the first save of a process brings the index up to date
            searched(entries)
        entries.save(ANN, "second", "zebra two")
        entries.save(RUN, "mine", "said in a run", category="conversation")

        def act(_: object = opened) -> None:  # which stays open until the process ends
            told: list[Any] = ["failed"]
            with suppress(StorageFailed):
                told = [ask(entries)]
            os.write(answering, b"\n")
            told += [searched(entries), listed(entries)]
            os.write(answering, json.dumps(told).encode())

        return act

    numbers, refused = count(), list[str]()
    with Traced(started) as child, os.fdopen(answers) as reader:
        for call in child.calls():
            if call.name == "write" and child.place(call).startswith("pipe:"):
                break
            is_ours = call.name in REFUSED["EIO"] and child.place(call).startswith(str(directory))
            if name:
                is_ours = call.name == "newfstatat" and child.text(call.arguments[1]).endswith(f"/{name}")
            if is_ours and next(numbers) >= refuse:
                child.refuse(errno.ENOMEM)  # one that tells nothing of the file
                refused.append(call.name)
                if len(refused) == FAILING:
                    break
        child.release()
        os.close(answering)
        lines = reader.read().split()
        return " ".join(refused), json.loads(" ".join(lines)) if lines else ["died"]
