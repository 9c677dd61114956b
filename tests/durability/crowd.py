"""One of many processes at work on the same memory file; the first line of its input starts it.

Run as a program, ``python -m tests.durability.crowd DIRECTORY ROLE NUMBER COUNT`` prints one line of JSON: what it saw.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memfiles.errors import RevisionConflict
from memfiles.files.manager import MemoryManager
from memfiles.workflow.workflow import MemoryFile

UID = "shared"
_PAUSE_SECONDS = 0.002
WRITERS = 8
FILES = [
    MemoryFile(uid=UID, name=UID, max_size_bytes=1 << 20),
    MemoryFile(uid="tallies", name="tallies", content="".join(f"writer {number}: 0;\n" for number in range(WRITERS))),
]


def restored(directory: Path) -> MemoryManager:
    """A process that has restored the files."""
    manager = MemoryManager(directory)
    manager.restore(FILES)
    return manager


def append(manager: MemoryManager, number: int, times: int) -> dict[str, int]:
    """Append so many lines, each unlike any other."""
    for turn in range(times):
        manager.append(UID, f"{number}.{turn}\n")
    return {"appended": times}


def edit(manager: MemoryManager, number: int, times: int) -> dict[str, int]:
    """Count up in one line of a file that all count in, each time from the revision that was read."""
    conflicts = 0
    for turn in range(times):
        while True:
            seen = manager.snapshot("tallies").revision
            try:
                old, new = f"writer {number}: {turn};", f"writer {number}: {turn + 1};"
                manager.edit("tallies", old, new, expected_revision=seen)
                break
            except RevisionConflict:
                conflicts += 1
                time.sleep(random.random() * _PAUSE_SECONDS)
    return {"edited": times, "conflicts": conflicts}


def pause(manager: MemoryManager, number: int, times: int) -> dict[str, int]:
    """Append so many lines, say so, and wait with them in the journal."""
    report = append(manager, number, times)
    print("written", flush=True)
    sys.stdin.readline()
    return report


def watch(manager: MemoryManager, *_: int) -> dict[str, Any]:
    """Read through the manager until there is more input; what was seen and what was wrong with it."""
    seen = Seen()
    while not _told_to_stop():
        for uid in (UID, "tallies"):
            record = manager.snapshot(uid)
            seen.take(uid, record.revision, record.content, record.sha256)
    return vars(seen)


def peek(manager: MemoryManager, *_: int) -> dict[str, Any]:
    """Open and parse the files as any program does, until there is more input."""
    seen = Seen()
    while not _told_to_stop():
        for uid in (UID, "tallies"):
            with (manager.directory / f"{uid}.json").open(encoding="utf-8") as file:
                record = json.loads(file.read())
            seen.take(uid, record["revision"], record["content"], record["sha256"])
    return vars(seen)


class Seen:
    """What a reader saw: how many revisions, and everything it should not have seen."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.reads = 0
        self.revisions: dict[str, int] = {}
        self.problems: list[str] = []
        self._lines = ""

    def take(self, uid: str, revision: int, content: str, sha256: str) -> None:
        """Look at one reading: whole, no older than the last, and of the appended file an extension of it."""
        self.reads += 1
        if revision < self.revisions.get(uid, 0):
            self.problems.append(f"{uid}: revision {revision} after {self.revisions[uid]}")
        if hashlib.sha256(content.encode()).hexdigest() != sha256 or not content.endswith(("\n", "")):
            self.problems.append(f"{uid}: revision {revision} is not whole")
        if uid == UID:
            if not content.startswith(self._lines):
                self.problems.append(f"{uid}: revision {revision} lost lines")
            self._lines = content
        self.revisions[uid] = revision


ROLES: dict[str, Callable[[MemoryManager, int, int], dict[str, Any]]] = {
    "append": append,
    "edit": edit,
    "pause": pause,
    "watch": watch,
    "peek": peek,
}


def _told_to_stop() -> bool:
    """Whether there is more input, looked at for a moment: readers must not take the time of the writers."""
    return bool(select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0])


def main() -> None:
    """Play one role, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("role", choices=list(ROLES))
    parser.add_argument("number", type=int)
    parser.add_argument("times", type=int)
    asked = parser.parse_args()
    with restored(asked.directory) as manager:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(ROLES[asked.role](manager, asked.number, asked.times)), flush=True)


if __name__ == "__main__":
    main()
