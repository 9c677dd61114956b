"""Starts on every state that a power cut may leave of a story, by the recording of its system calls.

``python -m tests.durability.loss_sweep WORKSPACE STORY`` prints a line of JSON a moment of the story.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from memfiles.errors import StorageFailed
from memfiles.files.manager import MemoryManager
from tests.durability.examination import start
from tests.durability.kill_sweep import acting
from tests.durability.losses import Tree, build, states
from tests.durability.operations import FILES, REDEPLOYED, Contents, Operation, Rehearsal, append_to_all, seeded
from tests.durability.recorder import record
from tests.durability.side_by_side import in_order
from tests.durability.sweep import acknowledge_on

_PLACE = "deep/memory"  # below what is recorded; "deep" is made by the first start as well
_LONG = "".join(f"- fact {number}: it spans some pages\n" for number in range(150))


@dataclass(frozen=True)
class Moment:
    """One moment of a story: how many states a power cut may leave, and what was wrong with any of them."""

    story: str
    clock: int
    acknowledged: int
    states: int
    problems: list[str]


def _restore(manager: MemoryManager) -> object:
    return manager.restore(FILES)


def _checkpoint(manager: MemoryManager) -> None:
    with suppress(StorageFailed):  # the disk was made to fail once, and the caller tries again
        manager.checkpoint()


def _append(uid: str, text: str) -> Callable[[MemoryManager], object]:
    return lambda manager: manager.append(uid, text)


STORIES = {
    story.name: story
    for story in (
        Operation(
            "from nothing",
            MemoryManager,
            (_restore, _append("notes", "- one\n"), _append("notes", "- two\n"), MemoryManager.close),
        ),
        Operation(
            "two appends",
            MemoryManager,
            (_restore, _append("notes", "- one\n"), _append("notes", "- two\n"), MemoryManager.close),
            prepare=seeded,
        ),
        Operation(
            "journaled changes",
            MemoryManager,
            (
                _restore,
                _append("notes", "- one\n"),
                _append("facts", _LONG),
                append_to_all,
                lambda manager: manager.edit("plans", "all", "every one"),
                MemoryManager.checkpoint,
                _append("notes", "- two\n"),
                MemoryManager.close,
            ),
            prepare=seeded,
        ),
        Operation(
            "redeploy and undo",
            MemoryManager,
            (lambda manager: manager.restore(REDEPLOYED), lambda manager: manager.undo("notes"), MemoryManager.close),
            prepare=seeded,
        ),
        Operation(
            "a flush that fails once",
            MemoryManager,
            (
                _restore,
                _append("notes", "- one\n"),
                _append("facts", _LONG),
                _checkpoint,
                _checkpoint,
                _append("facts", "- the end\n"),
                MemoryManager.close,
            ),
            prepare=seeded,
        ),
    )
}


def sweep(story: Operation, workspace: Path, *, pretended: str = "", lost_flush: str = "") -> Iterator[Moment]:
    """Start on every state that a power cut may leave just before any flush of the story, or at its end.

    The states in between are among these: before a flush everything since the last one may be missing.
    """
    rehearsal = Rehearsal(story, workspace / "base")
    top = workspace / "recorded"
    top.mkdir(parents=True)
    directory = rehearsal.copy_to(top / _PLACE)
    null = os.open(os.devnull, os.O_WRONLY)
    recording = record(
        lambda: acting(story, directory, acknowledge_on(null))(), top, pretended=pretended, lost_flush=lost_flush
    )
    moments = [*recording.flushes, recording.clock + 1]
    found_at = {moment: dict(states(recording, moment)) for moment in moments}
    trees = {key: tree for found in found_at.values() for key, tree in found.items()}
    several = list(trees.values())
    starts = in_order(lambda number: _start(several[number], workspace), times=len(several))
    started = dict(zip(trees, starts, strict=True))
    for moment, keys in found_at.items():
        acknowledged = sum(ack < moment for ack in recording.acknowledged)
        possible = rehearsal.states[acknowledged : acknowledged + 2]
        problems = []
        for found, wrong in (started[key] for key in keys):
            problems += wrong if found in possible else [*wrong, f"the files hold {found}"]
        yield Moment(story.name, moment, acknowledged, len(keys), problems[:3])


def _start(tree: Tree, workspace: Path) -> tuple[Contents, list[str]]:
    """Make a state real and start on it."""
    top = Path(tempfile.mkdtemp(dir=workspace))
    try:
        build(tree, top)
        return start(top / _PLACE)
    finally:
        shutil.rmtree(top)


def main() -> None:
    """Sweep one story, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("story", choices=list(STORIES))
    parser.add_argument("--pretended", default="", help="a flush that does nothing")
    parser.add_argument("--lost-flush", default="", help="the name of the file whose first fsync fails")
    asked = parser.parse_args()
    for moment in sweep(STORIES[asked.story], asked.workspace, pretended=asked.pretended, lost_flush=asked.lost_flush):
        print(json.dumps(asdict(moment)), flush=True)


if __name__ == "__main__":
    main()
